//! Where Tollgate keeps state.
//!
//! - [`Store`]: the contract. A batch of checks is charged as one or not at all.
//! - [`MemoryStore`]: in this process, lock-free where it counts, bounded always.
//! - `conformance` (a feature): the suite that every store passes, in memory or over a wire.
//! - [`Clock`]: time, handed in.
//!
//! Not here: Redis, policies, what to do in an outage.

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
mod store;

pub use clock::{Clock, ManualClock, SystemClock};
pub use memory::MemoryStore;
pub use store::{Answer, BoxError, Check, Outcomes, Store, StoreError};
