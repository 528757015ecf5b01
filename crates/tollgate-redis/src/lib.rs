#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! A request passes through `store`, `dispatcher`, `queue`, `batch`, `transport`, `reply` and `apply`.
//!
//! - `store`: answers from the deny cache, or sends a request to the queue of its keys. `reserve`:
//!   requests whose keys are in several partitions.
//! - `dispatcher`: passes a batch through the stages. `queue`, `batch`: requests that share a call.
//! - `transport`: sends a batch. `encoding`, `script`: the command; `router`, `cluster`, `link`,
//!   `connect`: the server.
//! - `reply`: the answers and the changes of keys. `key_state`: the state of one key.
//! - `apply`: notifies the `waiters` and updates the `deny_cache`. `undo`: reverses charges.
//! - `shared`, `counters`, `redis_clock`, `nodes`: state that all threads share.
//! - `inspect`: facts about a server, for `tollgate doctor`.
//! - `node_board`: records of the nodes, and questions between them. `registry`: the rules that other
//!   nodes use.
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
mod inspect;
mod key_state;
mod link;
mod names;
mod node_board;
mod nodes;
mod queue;
mod redis_clock;
mod registry;
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
pub use inspect::{ServerReport, inspect};
pub use settings::{Address, ClientCertificate, RedisSettings, SettingsError, Tls, Topology};
pub use store::RedisStore;
