//! Benchmarks Tollgate's gateway, nginx and Envoy: one upstream, one load, one core each.
//!
//! - [`contestant`]: the proxies and their configurations, one file each.
//! - [`upstream`], [`wrk`]: the upstream and the load, on the other core.
//! - [`probe`], [`trial`]: a single request; one verified measurement.
//! - [`idle`]: memory of ten thousand idle connections.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Invariant: a number is reported only if every response was correct: 200 where the limits are ample, and 429 where
//! one is exhausted. [`trial`] fails the run otherwise.

pub mod contestant;
pub mod idle;
pub mod perf;
pub mod probe;
pub mod report;
pub mod trial;
pub mod upstream;
pub mod wrk;

pub use self::contestant::{Contestant, Duty};
pub use self::report::GatewayReport;

/// The path of every request. All three limits apply to it.
pub const PATH: &str = "/api/v1/posts";

/// The API key of every request, for limits by key.
pub const API_KEY: &str = "bench-7f3a9c2e51";
