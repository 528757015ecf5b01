//! Decisions that Redis makes: Tollgate's store against one plain call for each decision.
//!
//! - [`instance`]: a Redis of our own, and what it says of itself.
//! - [`caller`]: whoever asks, in a crowd or one at a time.
//! - [`bare`], [`ours`]: the client without a store, and the store.
//! - [`case`]: what is asked, and the proof that it was answered.
//! - [`trial`], [`latency`], [`exactness`]: the three kinds of measurement.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: Sentinel, clusters and faults, which are the tests' business.
//!
//! Invariant: a number is reported only if every answer behind it was the right
//! one. Held by each [`Caller`](caller::Caller), which fails the run otherwise.

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

/// How many ask at a time.
pub const IN_FLIGHT: usize = 256;

/// An error with what caused it, in one line.
pub(crate) fn told(error: &dyn Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(because) = cause {
        text = format!("{text}: {because}");
        cause = because.source();
    }
    io::Error::other(text)
}
