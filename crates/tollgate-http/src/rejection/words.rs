//! Why a request was refused, in plain words.
//!
//! They name limits, numbers and kinds of keys, all from the policy: nothing
//! that a caller sent, so nothing that it could have made up.

use std::fmt;

use tollgate::policy::{Block, BlockReason};
use tollgate::{LimitOutcome, Quota, Rate, Span, Verdict, Window};

use crate::headers::RetryAfter;

pub(super) fn quota(limit: &LimitOutcome<'_>, retry_after: Option<RetryAfter>) -> String {
    let (name, promise) = (limit.name(), Promise(&limit.rule().quota));
    match (limit.outcome().verdict, retry_after) {
        (Verdict::Never, _) => format!(
            "limit `{name}` allows {promise}, and this request asks for {} at once: it can never pass, \
             and waiting does not help",
            limit.cost()
        ),
        (_, Some(wait)) => format!("limit `{name}` allows {promise}; try again in {} s", wait.seconds()),
        (_, None) => format!("limit `{name}` allows {promise}"),
    }
}

pub(super) fn block(block: Block<'_>) -> String {
    let name = block.limit.name();
    match block.reason {
        BlockReason::Override => format!("limit `{name}` is closed to this caller"),
        BlockReason::Plan => format!("limit `{name}` is closed to the plan of this caller"),
        BlockReason::MissingKey => {
            let parts: Vec<_> = block.limit.by().iter().map(|part| format!("`{part}`")).collect();
            format!("limit `{name}` counts by {}, which this request does not have", parts.join(" and "))
        }
    }
}

/// What a quota promises: `10 per minute, 20 at once`.
struct Promise<'q>(&'q Quota);

impl fmt::Display for Promise<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per =
            |rate: Rate, f: &mut fmt::Formatter<'_>| write!(f, "{} per {}", rate.count, Period(rate.period));
        match self.0 {
            Quota::Bucket(it) => {
                per(it.rate(), f)?;
                if self.0.capacity() == it.rate().count {
                    return Ok(());
                }
                write!(f, ", {} at once", self.0.capacity())
            }
            Quota::FixedWindow(it) => match it.window() {
                Window::Epoch(length) | Window::Anchored(length) => {
                    per(Rate::new(self.0.capacity(), *length), f)
                }
                Window::Calendar(calendar) => write!(f, "{} per {calendar}", self.0.capacity()),
            },
            Quota::SlidingWindow(it) => per(it.rate(), f),
            Quota::SlidingLog(it) => per(it.rate(), f),
            Quota::Concurrency(it) => write!(f, "{} at once", it.slots()),
        }
    }
}

/// A stretch of time after "per": `minute`, `15 minutes`.
struct Period(Span);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (86_400_000_000, "day"),
            (3_600_000_000, "hour"),
            (60_000_000, "minute"),
            (1_000_000, "second"),
            (1_000, "millisecond"),
        ];
        let micros = self.0.as_micros();
        let whole = UNITS.iter().find(|(size, _)| micros.is_multiple_of(*size));
        match whole.map_or((micros, "microsecond"), |(size, unit)| (micros / size, unit)) {
            (1, unit) => f.write_str(unit),
            (count, unit) => write!(f, "{count} {unit}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Limiter, Policy};

    #[track_caller]
    fn check(limit: &str, expected: &str) {
        let policy = Policy::parse(&format!("limits: [{{by: ip, {limit}}}]")).unwrap();
        let limiter = Limiter::new(policy);
        let rule = &limiter.policy().limits()[0].rules()[0];
        assert_eq!(Promise(&rule.quota).to_string(), expected, "{limit}");
    }

    #[test]
    fn every_algorithm_says_what_it_allows() {
        check("bucket: 10/minute", "10 per minute");
        check("bucket: '1000/minute, burst 200'", "1000 per minute, 200 at once");
        check("algorithm: gcra, rate: 5/2s", "5 per 2 seconds, 1 at once");
        check("algorithm: fixed-window, rate: 100/15m", "100 per 15 minutes");
        check("algorithm: fixed-window, rate: 10/day, align: first-request", "10 per day");
        check(
            "algorithm: fixed-window, rate: 9/month, align: calendar, timezone: Europe/Paris",
            "9 per month in Europe/Paris",
        );
        check("algorithm: sliding-window, rate: 600/hour", "600 per hour");
        check("algorithm: sliding-log, rate: 5/250ms", "5 per 250 milliseconds");
        check("slots: 20", "20 at once");
    }
}
