//! Counts of a running load.

use std::collections::BTreeMap;

use http::StatusCode;
use tollgate::{Span, Timestamp};
use tollgate_client::headers::Advice;

use crate::consistency::{HeaderChecks, Observed};
use crate::latency::Latencies;
use crate::report::{Failures, HeaderReport, LoadReport, RetryReport};
use crate::retry_check::waits;
use crate::sender::{Head, SendError};

pub(crate) struct Tally {
    pub(crate) sent: u64,
    unsent: u64,
    statuses: BTreeMap<u16, u64>,
    admitted: u64,
    pub(crate) refused: u64,
    gave_up: u64,
    failures: Failures,
    latency: Latencies,
    admitted_latency: Latencies,
    service_time: Latencies,
    pub(crate) retry_after: RetryReport,
    headers: HeaderChecks,
}

/// The result of one attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) sent_at: Timestamp,
    pub(crate) received_at: Timestamp,
    /// Whether an earlier attempt of the same call was refused.
    pub(crate) is_retry: bool,
    pub(crate) result: Result<&'a Head, &'a SendError>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            sent: 0,
            unsent: 0,
            statuses: BTreeMap::new(),
            admitted: 0,
            refused: 0,
            gave_up: 0,
            failures: Failures::default(),
            latency: Latencies::new(),
            admitted_latency: Latencies::new(),
            service_time: Latencies::new(),
            retry_after: RetryReport::default(),
            headers: HeaderChecks::default(),
        }
    }

    /// Counts an attempt. Returns whether it was refused.
    pub(crate) fn attempt(&mut self, attempt: &Attempt<'_>) -> bool {
        self.sent += 1;
        self.service_time.record(attempt.received_at.since(attempt.sent_at));
        match attempt.result {
            Ok(head) => {
                *self.statuses.entry(head.status.as_u16()).or_default() += 1;
                let is_refusal = self.observe(head, attempt.sent_at, attempt.received_at);
                let retries = &mut self.retry_after;
                let counted =
                    if is_refusal { &mut retries.retries_refused } else { &mut retries.retries_accepted };
                *counted += u64::from(attempt.is_retry);
                self.refused += u64::from(is_refusal);
                self.admitted += u64::from(is_admitted(head.status));
                is_refusal
            }
            Err(error) => {
                let failures = &mut self.failures;
                let count = match error {
                    SendError::Connect(_) => &mut failures.connect,
                    SendError::Timeout => &mut failures.timeout,
                    SendError::Broken(_) => &mut failures.broken,
                };
                *count += 1;
                failures.example.get_or_insert_with(|| error.to_string());
                false
            }
        }
    }

    /// Checks the headers of a response. Returns whether it refuses.
    pub(crate) fn observe(&mut self, head: &Head, sent_at: Timestamp, received_at: Timestamp) -> bool {
        let advice = Advice::read(&head.headers);
        let is_refusal = advice.is_refusal(head.status);
        self.headers.observe(&Observed { sent_at, received_at, is_refusal, advice: &advice });
        if is_refusal {
            let waits = waits(&advice);
            self.retry_after.without_wait += u64::from(waits.is_empty());
            if let Some((_, wait)) = waits.first() {
                let seconds = std::time::Duration::from(*wait).as_secs_f64();
                let report = &mut self.retry_after;
                report.with_wait += 1;
                report.min_wait_seconds = Some(report.min_wait_seconds.map_or(seconds, |it| it.min(seconds)));
                report.max_wait_seconds = Some(report.max_wait_seconds.map_or(seconds, |it| it.max(seconds)));
            }
        }
        is_refusal
    }

    /// Counts an arrival that was answered, failed or was given up.
    pub(crate) fn arrival(&mut self, latency: Span, status: Option<StatusCode>) {
        self.latency.record(latency);
        if status.is_some_and(is_admitted) {
            self.admitted_latency.record(latency);
        }
    }

    pub(crate) fn gave_up(&mut self, latency: Span) {
        self.gave_up += 1;
        self.latency.record(latency);
    }

    /// Counts an arrival that was not sent, with the time that it has waited.
    pub(crate) fn unsent(&mut self, waited: Span) {
        self.unsent += 1;
        self.latency.record(waited);
    }

    /// Whether no request had a response.
    pub(crate) fn failed_entirely(&self) -> Option<&str> {
        self.failures.example.as_deref().filter(|_| self.statuses.is_empty())
    }

    pub(crate) fn into_report(self, arrivals: u64, seconds: f64) -> LoadReport {
        let described = self.headers.described;
        let (buckets, findings) = self.headers.into_parts();
        LoadReport {
            arrivals,
            sent: self.sent,
            unsent: self.unsent,
            seconds,
            statuses: self.statuses,
            admitted: self.admitted,
            refused: self.refused,
            gave_up: self.gave_up,
            failures: self.failures,
            latency_ms: self.latency.percentiles(),
            admitted_latency_ms: self.admitted_latency.percentiles(),
            service_time_ms: self.service_time.percentiles(),
            retry_after: self.retry_after,
            headers: HeaderReport { described, buckets, findings },
        }
    }
}

fn is_admitted(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}
