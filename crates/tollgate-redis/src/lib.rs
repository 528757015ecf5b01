//! Tollgate's state in Redis: one budget for a whole fleet.
//!
//! - [`RedisStore`]: the store. One script decides, on the server's clock.
//! - [`RedisSettings`]: where it is, and how long it may take.
//!
//! Not here: policies, and what to do while Redis gives no answer (`tollgate::outage`).

mod cluster;
mod connect;
mod draft;
mod encoding;
mod failure;
mod lane;
mod link;
mod names;
mod nodes;
mod refusals;
mod replay;
mod reserve;
mod script;
mod settings;
mod shared;
mod standing;
mod store;
mod undo;
mod way;

pub use settings::{Address, RedisSettings, SettingsError, Tls, Topology};
pub use shared::Counters;
pub use store::RedisStore;
