//! Benchmarks the protection of a service at four times its capacity: nothing, Envoy's filters, and Tollgate.
//!
//! - [`upstream`]: a service of known capacity, whose latency rises when requests wait for a worker.
//! - [`arrivals`], [`load`]: requests of three classes at random times, sent whether or not earlier ones were answered.
//! - [`contestant`]: the proxies and their configurations.
//! - [`learned`]: reads the limits that proxies have learned.
//! - [`trial`]: the phases of a measurement.
//! - [`figures`]: the numbers of a phase.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Service times are timers and not computation, so the cores of the machine are not the bottleneck as long as most
//! requests are refused at once. Without protection, connections that are given up keep the generator busy; the report
//! says where it fell behind.

pub mod arrivals;
pub mod contestant;
pub mod figures;
pub mod learned;
pub mod load;
pub mod report;
pub mod trial;
pub mod upstream;

use std::time::Duration;

pub use self::contestant::{Contestant, Programs};
pub use self::report::OverloadReport;
pub use self::trial::{Plan, Track};

/// The workers of the upstream.
pub const WORKERS: usize = 32;

/// The mean service time of a request.
pub const SERVICE_TIME: Duration = Duration::from_millis(25);

/// The time after which a caller gives up. A later answer is worth nothing.
pub const CALLER_TIMEOUT: Duration = Duration::from_secs(1);

/// The load without overload, as a share of the capacity.
pub const CALM_LOAD: f64 = 0.5;

/// The load in the overload, as a multiple of the capacity.
pub const OVERLOAD: f64 = 4.0;

/// Returns the requests per second that this many workers serve.
#[allow(clippy::cast_precision_loss, reason = "a few workers")]
pub fn capacity(workers: usize) -> f64 {
    workers as f64 / SERVICE_TIME.as_secs_f64()
}
