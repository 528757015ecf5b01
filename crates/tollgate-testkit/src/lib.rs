//! Real programs for tests, started on free ports and stopped at the end.
//!
//! A program that is missing or does not start fails the test; nothing is skipped. Deadlines are
//! far above the needs of any machine, so they only end tests that have failed.

#![allow(clippy::disallowed_methods, reason = "tests wait for other processes")]

mod certificate;
mod counting;
mod limited_server;
mod netns;
mod output;
mod paced_client;
mod polling;
mod port;
mod postgres;
mod program;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod scratch;
mod slow_link;
mod tollgate;

pub use certificate::Certificate;
pub use counting::{CountingAllocator, allocations, retained_bytes};
pub use limited_server::LimitedServer;
pub use netns::Lan;
pub use output::ProgramOutput;
pub use paced_client::PacedClient;
pub use polling::poll_once;
pub use port::free_port;
pub use postgres::Postgres;
pub use program::{Program, wait_for_port};
pub use redis::{Redis, wait_until};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::SentinelTrio;
pub use scratch::Scratch;
pub use slow_link::SlowLink;
pub use tollgate::Tollgate;
