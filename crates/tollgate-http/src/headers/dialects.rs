//! The headers of other services, for clients written for those services.
//!
//! Not here: their bodies (`rejection::dialects`).
//!
//! To add a dialect: add a variant in `tollgate_policy`, a function here, and a function in
//! `rejection::dialects` if its clients parse the body.

use http::{HeaderName, header};
use tollgate::policy::{Dialect, KeySource};
use tollgate::{Decision, DecisionId, LimitOutcome, Span};

use super::described::{Kind, of_kind};
use super::{HeaderWriter, RetryAfter, until_change};

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

pub(super) fn write(writer: &mut HeaderWriter, dialect: Dialect, answer: &Answer<'_, '_>) {
    match dialect {
        Dialect::Discord => discord(writer, answer),
        Dialect::OpenAi => openai(writer, answer),
        Dialect::Stripe => stripe(writer, answer),
        Dialect::Aws => aws(writer, answer),
        Dialect::Envoy => envoy(writer, answer),
        Dialect::GitHub => github(writer, answer),
    }
}

/// Writes Discord's headers. `-Reset-After` may have a fraction; `-Bucket` identifies the limit,
/// not the key.
fn discord(writer: &mut HeaderWriter, answer: &Answer<'_, '_>) {
    static RESET_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-reset-after");
    static BUCKET: HeaderName = HeaderName::from_static("x-ratelimit-bucket");
    static SCOPE: HeaderName = HeaderName::from_static("x-ratelimit-scope");
    static GLOBAL: HeaderName = HeaderName::from_static("x-ratelimit-global");
    static VIA: HeaderName = header::VIA;
    writer.raw(&seconds(until_change(&answer.described).as_millis_ceil()));
    writer.end(&RESET_AFTER);
    writer.bytes(&DecisionId(answer.described.rule().id.0).digits());
    writer.end(&BUCKET);
    if answer.is_refusal {
        let everything = covers_everything(&answer.described);
        // Discord does not hold refusals by a shared limit against the caller.
        let shared = matches!(answer.described.limit().by(), [KeySource::Global]);
        writer.fixed_for(
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
            writer.fixed_for(&GLOBAL, "true");
        }
        // `discord.py` treats a 429 without `Via` as a ban at the edge.
        writer.fixed_for(&VIA, "1.1 tollgate");
    }
}

/// Three headers about the limits of one kind. Resets use Go's duration format: `6m0s`, `20ms`.
struct Family {
    kind: Kind,
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

static REQUESTS: Family = Family {
    kind: Kind::Requests,
    limit: HeaderName::from_static("x-ratelimit-limit-requests"),
    remaining: HeaderName::from_static("x-ratelimit-remaining-requests"),
    reset: HeaderName::from_static("x-ratelimit-reset-requests"),
};

static TOKENS: Family = Family {
    kind: Kind::Cost,
    limit: HeaderName::from_static("x-ratelimit-limit-tokens"),
    remaining: HeaderName::from_static("x-ratelimit-remaining-tokens"),
    reset: HeaderName::from_static("x-ratelimit-reset-tokens"),
};

/// Writes the headers of `openai`: one family for requests and one for tokens. Limits on cost are reported
/// as tokens.
fn openai(writer: &mut HeaderWriter, answer: &Answer<'_, '_>) {
    static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
    static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    for family in [&REQUESTS, &TOKENS] {
        let Some(limit) = of_kind(family.kind, answer.decision, answer.described) else { continue };
        writer.number_for(&family.limit, limit.outcome().limit);
        writer.number_for(&family.remaining, limit.outcome().remaining);
        writer.raw(&go_duration(until_change(&limit)));
        writer.end(&family.reset);
    }
    if answer.is_refusal {
        writer.fixed_for(&SHOULD_RETRY, yes_or_no(answer.retry_after.is_some()));
        writer.bytes(&answer.id.digits());
        writer.end(&REQUEST_ID);
    }
}

/// Writes the headers that GitHub adds to `X-RateLimit-*` and `Retry-After`.
fn github(writer: &mut HeaderWriter, answer: &Answer<'_, '_>) {
    static USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
    static RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
    let outcome = answer.described.outcome();
    writer.number_for(&USED, outcome.limit.saturating_sub(outcome.remaining));
    for byte in answer.described.limit().name().bytes() {
        writer.bytes(&[if byte.is_ascii_graphic() { byte } else { b'?' }]);
    }
    writer.end(&RESOURCE);
}

/// Writes Stripe's headers. Its clients retry a 429 only if `Stripe-Should-Retry` says so.
fn stripe(writer: &mut HeaderWriter, answer: &Answer<'_, '_>) {
    static REASON: HeaderName = HeaderName::from_static("stripe-rate-limited-reason");
    static SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
    static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
    if answer.is_refusal {
        let slots = Kind::of(&answer.described) == Kind::Slots;
        let reason = match (covers_everything(&answer.described), slots) {
            (true, false) => "global-rate",
            (false, false) => "endpoint-rate",
            (true, true) => "global-concurrency",
            (false, true) => "endpoint-concurrency",
        };
        writer.fixed_for(&REASON, reason);
        writer.fixed_for(&SHOULD_RETRY, yes_or_no(answer.retry_after.is_some()));
        writer.bytes(&answer.id.digits());
        writer.end(&REQUEST_ID);
    }
}

/// Writes the AWS headers. AWS SDKs evaluate the error name and read waits in milliseconds.
fn aws(writer: &mut HeaderWriter, answer: &Answer<'_, '_>) {
    static ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
    static RETRY_AFTER: HeaderName = HeaderName::from_static("x-amz-retry-after");
    static REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
    if !answer.is_refusal {
        return;
    }
    // A request that can never pass gets a different error name: SDKs would retry this one.
    if let Some(retry_after) = answer.retry_after {
        writer.fixed_for(&ERROR_TYPE, "ThrottlingException");
        writer.number_for(&RETRY_AFTER, retry_after.millis());
    } else {
        writer.fixed_for(&ERROR_TYPE, "ServiceQuotaExceededException");
    }
    writer.bytes(&answer.id.digits());
    writer.end(&REQUEST_ID);
}

/// Writes Envoy's header, which tells that the limiter refused and not the service.
fn envoy(writer: &mut HeaderWriter, answer: &Answer<'_, '_>) {
    static RATELIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");
    if answer.is_refusal {
        writer.fixed_for(&RATELIMITED, "true");
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
