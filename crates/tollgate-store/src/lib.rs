//! Stores: where Tollgate keeps the state of keys.
//!
//! - [`Store`]: the contract. A batch of checks is charged as a whole or not at all.
//! - [`MemoryStore`]: the store in this process, lock-free for known keys and bounded in memory.
//! - [`parts`]: batches whose keys are in several places.
//! - `conformance` (a feature): the suite that every store passes, in memory or over a network.
//! - `server_url` (a feature): users, passwords and addresses in the URLs of stores in other processes.
//! - [`Clock`]: the source of time.
//! - [`undo_check`]: the change that undoes a charge. [`CallFailure`]: why a store in another process gave no answer.
//! - [`NodeBoard`]: records, questions and answers of nodes on a shared store. [`VersionRegistry`]: the rules that they use.
//!
//! The Redis store is in `tollgate-redis`, the PostgreSQL store in `tollgate-postgres`, policies in
//! `tollgate-policy`, and the handling of outages in `tollgate::outage`.

#![warn(missing_debug_implementations)]

mod call_failure;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod join;
pub mod memory;
pub mod node_board;
pub mod parts;
mod prefetch;
#[cfg(feature = "server-url")]
pub mod server_url;
mod store;
mod undo;
pub mod version_registry;

pub use call_failure::CallFailure;
pub use clock::{Clock, ClockId, ManualClock, SystemClock};
pub use join::join_all;
pub use memory::MemoryStore;
pub use node_board::NodeBoard;
#[doc(hidden)]
pub use prefetch::prefetch;
pub use store::{
    ADJUSTMENT_ID_LIFETIME, AdjustmentId, Answer, BoxError, Check, Holding, Outcomes, Repeatable, Store,
    StoreError,
};
pub use undo::undo_check;
pub use version_registry::VersionRegistry;
