//! Limit, remaining and reset as three headers, in the dialects that have them.
//!
//! `X-RateLimit-Reset` is seconds since 1970 for GitHub, X and Discord, and seconds from now for Envoy. A number
//! above [`MIN_EPOCH_SECS`] is a date: as a delay it would be longer than thirty years.

use http::HeaderMap;
use tollgate::{Span, Timestamp};

use super::number::{decimal, duration, integer};
use super::{BucketName, BucketReport, Reset, Shape, text};

/// The smallest number of seconds that is read as a date: September 2001.
const MIN_EPOCH_SECS: u64 = 1_000_000_000;
/// The smallest number that is read as a date in milliseconds.
const MIN_EPOCH_MILLIS: u64 = 1_000_000_000_000;
const SECOND_US: u64 = 1_000_000;

/// Reads `X-RateLimit-*` with the additions of GitHub and Discord, `X-Rate-Limit-*` and `RateLimit-*`.
pub(super) fn read(headers: &HeaderMap) -> Option<BucketReport<'_>> {
    let by = |limit, remaining, reset| {
        let limit = text(headers, limit).and_then(leading_integer);
        let remaining = text(headers, remaining).and_then(integer);
        let reset = text(headers, reset).and_then(reset_of);
        (limit.is_some() || remaining.is_some()).then_some((limit, remaining, reset))
    };
    let x = by("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset");
    let x = x.or_else(|| by("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"));
    let (limit, remaining, reset) =
        x.or_else(|| by("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"))?;
    let after = text(headers, "x-ratelimit-reset-after").and_then(|it| decimal(it, SECOND_US));
    let (mut name, mut shape) = (BucketName::Route(""), None);
    if let Some(bucket) = text(headers, "x-ratelimit-bucket") {
        (name, shape) = (BucketName::PerResource(bucket), Some(Shape::Window));
    } else if let Some(resource) = text(headers, "x-ratelimit-resource") {
        (name, shape) = (BucketName::Shared(resource.into()), Some(Shape::Window));
    }
    let reset = after.map(Reset::After).or(reset);
    Some(BucketReport { limit, remaining, reset, shape, ..BucketReport::new(name) })
}

/// Reads one family of `OpenAI`'s headers, such as `requests`. Their buckets refill continuously.
pub(super) fn read_family<'h>(headers: &HeaderMap, family: &OpenAiFamily) -> Option<BucketReport<'h>> {
    let limit = text(headers, family.limit).and_then(integer)?;
    let remaining = text(headers, family.remaining).and_then(integer)?;
    let reset = text(headers, family.reset).and_then(duration).map(Reset::After);
    Some(BucketReport {
        limit: Some(limit),
        remaining: Some(remaining),
        reset,
        shape: Some(Shape::Refill),
        kind: family.kind,
        is_precise: true,
        ..BucketReport::new(BucketName::Route(family.name))
    })
}

/// The headers of one of `OpenAI`'s limits.
pub(super) struct OpenAiFamily {
    name: &'static str,
    kind: super::BucketKind,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
}

pub(super) static OPENAI: [OpenAiFamily; 2] = [
    OpenAiFamily {
        name: "requests",
        kind: super::BucketKind::Requests,
        limit: "x-ratelimit-limit-requests",
        remaining: "x-ratelimit-remaining-requests",
        reset: "x-ratelimit-reset-requests",
    },
    OpenAiFamily {
        name: "tokens",
        kind: super::BucketKind::Tokens,
        limit: "x-ratelimit-limit-tokens",
        remaining: "x-ratelimit-remaining-tokens",
        reset: "x-ratelimit-reset-tokens",
    },
];

/// Returns the first number of `10, 10;w=1, 1000;w=3600`, which is the limit that expires next.
fn leading_integer(text: &str) -> Option<u64> {
    text.split([',', ';']).next().and_then(integer)
}

fn reset_of(text: &str) -> Option<Reset> {
    let Some(span) = decimal(text, SECOND_US) else {
        return duration(text).map(Reset::After);
    };
    let whole = text.trim().split('.').next().and_then(integer)?;
    Some(if whole >= MIN_EPOCH_MILLIS {
        Reset::At(Timestamp::EPOCH + Span::from_millis(whole))
    } else if whole >= MIN_EPOCH_SECS {
        Reset::At(Timestamp::EPOCH + span)
    } else {
        Reset::After(span)
    })
}
