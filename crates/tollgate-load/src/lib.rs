#![doc = include_str!("../README.md")]

mod arrivals;
mod consistency;
mod latency;
mod plan;
mod report;
mod retry_check;
mod run;
mod sender;
mod tally;

pub use consistency::{BucketSummary, Finding, FindingKind};
pub use latency::Percentiles;
pub use plan::{LoadPlan, Manner};
pub use report::{Failures, HeaderReport, LoadReport, RetryReport};
pub use retry_check::{RetryCheck, WaitSource};
pub use run::{RunError, run};
