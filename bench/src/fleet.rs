//! Benchmarks unit leases: nodes that decide hot keys on their own, against one call per decision.
//!
//! - [`node`]: a node with leases on Redis, and requests at a constant rate.
//! - [`hot`]: the cost of a decision about a leased key, against the in-memory store.
//! - [`daemon`]: `tollgate serve` with leases, regions and peers.
//! - [`cluster`]: requests with three limits on a Redis Cluster, with and without leases.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: faults, which the simulator and the tests of `tollgate-redis` cover.

pub mod cluster;
pub mod daemon;
pub mod hot;
pub mod node;
pub mod report;

use std::io;
use std::time::Duration;

use tollgate_core::{Bucket, Rate, Rule, Span};
use tollgate_redis::{RedisSettings, RedisStore};

pub use self::report::{FleetReport, Measured};
use crate::redis::io_error;

/// The key of all requests.
pub const KEY: &[u8] = b"everybody";

/// Creates a leased bucket.
pub fn bucket(name: &str, rate: Rate, burst: u64, lease: Option<Span>) -> io::Result<Rule> {
    let quota = Bucket::new(rate).and_then(|it| it.with_burst(burst)).map_err(|error| io_error(&error))?;
    Ok(Rule::new(name, quota).leased_for(lease))
}

/// Creates a connected store whose calls take at most `deadline`.
pub async fn connect(urls: &[&str], deadline: Duration) -> io::Result<RedisStore> {
    let mut settings = RedisSettings::parse(urls).map_err(|error| io_error(&error))?;
    settings.deadline = deadline;
    let store = RedisStore::new(settings);
    store.connect().await.map_err(|error| io_error(&error))?;
    Ok(store)
}
