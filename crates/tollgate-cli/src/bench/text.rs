//! Formats the report of a load as text.

use std::fmt::Write;

use tollgate_document::sanitize::Printable;
use tollgate_load::{FindingKind, LoadReport, Percentiles, WaitSource};

use crate::arguments::Bench;

/// Returns the report.
pub(super) fn format(arguments: &Bench, report: &LoadReport) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:12} {text}");
    };
    let manner = if arguments.respect { "obeying limits" } else { "ignoring limits" };
    line(
        "load",
        &format!("{}, {} for {}, {manner}", Printable(&arguments.url), arguments.rate, arguments.duration),
    );
    let unsent = if report.unsent == 0 {
        String::new()
    } else {
        format!("; {} not sent, all {} connections were in use", report.unsent, arguments.connections)
    };
    line(
        "arrivals",
        &format!("{} in {:.1} s, {} requests{unsent}", report.arrivals, report.seconds, report.sent),
    );
    line("status", &statuses(report));
    #[allow(clippy::cast_precision_loss)] // a rate for people
    let rate = |count: u64| count as f64 / report.seconds.max(1e-3);
    line(
        "throughput",
        &format!("{:.1} admitted/s of {:.1} sent/s", rate(report.admitted), rate(report.sent)),
    );
    line("latency", &format!("{}   from the scheduled arrival", percentiles(&report.latency_ms)));
    if report.admitted_latency_ms.count > 0 && report.admitted_latency_ms.count < report.latency_ms.count {
        line("  admitted", &percentiles(&report.admitted_latency_ms));
    }
    line("  service", &format!("{}   from sending", percentiles(&report.service_time_ms)));
    line("Retry-After", &waits(report));
    for text in retries(report) {
        line("", &text);
    }
    line("headers", &headers(report));
    for finding in &report.headers.findings {
        let (kind, example) = (finding_text(finding.kind), Printable(&finding.example));
        line("", &format!("{kind}: {} (first: {example})", finding.count));
    }
    out
}

fn statuses(report: &LoadReport) -> String {
    let mut parts: Vec<_> = (1..=5)
        .filter(|class| report.class(*class) > 0)
        .map(|class| {
            let of_class = report.statuses.iter().filter(|(status, _)| *status / 100 == class);
            let each: Vec<_> = of_class.map(|(status, count)| format!("{status}: {count}")).collect();
            format!("{class}xx {} ({})", report.class(class), each.join(", "))
        })
        .collect();
    let failures = &report.failures;
    let failed = failures.connect + failures.timeout + failures.broken;
    if let Some(example) = failures.example.as_deref().filter(|_| failed > 0) {
        parts.push(format!(
            "failed {failed} (connect: {}, timeout: {}, broken: {}; first: {})",
            failures.connect,
            failures.timeout,
            failures.broken,
            Printable(example)
        ));
    }
    if report.gave_up > 0 {
        parts.push(format!("given up {}", report.gave_up));
    }
    parts.join("   ")
}

fn percentiles(it: &Percentiles) -> String {
    let millis = |value: f64| match value {
        value if value < 10.0 => format!("{value:.2} ms"),
        value if value < 1_000.0 => format!("{value:.1} ms"),
        value => format!("{:.2} s", value / 1e3),
    };
    format!(
        "p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        millis(it.p50),
        millis(it.p90),
        millis(it.p99),
        millis(it.p999),
        millis(it.max)
    )
}

fn waits(report: &LoadReport) -> String {
    let waits = &report.retry_after;
    if report.refused == 0 {
        return "no request was refused".to_owned();
    }
    let mut text = format!("{} refusals", report.refused);
    if let (Some(min), Some(max)) = (waits.min_wait_seconds, waits.max_wait_seconds) {
        let _ = write!(text, ", waits from {min:.3} s to {max:.3} s");
    }
    if waits.without_wait > 0 {
        let _ = write!(text, ", {} without a wait", waits.without_wait);
    }
    text
}

fn retries(report: &LoadReport) -> Vec<String> {
    let waits = &report.retry_after;
    let mut lines = Vec::new();
    if waits.retries_accepted + waits.retries_refused > 0 {
        lines.push(format!(
            "retries at the named time: {} accepted, {} refused (other calls compete for the units)",
            waits.retries_accepted, waits.retries_refused
        ));
    }
    for check in &waits.checks {
        let source = match check.source {
            WaitSource::RetryAfter => "Retry-After",
            WaitSource::Milliseconds => "the wait in milliseconds",
            WaitSource::Reset => "the reset",
        };
        let result = if check.accepted { "accepted" } else { "REFUSED: the wait was too short" };
        lines.push(format!(
            "a retry after {:.3} s ({source}): {}, {result}",
            check.wait_seconds, check.status
        ));
    }
    lines.extend(waits.unchecked.as_ref().map(|reason| format!("not checked: {}", Printable(reason))));
    lines
}

fn headers(report: &LoadReport) -> String {
    let headers = &report.headers;
    if headers.described == 0 {
        return "no response describes a limit".to_owned();
    }
    let buckets = headers.buckets.iter().map(|bucket| {
        let name = if bucket.name.is_empty() { "the limit" } else { &bucket.name };
        let limit = bucket.limit.map_or_else(|| "?".to_owned(), |limit| limit.to_string());
        let window = bucket.window_seconds.map(|seconds| format!(" in {seconds} s")).unwrap_or_default();
        let left = match (bucket.min_remaining, bucket.max_remaining) {
            (Some(min), Some(max)) => format!(", {min} to {max} left"),
            _ => String::new(),
        };
        format!("{}: {limit}{window}{left}", Printable(name))
    });
    let buckets: Vec<_> = buckets.collect();
    let verdict = if headers.findings.is_empty() { "consistent" } else { "contradictions" };
    format!("{verdict}; {} responses describe {}", headers.described, buckets.join("; "))
}

const fn finding_text(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::LimitChanged => "the limit changed",
        FindingKind::RemainingAboveLimit => "more left than the limit",
        FindingKind::RemainingRose => "remaining units rose before the reset",
        FindingKind::ResetInPast => "the reset is in the past",
        FindingKind::RefusedWithUnitsLeft => "refused with units left",
        FindingKind::RefusedWithoutWait => "refused without a wait",
        _ => "other",
    }
}
