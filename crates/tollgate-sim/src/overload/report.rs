//! The results of a run.
//!
//! `tollgate simulate --overload --json` and the Lab return this as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use super::protection::Protection;
use super::shape::Shape;

/// The results of all protections.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SimulatedOverload")]
pub struct OverloadReport {
    /// Shape.
    #[schemars(extend("enum" = Shape::ALL.map(Shape::word)))]
    pub shape: &'static str,
    /// Description of the shape.
    pub words: &'static str,
    /// Workers of the service.
    pub workers: u32,
    /// Mean service time, in milliseconds.
    #[schemars(extend("minimum" = 0))]
    pub service_time_ms: f64,
    /// Calls per second that the healthy service can answer.
    #[schemars(extend("minimum" = 0))]
    pub capacity: f64,
    /// Offered work in the overload, as a multiple of the work that the service can do.
    #[schemars(extend("minimum" = 0))]
    pub load: f64,
    /// Duration in seconds.
    #[schemars(extend("minimum" = 0))]
    pub duration_s: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The time after which a caller gives up, in milliseconds.
    pub timeout_ms: u64,
    /// Retries of callers; null if they do not retry.
    pub retry: Option<RetryReport>,
    /// The classes and their shares of the calls.
    pub mix: Vec<ShareReport>,
    /// Begin and end of each overload, in seconds since the start.
    pub overloads: Vec<(f64, f64)>,
    /// Length of a cell of the series, in seconds.
    #[schemars(extend("minimum" = 0))]
    pub step_s: f64,
    /// Calls per second that an ideal protection would have answered in time, one value per cell.
    pub possible: Vec<f64>,
    /// Protections in the order of the arguments.
    pub protections: Vec<ProtectionReport>,
    /// Notes on omitted or inexact results.
    pub notes: Vec<String>,
}

/// Retries of callers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RetryReport {
    /// The most attempts of a call, including the first.
    pub attempts: u32,
    /// Retries that each call adds to the budget; null without a budget.
    pub budget: Option<f64>,
}

/// A class and its share of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ShareReport {
    /// Name of the class.
    pub name: &'static str,
    /// Share of the calls.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub share: f64,
}

/// The results of one protection.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SimulatedProtection")]
pub struct ProtectionReport {
    /// The protection.
    pub protection: Protection,
    /// Its policy.
    pub policy: String,
    /// Calls, regardless of the number of attempts.
    pub calls: u64,
    /// Attempts of all calls.
    pub attempts: u64,
    /// Attempts that the protection refused.
    pub refused: u64,
    /// Calls answered in time during the overload, as a share of the calls that an ideal protection would have answered.
    #[schemars(extend("minimum" = 0))]
    pub goodput: f64,
    /// Latency of admitted attempts in the overload: half of them took at most this long, in milliseconds.
    pub p50_ms: u64,
    /// 99 of 100 of them took at most this long, in milliseconds.
    pub p99_ms: u64,
    /// Calls in the overload by class, the most important first.
    pub classes: Vec<GroupReport>,
    /// Calls in the overload by route, the slow one and the others; null if the service has one route.
    pub routes: Option<Vec<GroupReport>>,
    /// Share of the calls after the last overload that were answered in time.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub success_after: f64,
    /// Time from the end of the last overload until success and latency are as before, in seconds; null if the run ended
    /// earlier.
    pub recovered_after_s: Option<f64>,
    /// Summary in words.
    pub words: String,
    /// Series over time.
    pub series: OverloadSeries,
}

/// The calls of one class or route in the overload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct GroupReport {
    /// Name of the class or route.
    pub name: &'static str,
    /// Calls.
    pub calls: u64,
    /// Calls that were answered in time.
    pub succeeded: u64,
    /// The same as a share.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub success: f64,
    /// Half of the admitted attempts took at most this long, in milliseconds.
    pub p50_ms: u64,
    /// 99 of 100 of them took at most this long, in milliseconds.
    pub p99_ms: u64,
}

/// Series of one protection, one value per cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct OverloadSeries {
    /// Attempts.
    pub attempts: Vec<u64>,
    /// Calls that were answered in time, by the time of the answer.
    pub good: Vec<u64>,
    /// 99th percentile of the latency, by the time of the answer, in milliseconds; zero without answers.
    pub p99_ms: Vec<u64>,
    /// Share of the calls of the most important class that succeeded; null without calls.
    pub critical: Vec<Option<f64>>,
}
