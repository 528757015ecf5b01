//! The result of a load.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::consistency::{BucketSummary, Finding};
use crate::latency::Percentiles;
use crate::retry_check::RetryCheck;

/// The result of a load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The scheduled arrivals.
    pub arrivals: u64,
    /// The requests that were sent, with retries.
    pub sent: u64,
    /// The arrivals that could not be sent in time, because all connections were in use.
    pub unsent: u64,
    /// The time of the load in seconds.
    pub seconds: f64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses that are neither refusals nor errors (2xx and 3xx).
    pub admitted: u64,
    /// Responses that refuse because of a limit.
    pub refused: u64,
    /// Calls that respect limits and were given up, because no units were expected in time.
    pub gave_up: u64,
    /// Requests without a response.
    pub failures: Failures,
    /// From the scheduled arrival to the end of the response. It includes failures and unsent arrivals.
    pub latency_ms: Percentiles,
    /// The same for admitted requests alone.
    pub admitted_latency_ms: Percentiles,
    /// From sending to the end of the response: the time of the server.
    pub service_time_ms: Percentiles,
    /// The waits of refusals.
    pub retry_after: RetryReport,
    /// The headers about limits.
    pub headers: HeaderReport,
}

/// Requests without a response.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Failures {
    /// The server could not be reached.
    pub connect: u64,
    /// No complete response came in time.
    pub timeout: u64,
    /// The connection broke.
    pub broken: u64,
    /// The text of the first failure.
    pub example: Option<String>,
}

/// The waits of refusals, and whether they were true.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RetryReport {
    /// Refusals that name a wait.
    pub with_wait: u64,
    /// Refusals that name neither a wait nor a reset.
    pub without_wait: u64,
    /// The shortest wait, in seconds.
    pub min_wait_seconds: Option<f64>,
    /// The longest wait, in seconds.
    pub max_wait_seconds: Option<f64>,
    /// Retries of calls that respect limits, which were accepted.
    pub retries_accepted: u64,
    /// Retries of calls that respect limits, which were refused again. Other calls may have taken the units.
    pub retries_refused: u64,
    /// Retries at the named time, with no other request for the key.
    pub checks: Vec<RetryCheck>,
    /// The reason why fewer retries were sent than the plan has.
    pub unchecked: Option<String>,
}

/// The headers about limits.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HeaderReport {
    /// Responses that describe a limit.
    pub described: u64,
    /// The buckets that responses describe.
    pub buckets: Vec<BucketSummary>,
    /// Contradictions.
    pub findings: Vec<Finding>,
}

impl LoadReport {
    /// Returns the number of responses of a class, such as 4 for 4xx.
    pub fn class(&self, class: u16) -> u64 {
        self.statuses.iter().filter(|(status, _)| *status / 100 == class).map(|(_, count)| count).sum()
    }

    /// Whether the server sent its callers a wrong value.
    pub fn has_findings(&self) -> bool {
        !self.headers.findings.is_empty() || self.retry_after.checks.iter().any(|check| !check.accepted)
    }
}
