//! A Tollgate store in Redis: one budget for a whole fleet.
//!
//! - [`RedisStore`]: the store. One script decides, by the clock of the server.
//! - [`RedisSettings`]: the address of Redis, and the deadlines.
//!
//! Not here: policies, and the fallback while Redis does not answer (`tollgate::outage`).

mod apply;
mod batch;
mod cluster;
mod connect;
mod counters;
mod deny_cache;
mod dispatcher;
mod encoding;
mod failure;
mod key_state;
mod link;
mod names;
mod nodes;
mod queue;
mod redis_clock;
mod reply;
mod reserve;
mod router;
mod script;
mod settings;
mod shared;
mod store;
mod transport;
mod undo;
mod waiters;

pub use counters::Counters;
pub use settings::{Address, RedisSettings, SettingsError, Tls, Topology};
pub use store::RedisStore;
