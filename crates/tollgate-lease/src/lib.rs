//! A store that decides hot keys on the node, from units that it leased from another store.
//!
//! A *unit lease* is a number of units that a node takes in advance. They are charged to the store
//! at that instant, and the node spends them for a short time (`ttl`) without asking. The store
//! charges a lease so that the limit holds in any stretch, whatever the node does with it:
//! [`LeaseRequest`](tollgate_core::LeaseRequest). This crate decides when to lease, how much, and
//! when to return units that will not be spent. The bound does not depend on these estimates.
//!
//! ```text
//! request ──► lots of the key ──► enough: admitted here (one compare-and-swap)
//!                   │
//!                   └─ not enough ──► Store::decide of the inner store, with a lease if the key is hot
//! tend    ──► renews lots that are half spent, returns units that will not be spent
//! ```
//!
//! Only hot keys are leased: those of which this node asks for at least [`MIN_LEASE_UNITS`] units
//! per `ttl`. A rule permits it by [`Rule::lease`](tollgate_core::Rule::lease).
//!
//! A rule that is the share of one region in a limit ([`Rule::far`](tollgate_core::Rule::far)) also borrows: a
//! key that runs short leases units from the stores of other regions ([`FarStore`]), in the background.
//!
//! There is no timer and no task here. A caller runs [`Leased::tend`] when [`Leased::due`] says so, and
//! [`Leased::tend_far`] beside it if units may be borrowed.
//!
//! Invariants, tested by `tests/`:
//! - A lot is spent only before its end, which is counted on the node's own monotonic clock, from
//!   before the call was sent, and shortened by a thousandth.
//! - A refused, failed or abandoned batch puts back the units that it took from lots.
//! - The table has a fixed size.

#[cfg(feature = "conformance")]
pub mod conformance;
mod decide;
mod errands;
mod far;
mod leased;
mod lot;
mod place;
mod plan;
mod sync;
mod table;
mod usage;

#[cfg(all(loom, test))]
mod interleavings;

pub use errands::Errand;
pub use far::{FarCounters, FarStore};
pub use leased::{LeaseCounters, Leased};
pub use usage::MIN_LEASE_UNITS;
