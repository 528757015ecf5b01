//! Tollgate's gateway, nginx and Envoy: one upstream, one load, one core each.
//!
//! - [`contestant`]: who proxies, and with which configuration. One file each.
//! - [`upstream`], [`wrk`]: what stands behind and before them, on the other core.
//! - [`probe`], [`trial`]: one request by hand; one measurement with its proof.
//! - [`idle`]: what ten thousand connections weigh that say nothing.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Invariant: a number is reported only if every answer behind it was the right
//! one, 200 where the limits are ample and 429 where one has nothing left.
//! Held by [`trial`], which fails the run otherwise.

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

/// The path of every request: one that all three limits apply to.
pub const PATH: &str = "/api/v1/posts";

/// The key that every request carries, for the limits that are by key.
pub const API_KEY: &str = "bench-7f3a9c2e51";
