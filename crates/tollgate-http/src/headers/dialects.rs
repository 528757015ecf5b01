//! The headers of other services, for clients written for those services.
//!
//! Not here: their bodies (`rejection::dialects`).
//!
//! To add a dialect: add a variant in `tollgate_policy`, a function here, and a function in
//! `rejection::dialects` if its clients parse the body.

use tollgate::policy::{Dialect, KeySource};
use tollgate::{Decision, DecisionId, LimitOutcome, Span};

use super::described::{Kind, of_kind};
use super::header_sink::{FieldName, HeaderSink};
use super::{RetryAfter, until_change};

/// Iterates over the dialects of a response: the limit's own dialects first, then the dialects of
/// the policy.
pub(crate) fn spoken<'s>(own: &'s [Dialect], all: &'s [Dialect]) -> impl Iterator<Item = Dialect> + 's {
    own.iter().chain(all.iter().filter(|dialect| !own.contains(dialect))).copied()
}

/// The input of a dialect.
pub(super) struct Answer<'a, 'l> {
    pub(super) decision: &'a Decision<'l>,
    /// The limit that the headers describe.
    pub(super) described: LimitOutcome<'a>,
    pub(super) is_refusal: bool,
    pub(super) id: DecisionId,
    pub(super) retry_after: Option<RetryAfter>,
}

pub(super) fn write(sink: &mut impl HeaderSink, dialect: Dialect, answer: &Answer<'_, '_>) {
    match dialect {
        Dialect::Discord => discord(sink, answer),
        Dialect::OpenAi => openai(sink, answer),
        Dialect::Stripe => stripe(sink, answer),
        Dialect::Aws => aws(sink, answer),
        Dialect::Envoy => envoy(sink, answer),
        Dialect::GitHub => github(sink, answer),
    }
}

/// Writes Discord's headers. `-Reset-After` may have a fraction; `-Bucket` identifies the limit,
/// not the key.
fn discord(sink: &mut impl HeaderSink, answer: &Answer<'_, '_>) {
    static RESET_AFTER: FieldName = FieldName::new("x-ratelimit-reset-after: ");
    static BUCKET: FieldName = FieldName::new("x-ratelimit-bucket: ");
    static SCOPE: FieldName = FieldName::new("x-ratelimit-scope: ");
    static GLOBAL: FieldName = FieldName::new("x-ratelimit-global: ");
    static VIA: FieldName = FieldName::new("via: ");
    sink.text_for(&RESET_AFTER, &seconds(until_change(&answer.described).as_millis_ceil()));
    sink.bytes_for(&BUCKET, &DecisionId(answer.described.rule().id.0).digits());
    if answer.is_refusal {
        let everything = covers_everything(&answer.described);
        // Discord does not hold refusals by a shared limit against the caller.
        let shared = matches!(answer.described.limit().by(), [KeySource::Global]);
        sink.text_for(
            &SCOPE,
            if shared {
                "shared"
            } else if everything {
                "global"
            } else {
                "user"
            },
        );
        if everything {
            sink.text_for(&GLOBAL, "true");
        }
        // `discord.py` treats a 429 without `Via` as a ban at the edge.
        sink.text_for(&VIA, "1.1 tollgate");
    }
}

/// Three headers about the limits of one kind. Resets use Go's duration format: `6m0s`, `20ms`.
struct Family {
    kind: Kind,
    limit: FieldName,
    remaining: FieldName,
    reset: FieldName,
}

static REQUESTS: Family = Family {
    kind: Kind::Requests,
    limit: FieldName::new("x-ratelimit-limit-requests: "),
    remaining: FieldName::new("x-ratelimit-remaining-requests: "),
    reset: FieldName::new("x-ratelimit-reset-requests: "),
};

static TOKENS: Family = Family {
    kind: Kind::Cost,
    limit: FieldName::new("x-ratelimit-limit-tokens: "),
    remaining: FieldName::new("x-ratelimit-remaining-tokens: "),
    reset: FieldName::new("x-ratelimit-reset-tokens: "),
};

