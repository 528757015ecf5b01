//! The words of other services, for clients that read nothing else.
//!
//! Only what is a header. Some of these clients look into the body too (Discord
//! a `retry_after` beside `global`, AWS an error code); that is for the surface
//! that imitates the service, with a body of its own.
//!
//! To add a dialect: a variant in `tollgate_policy`, a function here.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::policy::{Dialect, KeySource};
use tollgate::{Decision, Fate, LimitOutcome, Quota, Span};

use super::{RetryAfter, put, until_change};

/// What a dialect may speak of.
struct Answer<'a> {
    decider: &'a LimitOutcome<'a>,
    refused: bool,
    retry_after: Option<RetryAfter>,
}

pub(super) fn write(
    headers: &mut HeaderMap,
    dialect: Dialect,
    decision: &Decision<'_>,
    decider: &LimitOutcome<'_>,
    retry_after: Option<RetryAfter>,
) {
    let answer = Answer { decider, refused: decision.fate() == Fate::Refused, retry_after };
    match dialect {
        Dialect::Discord => discord(headers, &answer),
        Dialect::OpenAi => openai(headers, &answer),
        Dialect::Stripe => stripe(headers, &answer),
        Dialect::Aws => aws(headers, &answer),
        Dialect::Envoy => envoy(headers, &answer),
    }
}

/// `-Reset-After` may have a fraction; `-Bucket` tells limits apart and not their keys.
fn discord(headers: &mut HeaderMap, answer: &Answer<'_>) {
    static RESET_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-reset-after");
    static BUCKET: HeaderName = HeaderName::from_static("x-ratelimit-bucket");
    static SCOPE: HeaderName = HeaderName::from_static("x-ratelimit-scope");
    let millis = until_change(answer.decider).as_millis_ceil();
    put_text(headers, &RESET_AFTER, format!("{}.{:03}", millis / 1_000, millis % 1_000));
    put_text(headers, &BUCKET, format!("{:016x}", answer.decider.rule().id.0));
    if answer.refused {
        // Being refused because of others does not count against a caller there.
        let shared = matches!(answer.decider.limit().by(), [KeySource::Global]);
        put(headers, &SCOPE, HeaderValue::from_static(if shared { "shared" } else { "user" }));
    }
}

/// Resets are durations as Go writes them: `6m0s`, `20ms`.
fn openai(headers: &mut HeaderMap, answer: &Answer<'_>) {
    static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
    static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
    static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
    static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
    put(headers, &LIMIT, HeaderValue::from(answer.decider.outcome().limit));
    put(headers, &REMAINING, HeaderValue::from(answer.decider.outcome().remaining));
    put_text(headers, &RESET, go_duration(until_change(answer.decider)));
    if answer.refused {
        put(headers, &SHOULD_RETRY, yes_or_no(answer.retry_after.is_some()));
    }
}

/// Its clients retry a 429 only when told to.
fn stripe(headers: &mut HeaderMap, answer: &Answer<'_>) {
    static REASON: HeaderName = HeaderName::from_static("stripe-rate-limited-reason");
    static SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
    if answer.refused {
        let slots = matches!(answer.decider.rule().quota, Quota::Concurrency(_));
        let reason = match (covers_everything(answer.decider), slots) {
            (true, false) => "global-rate",
            (false, false) => "endpoint-rate",
            (true, true) => "global-concurrency",
            (false, true) => "endpoint-concurrency",
        };
        put(headers, &REASON, HeaderValue::from_static(reason));
        put(headers, &SHOULD_RETRY, yes_or_no(answer.retry_after.is_some()));
    }
}

/// Its SDKs go by the error's name, and count in milliseconds.
fn aws(headers: &mut HeaderMap, answer: &Answer<'_>) {
    static ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
    static RETRY_AFTER: HeaderName = HeaderName::from_static("x-amz-retry-after");
    // Another name for what can never pass: this one would be retried.
    if let Some(retry_after) = answer.retry_after {
        put(headers, &ERROR_TYPE, HeaderValue::from_static("ThrottlingException"));
        put(headers, &RETRY_AFTER, HeaderValue::from(retry_after.millis()));
    } else if answer.refused {
        put(headers, &ERROR_TYPE, HeaderValue::from_static("ServiceQuotaExceededException"));
    }
}

/// Says that it was the limiter, and not the service, that refused.
fn envoy(headers: &mut HeaderMap, answer: &Answer<'_>) {
    static RATELIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");
    if answer.refused {
        put(headers, &RATELIMITED, HeaderValue::from_static("true"));
    }
}

fn covers_everything(limit: &LimitOutcome<'_>) -> bool {
    limit.limit().endpoints().iter().any(|endpoint| endpoint.to_string() == "/**")
}

fn yes_or_no(yes: bool) -> HeaderValue {
    HeaderValue::from_static(if yes { "true" } else { "false" })
}

fn put_text(headers: &mut HeaderMap, name: &'static HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        put(headers, name, value);
    }
}

/// Rounded up to the millisecond, and above a second to the second, as the original does.
fn go_duration(span: Span) -> String {
    if span < Span::from_secs(1) {
        return format!("{}ms", span.as_millis_ceil());
    }
    let seconds = span.as_secs_ceil();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_writes_them() {
        for (millis, text) in [
            (0, "0ms"),
            (20, "20ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_001, "2s"),
            (360_000, "6m0s"),
            (3_600_000, "1h0m0s"),
            (90_061_000, "25h1m1s"),
        ] {
            assert_eq!(go_duration(Span::from_millis(millis)), text);
        }
    }
}
