//! A log put to a policy, against a program that only counts it: goaccess, on the same file in the same run.
//!
//! - [`made`]: the log, from a fixed seed.
//! - [`contestant`]: who reads it, and the proof that all of it was read.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: whether what is counted is right, which is the tests' business.

pub mod contestant;
pub mod made;
pub mod report;

pub use contestant::{Contestant, ReadOptions};
pub use report::ReplayReport;
