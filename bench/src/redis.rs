//! Benchmarks decisions in Redis: Tollgate's store against one plain call per decision.
//!
//! - [`instance`]: a Redis server and its statistics.
//! - [`caller`]: the load, concurrent or sequential.
//! - [`bare`], [`ours`]: the client without a store, and the store.
//! - [`case`]: the workloads and their checks.
//! - [`trial`], [`latency`], [`exactness`]: the three kinds of measurement.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: Sentinel, Cluster and faults, which tests cover.
//!
//! Invariant: a number is reported only if every answer was correct. Each [`Caller`](caller::Caller) fails the run
//! otherwise.

pub mod bare;
pub mod caller;
pub mod case;
pub mod exactness;
pub mod instance;
pub mod keys;
pub mod latency;
pub mod ours;
pub mod report;
pub mod trial;

use std::error::Error;
use std::io;

pub use self::case::Case;
pub use self::instance::Instance;
pub use self::report::RedisReport;

/// Concurrent requests.
pub const IN_FLIGHT: usize = 256;

/// Converts an error and its causes to one line.
pub(crate) fn io_error(error: &dyn Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(because) = cause {
        text = format!("{text}: {because}");
        cause = because.source();
    }
    io::Error::other(text)
}
