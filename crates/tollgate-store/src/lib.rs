//! Stores: where Tollgate keeps the state of keys.
//!
//! - [`Store`]: the contract. A batch of checks is charged as a whole or not at all.
//! - [`MemoryStore`]: the store in this process, lock-free for known keys and bounded in memory.
//! - [`parts`]: batches whose keys are in several places.
//! - `conformance` (a feature): the suite that every store passes, in memory or over a network.
//! - [`Clock`]: the source of time.
//!
//! The Redis store is in `tollgate-redis`, policies in `tollgate-policy`, and the handling of
//! outages in `tollgate::outage`.

#![warn(missing_debug_implementations)]

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
pub mod parts;
mod store;

pub use clock::{Clock, ManualClock, SystemClock};
pub use memory::MemoryStore;
pub use store::{ADJUSTMENT_ID_LIFETIME, AdjustmentId, Answer, BoxError, Check, Outcomes, Store, StoreError};
