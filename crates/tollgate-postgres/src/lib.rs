#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! A request passes through `store`, `pool`, `transaction`, `connection` and `decide`.
//!
//! - `store`: makes a request of a batch or a change, and waits for its answer until the deadline.
//! - `request`: a request, whose caller may leave.
//! - `pool`: the queue, the connections, and the tasks that run transactions.
//! - `transaction`: locks and reads, decides, commits, answers. `connection`: the statements;
//!   `tables`: the tables; `connect`, `tls`: the server.
//! - `decide`: the decisions on `states`, which are in memory while their locks are held.
//! - `nodes`: the background work. `node_board`, `registry`: messages between nodes, each in a transaction
//!   of `background`. `counters`: the numbers of the metrics.
//!
//! Not here: policies, and the fallback while PostgreSQL does not answer (`tollgate::outage`).

#![warn(missing_debug_implementations)]

mod background;
mod connect;
mod connection;
mod counters;
mod decide;
mod failure;
mod node_board;
mod nodes;
mod pool;
mod registry;
mod request;
mod settings;
mod states;
mod store;
mod tables;
mod tls;
mod transaction;

pub use counters::Counters;
pub use settings::{Address, PostgresSettings, SettingsError, Tls};
pub use store::PostgresStore;
