//! Tollgate's state in Redis: one budget for a whole fleet.
//!
//! - [`RedisStore`]: the store. One script decides, on the server's clock.
//! - [`RedisSettings`]: where it is, and how long it may take.
//!
//! Not here: policies, and what to do while Redis gives no answer (`tollgate::outage`).

mod settings;
mod store;

pub use settings::{Address, RedisSettings, SettingsError, Tls, Topology};
pub use store::{Counters, RedisStore};
