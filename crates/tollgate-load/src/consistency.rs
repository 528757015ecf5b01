//! Checks that the headers of responses do not contradict each other.
//!
//! Requests overlap, so that the order in which responses arrive is not the order in which the server counted. A pair is
//! compared only if the second request was sent after the first response had been received. Units of a bucket that
//! refills may return in between: at most at the rate at which the first response says that all are back at its reset.

use std::collections::VecDeque;

use serde::Serialize;
use tollgate::{Span, Timestamp};
use tollgate_client::headers::{Advice, BucketReport, Reset};

/// The most buckets that are told apart.
const MAX_BUCKETS: usize = 64;
/// The earlier responses of a bucket that a response is compared with.
const MAX_EARLIER: usize = 64;
/// The precision of a reset in whole seconds, and of the `Date` of a response.
const RESET_PRECISION: Span = Span::from_secs(1);
/// The time by which a date may be in the past: the precision of both, and the time of the response.
const MAX_RESET_AGE: Span = Span::from_secs(2);

/// A kind of contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A response has another limit than an earlier one for the same bucket.
    LimitChanged,
    /// More units remain than the limit has.
    RemainingAboveLimit,
    /// Remaining units rise although no reset has passed, or faster than the reset permits.
    RemainingRose,
    /// The reset is in the past.
    ResetInPast,
    /// A request was refused although every bucket has units left.
    RefusedWithUnitsLeft,
    /// A refusal names neither a wait nor a reset.
    RefusedWithoutWait,
}

/// A contradiction, with its number and the first example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The number of responses.
    pub count: u64,
    /// The first one.
    pub example: String,
}

/// A bucket that responses describe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketSummary {
    /// The name, as the server writes it; empty if it has none.
    pub name: String,
    /// The first limit.
    pub limit: Option<u64>,
    /// The window of the limit in seconds, if the server states it.
    pub window_seconds: Option<f64>,
    /// The smallest number of remaining units.
    pub min_remaining: Option<u64>,
    /// The largest number of remaining units.
    pub max_remaining: Option<u64>,
}

/// One response, as far as it is compared.
pub(crate) struct Observed<'o, 'h> {
    pub(crate) sent_at: Timestamp,
    pub(crate) received_at: Timestamp,
    pub(crate) is_refusal: bool,
    pub(crate) advice: &'o Advice<'h>,
}

#[derive(Default)]
pub(crate) struct HeaderChecks {
    pub(crate) described: u64,
    buckets: Vec<BucketChecks>,
    findings: Vec<Finding>,
}

struct BucketChecks {
    summary: BucketSummary,
    /// Receipt, remaining units and time of the reset of earlier responses, in the order of their receipt.
    earlier: VecDeque<(Timestamp, u64, Timestamp)>,
}

impl HeaderChecks {
    pub(crate) fn observe(&mut self, observed: &Observed<'_, '_>) {
        let advice = observed.advice;
        self.described += u64::from(!advice.buckets.is_empty());
        if observed.is_refusal {
            self.check_refusal(advice);
        }
        for report in &advice.buckets {
            self.check_report(report, observed);
        }
    }

    pub(crate) fn into_parts(self) -> (Vec<BucketSummary>, Vec<Finding>) {
        (self.buckets.into_iter().map(|bucket| bucket.summary).collect(), self.findings)
    }

    fn check_refusal(&mut self, advice: &Advice<'_>) {
        let buckets = &advice.buckets;
        if !buckets.is_empty() && buckets.iter().all(|bucket| bucket.remaining.is_some_and(|left| left > 0)) {
            let left: Vec<_> =
                buckets.iter().filter_map(|it| it.remaining).map(|it| it.to_string()).collect();
            self.find(FindingKind::RefusedWithUnitsLeft, || {
                format!("refused with {} left", left.join(" and "))
            });
        }
        if advice.wait.is_none() && buckets.iter().all(|bucket| bucket.reset.is_none()) {
            self.find(FindingKind::RefusedWithoutWait, || "neither `Retry-After` nor a reset".to_owned());
        }
    }

