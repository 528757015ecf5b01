//! Benchmarks the replay of a log against goaccess, which only counts it, on the same file in the same run.
//!
//! - [`made`]: the log, from a fixed seed.
//! - [`contestant`]: the programs, and the check that they read the whole log.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: whether the results are right, which tests check.

pub mod contestant;
pub mod made;
pub mod report;

pub use contestant::{Contestant, ReadOptions};
pub use report::ReplayReport;