/// Writes the headers of `openai`: one family for requests and one for tokens. Limits on cost are reported
/// as tokens.
fn openai(sink: &mut impl HeaderSink, answer: &Answer<'_, '_>) {
    static SHOULD_RETRY: FieldName = FieldName::new("x-should-retry: ");
    static REQUEST_ID: FieldName = FieldName::new("x-request-id: ");
    for family in [&REQUESTS, &TOKENS] {
        let Some(limit) = of_kind(family.kind, answer.decision, answer.described) else { continue };
        sink.number_for(&family.limit, limit.outcome().limit);
        sink.number_for(&family.remaining, limit.outcome().remaining);
        sink.text_for(&family.reset, &go_duration(until_change(&limit)));
    }
    if answer.is_refusal {
        sink.text_for(&SHOULD_RETRY, yes_or_no(answer.retry_after.is_some()));
        sink.bytes_for(&REQUEST_ID, &answer.id.digits());
    }
}

/// Writes the headers that GitHub adds to `X-RateLimit-*` and `Retry-After`.
fn github(sink: &mut impl HeaderSink, answer: &Answer<'_, '_>) {
    static USED: FieldName = FieldName::new("x-ratelimit-used: ");
    static RESOURCE: FieldName = FieldName::new("x-ratelimit-resource: ");
    let outcome = answer.described.outcome();
    sink.number_for(&USED, outcome.limit.saturating_sub(outcome.remaining));
    sink.start(&RESOURCE);
    for byte in answer.described.limit().name().bytes() {
        sink.bytes(&[if byte.is_ascii_graphic() { byte } else { b'?' }]);
    }
    sink.end();
}

/// Writes Stripe's headers. Its clients retry a 429 only if `Stripe-Should-Retry` says so.
fn stripe(sink: &mut impl HeaderSink, answer: &Answer<'_, '_>) {
    static REASON: FieldName = FieldName::new("stripe-rate-limited-reason: ");
    static SHOULD_RETRY: FieldName = FieldName::new("stripe-should-retry: ");
    static REQUEST_ID: FieldName = FieldName::new("request-id: ");
    if answer.is_refusal {
        let slots = Kind::of(&answer.described) == Kind::Slots;
        let reason = match (covers_everything(&answer.described), slots) {
            (true, false) => "global-rate",
            (false, false) => "endpoint-rate",
            (true, true) => "global-concurrency",
            (false, true) => "endpoint-concurrency",
        };
        sink.text_for(&REASON, reason);
        sink.text_for(&SHOULD_RETRY, yes_or_no(answer.retry_after.is_some()));
        sink.bytes_for(&REQUEST_ID, &answer.id.digits());
    }
}

/// Writes the AWS headers. AWS SDKs evaluate the error name and read waits in milliseconds.
fn aws(sink: &mut impl HeaderSink, answer: &Answer<'_, '_>) {
    static ERROR_TYPE: FieldName = FieldName::new("x-amzn-errortype: ");
    static RETRY_AFTER: FieldName = FieldName::new("x-amz-retry-after: ");
    static REQUEST_ID: FieldName = FieldName::new("x-amzn-requestid: ");
    if !answer.is_refusal {
        return;
    }
    // A request that can never pass gets a different error name: SDKs would retry this one.
    if let Some(retry_after) = answer.retry_after {
        sink.text_for(&ERROR_TYPE, "ThrottlingException");
        sink.number_for(&RETRY_AFTER, retry_after.millis());
    } else {
        sink.text_for(&ERROR_TYPE, "ServiceQuotaExceededException");
    }
    sink.bytes_for(&REQUEST_ID, &answer.id.digits());
}

/// Writes Envoy's header, which tells that the limiter refused and not the service.
fn envoy(sink: &mut impl HeaderSink, answer: &Answer<'_, '_>) {
    static RATELIMITED: FieldName = FieldName::new("x-envoy-ratelimited: ");
    if answer.is_refusal {
        sink.text_for(&RATELIMITED, "true");
    }
}

/// Whether every request of a caller counts against this limit.
pub(crate) fn covers_everything(limit: &LimitOutcome<'_>) -> bool {
    let limit = limit.limit();
    let conditions = limit.methods().next().is_some()
        || !limit.hosts().is_empty()
        || !limit.headers().is_empty()
        || !limit.except().is_empty();
    !conditions && limit.endpoints().iter().any(|endpoint| endpoint.to_string() == "/**")
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "true" } else { "false" }
}

/// Formats milliseconds as seconds with a fraction.
pub(crate) fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

/// Formats a Go duration, rounded up to the millisecond below one second and to the second above,
/// as `openai` clients expect.
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
    fn durations_have_the_format_of_go() {
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