    fn check_report(&mut self, report: &BucketReport<'_>, observed: &Observed<'_, '_>) {
        let Some(at) = self.bucket(report) else { return };
        let name = shown(&self.buckets[at].summary.name);
        if let (Some(first), Some(limit)) = (self.buckets[at].summary.limit, report.limit)
            && first != limit
        {
            self.find(FindingKind::LimitChanged, || format!("the limit{name} was {first}, then {limit}"));
        }
        if let (Some(limit), Some(left)) = (report.limit, report.remaining)
            && left > limit
        {
            self.find(FindingKind::RemainingAboveLimit, || format!("{left} of {limit} left{name}"));
        }
        let reset = report.reset.map(|reset| reset_at(reset, observed));
        if let (Some(Reset::At(at)), Some(date)) = (report.reset, observed.advice.date)
            && at + MAX_RESET_AGE < date
        {
            let seconds = date.since(at).as_secs_ceil();
            self.find(FindingKind::ResetInPast, || {
                format!("the reset{name} was {seconds} s before the response")
            });
        }
        let (Some(left), Some(reset)) = (report.remaining, reset) else { return };
        let bucket = &mut self.buckets[at];
        let before =
            bucket.earlier.iter().rev().find(|(received, ..)| *received <= observed.sent_at).copied();
        bucket.earlier.push_back((observed.received_at, left, reset));
        if bucket.earlier.len() > MAX_EARLIER {
            bucket.earlier.pop_front();
        }
        let limit = bucket.summary.limit;
        if let Some((received, earlier, earlier_reset)) = before
            && left > earlier
            && let Some(most) = most_left((received, earlier, earlier_reset), limit, observed)
            && left > most
        {
            self.find(FindingKind::RemainingRose, || {
                let after = observed.received_at.since(received).as_millis_ceil();
                format!("{earlier} left{name}, and {left} left {after} ms later, before the reset")
            });
        }
    }

    /// Returns the place of a bucket, or `None` if there are too many.
    fn bucket(&mut self, report: &BucketReport<'_>) -> Option<usize> {
        let name = report.name.as_str();
        let at = self.buckets.iter().position(|bucket| bucket.summary.name == name);
        let at = match at {
            Some(at) => at,
            None if self.buckets.len() >= MAX_BUCKETS => return None,
            None => {
                #[allow(clippy::cast_precision_loss)] // seconds
                let window_seconds = report.window.map(|window| window.as_micros() as f64 / 1e6);
                let (min_remaining, max_remaining) = (report.remaining, report.remaining);
                let limit = report.limit;
                let name = name.to_owned();
                let summary = BucketSummary { name, limit, window_seconds, min_remaining, max_remaining };
                self.buckets.push(BucketChecks { summary, earlier: VecDeque::new() });
                self.buckets.len() - 1
            }
        };
        let summary = &mut self.buckets[at].summary;
        summary.limit = summary.limit.or(report.limit);
        if let Some(left) = report.remaining {
            summary.min_remaining = Some(summary.min_remaining.map_or(left, |it| it.min(left)));
            summary.max_remaining = Some(summary.max_remaining.map_or(left, |it| it.max(left)));
        }
        Some(at)
    }

    fn find(&mut self, kind: FindingKind, example: impl FnOnce() -> String) {
        match self.findings.iter_mut().find(|finding| finding.kind == kind) {
            Some(finding) => finding.count += 1,
            None => self.findings.push(Finding { kind, count: 1, example: example() }),
        }
    }
}

/// Returns the most units that can be left, or `None` if the reset permits any number.
fn most_left(
    (received, earlier, reset): (Timestamp, u64, Timestamp),
    limit: Option<u64>,
    observed: &Observed<'_, '_>,
) -> Option<u64> {
    // The earliest time at which all units may be back.
    let full_at = reset.before(RESET_PRECISION);
    let limit = limit.filter(|_| full_at > observed.received_at)?;
    #[allow(clippy::cast_precision_loss)] // an estimate
    let (missing, until_full) =
        (limit.saturating_sub(earlier) as f64, full_at.since(received).as_micros() as f64);
    #[allow(clippy::cast_precision_loss)] // an estimate
    let passed = observed.received_at.since(received).as_micros() as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    let returned = (missing * passed / until_full.max(1.0)).ceil() as u64;
    Some(earlier.saturating_add(returned).saturating_add(1))
}

