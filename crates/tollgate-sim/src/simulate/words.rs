//! Summarizes the results of an algorithm in one or two sentences.

use std::fmt::Write as _;

use tollgate::{Algorithm as _, Quota, Span};

use super::contestant::Contestant;
use super::report::AlgorithmReport;
use crate::distance::Disagreement;
use crate::plot::number::count;
use crate::waits::Waits;

/// Describes how an algorithm kept its limit, and how far it is from the exact log.
pub(super) fn of(report: &AlgorithmReport, contestant: &Contestant) -> String {
    let (limit, most) = (contestant.rate.count, report.most_in_a_window);
    let (within, any) = stretch(contestant.rate.period);
    let mut words = if report.offered == 0 {
        "There were no requests.".to_owned()
    } else if most > limit {
        let times = times(report.times_the_limit);
        let (most, limit) = (count(most), count(limit));
        format!("Let {most} through within {within}, where {limit} may pass: {times} the limit.")
    } else if report.refused == 0 {
        let most = count(most);
        format!("Refused no request, and admitted at most {most} in any {any}.")
    } else {
        let most = count(most);
        format!("Never admitted more than {most} in any {any}.")
    };
    if let Some(Waits { delayed, p50_ms, p99_ms, max_ms, .. }) = report.waits {
        let (delayed, admitted) = (count(delayed), count(report.admitted));
        let _never = write!(
            words,
            " {delayed} of {admitted} admitted requests had to wait: half of them for at most {} ms, 99 % for at most {} ms, \
             and none for longer than {} ms.",
            count(p50_ms),
            count(p99_ms),
            count(max_ms)
        );
    } else if let (Quota::Bucket(bucket), true) = (&contestant.quota, most > limit) {
        let _never = write!(
            words,
            " A bucket of {} allows that: the saved tokens, and those that are refilled meanwhile.",
            count(bucket.capacity())
        );
    }
    if let Some(closed) = &report.closed_loop {
        words.push(' ');
        words.push_str(&distance(closed));
    }
    words
}

/// Formats a ratio: `twice`, `1.4 times`.
fn times(ratio: f64) -> String {
    match ratio {
        it if (it - 2.0).abs() < 0.005 => "twice".to_owned(),
        it if it < 1.1 => format!("{it:.2} times"),
        it => format!("{it:.1} times"),
    }
}

/// Formats a window for use after `within` and after `any`: `one minute` and `minute`, `15 seconds` and `15 seconds`.
fn stretch(span: Span) -> (String, String) {
    let (number, unit) = match span.as_micros() {
        us if us == 0 || !us.is_multiple_of(1_000_000) => return (span.to_string(), span.to_string()),
        us if us > 3_600_000_000 && !us.is_multiple_of(3_600_000_000) => {
            return (span.human_exact().to_string(), span.human_exact().to_string());
        }
        us if us.is_multiple_of(86_400_000_000) => (us / 86_400_000_000, "day"),
        us if us.is_multiple_of(3_600_000_000) => (us / 3_600_000_000, "hour"),
        us if us.is_multiple_of(60_000_000) => (us / 60_000_000, "minute"),
        us => (us / 1_000_000, "second"),
    };
    let many = format!("{number} {unit}s");
    if number == 1 { (format!("one {unit}"), unit.to_owned()) } else { (many.clone(), many) }
}

fn distance(of: &Disagreement) -> String {
    let wrong = of.too_lax + of.too_strict;
    if wrong == 0 {
        return "Decided as an exact log does.".to_owned();
    }
    let percent = of.share() * 100.0;
    let percent = if percent < 0.1 { format!("{percent:.3}") } else { format!("{percent:.1}") };
    format!(
        "Differs from an exact log in {percent} % of its decisions: {} too lax, {} too strict.",
        count(of.too_lax),
        count(of.too_strict)
    )
}