/// Returns the time of a reset on the local clock.
fn reset_at(reset: Reset, observed: &Observed<'_, '_>) -> Timestamp {
    let received = observed.received_at;
    match (reset, observed.advice.date) {
        (Reset::After(span), _) => received + span,
        (Reset::At(at), Some(date)) => received + at.since(date),
        (Reset::At(at), None) => at,
    }
}

fn shown(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" of `{}`", name.escape_debug()) }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    /// Observes responses: sent and received in milliseconds, whether refused, headers.
    fn findings(responses: &[(u64, u64, bool, &str)]) -> Vec<FindingKind> {
        let mut checks = HeaderChecks::default();
        for (sent, received, is_refusal, text) in responses {
            let mut headers = HeaderMap::new();
            for line in text.split("; ").filter(|line| !line.is_empty()) {
                let (name, value) = line.split_once(": ").unwrap();
                headers.insert(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
            }
            let advice = Advice::read(&headers);
            let at = |millis: u64| Timestamp::from_secs(1_000) + Span::from_millis(millis);
            let (sent_at, received_at, is_refusal) = (at(*sent), at(*received), *is_refusal);
            checks.observe(&Observed { sent_at, received_at, is_refusal, advice: &advice });
        }
        checks.into_parts().1.into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn a_window_and_a_bucket_that_refills_are_consistent() {
        let at = |limit: u32, left: u32, reset: u32| {
            format!("x-ratelimit-limit: {limit}; x-ratelimit-remaining: {left}; x-ratelimit-reset: {reset}")
        };
        let window = [at(5, 4, 60), at(5, 3, 59), at(5, 0, 58)];
        assert_eq!(
            findings(&[(0, 1, false, &window[0]), (2, 3, false, &window[1]), (4, 5, false, &window[2])]),
            []
        );
        // Ten units a second: after two seconds the bucket has 19 more.
        let refill = [at(100, 10, 9), at(100, 29, 8), at(100, 98, 1)];
        let refill = [
            (0, 1, false, &*refill[0]),
            (2_000, 2_001, false, &refill[1]),
            (9_000, 9_001, false, &refill[2]),
        ];
        assert_eq!(findings(&refill), []);
        // Requests that overlap are not compared.
        assert_eq!(findings(&[(0, 5, false, &at(5, 1, 60)), (0, 6, false, &at(5, 4, 60))]), []);
    }

    #[test]
    fn contradictions_are_found() {
        let first = "x-ratelimit-limit: 5; x-ratelimit-remaining: 1; x-ratelimit-reset: 60";
        for (second, is_refusal, expected) in [
            (
                "x-ratelimit-limit: 6; x-ratelimit-remaining: 0; x-ratelimit-reset: 60",
                false,
                FindingKind::LimitChanged,
            ),
            (
                "x-ratelimit-limit: 5; x-ratelimit-remaining: 4; x-ratelimit-reset: 60",
                false,
                FindingKind::RemainingRose,
            ),
            (
                "x-ratelimit-limit: 5; x-ratelimit-remaining: 1; x-ratelimit-reset: 60; retry-after: 1",
                true,
                FindingKind::RefusedWithUnitsLeft,
            ),
            ("server: x", true, FindingKind::RefusedWithoutWait),
            (
                "x-ratelimit-limit: 5; x-ratelimit-remaining: 0; x-ratelimit-reset: 1700000000; date: Tue, 17 Nov 2026 11:00:00 GMT",
                false,
                FindingKind::ResetInPast,
            ),
        ] {
            assert_eq!(findings(&[(0, 1, false, first), (2, 3, is_refusal, second)]), [expected], "{second}");
        }
        let above = "x-ratelimit-limit: 5; x-ratelimit-remaining: 7; x-ratelimit-reset: 60";
        assert_eq!(findings(&[(0, 1, false, above)]), [FindingKind::RemainingAboveLimit]);
    }
}
