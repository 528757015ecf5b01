//! The rate-limit headers of a response, refused or admitted.
//!
//! A client that sees its remaining quota can slow down before it is refused. Clients read
//! different headers, so the `headers` section of the policy selects them: `X-RateLimit-*`, the
//! IETF fields, and dialects of other services.
//!
//! Headers with room for one limit describe the limit that `described` selects. `RateLimit` and
//! `RateLimit-Policy` list every limit that applied.
//!
//! All headers refer to the same moment. The reset of a limit that refused is its wait. The reset
//! of any other limit is the time until it is nearly unused. For slots, whose release time is
//! unknown, the reset is one second (`retry_after`). Consequently `Retry-After` never ends before
//! the reset of a limit that refused.
//!
//! `Tollgate-Decision` carries the decision ID wherever a limit was counted or a request refused,
//! so that users can quote it in support requests. `Tollgate-Degraded` is added when the store did
//! not answer. Its value is the fallback: `local`, `allow` or `deny`, the same labels as in the
//! metric.
//!
//! A header of the same name from the inner service is replaced, because two conflicting values are
//! useless. Headers that the policy disables are left to the service.
//!
//! Not here: status and body (`rejection`).
//!
//! Invariant: only printable ASCII is written, whatever the limits are named; numbers fit the 15
//! digits of a structured field. `tests/headers.rs` checks this.

mod decimal;
mod described;
mod dialects;
mod header_sink;
mod ietf;
mod line_sink;
mod map_sink;
mod retry_after;
mod triple;

use http::HeaderMap;
use tollgate::policy::{Dialect, HeaderSettings, IetfHeaders, XRateLimit};
use tollgate::{Decision, DecisionId, Fate, Timestamp};

use self::described::described;
pub(crate) use self::described::{Kind, is_primary};
pub(crate) use self::dialects::{covers_everything, spoken};
pub(crate) use self::header_sink::push_number;
use self::header_sink::{FieldName, HeaderSink};
use self::ietf::Draft11;
pub(crate) use self::line_sink::{LineSink, NameLengths, find_line};
pub(crate) use self::map_sink::MapSink;
pub use self::retry_after::RetryAfter;
use self::retry_after::until_change;

static TOLLGATE_DECISION: FieldName = FieldName::new("tollgate-decision: ");
static TOLLGATE_DEGRADED: FieldName = FieldName::new("tollgate-degraded: ");

/// Writes the rate-limit headers of a decision, including its ID.
///
/// Writes nothing if no limit was counted and the request was not refused. `retry_after` is the
/// wait of a refusal, from [`RetryAfter::of`]. It is computed beforehand so that the body can state
/// the same value.
///
/// ```
/// # use http::HeaderMap;
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::write_headers;
/// let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 5/minute}]")?;
/// let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
/// let mut headers = HeaderMap::new();
/// let id = limiter.id_of(&decision);
/// write_headers(&mut headers, &decision, id, limiter.policy().headers(), None);
/// assert_eq!(headers["x-ratelimit-remaining"], "4");
/// assert_eq!(headers["ratelimit-policy"], r#""api";q=5;w=60"#);
/// assert_eq!(headers["ratelimit"], r#""api";r=4;t=12"#);
/// assert_eq!(headers["tollgate-decision"], id.to_string());
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn write_headers(
    headers: &mut HeaderMap,
    decision: &Decision<'_>,
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
) {
    if is_limited(decision) {
        // Set where they were written: they are too large to move.
        let mut sink = MapSink::new();
        write(&mut sink, decision, id, settings, retry_after);
        sink.set(headers);
    }
}

/// Prepares the headers of [`write_headers`] for setting them later.
pub(crate) fn written(
    decision: &Decision<'_>,
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
) -> Option<MapSink> {
    if !is_limited(decision) {
        return None;
    }
    let mut sink = MapSink::new();
    write(&mut sink, decision, id, settings, retry_after);
    Some(sink)
}

/// Appends the headers of [`write_headers`] to `out` as lines of HTTP/1.1, for a decision that
/// [`is_limited`]. Returns the lengths of their names.
pub(crate) fn write_lines(
    out: &mut Vec<u8>,
    decision: &Decision<'_>,
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
) -> NameLengths {
    let mut sink = LineSink::new(out);
    write(&mut sink, decision, id, settings, retry_after);
    sink.lengths()
}

/// Writes the headers of a response with rate-limit headers.
fn write(
    sink: &mut impl HeaderSink,
    decision: &Decision<'_>,
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
) {
    match decision.wall_at() {
        None => {
            if let Some(retry_after) = retry_after {
                retry_after.write(sink);
            }
        }
        Some(at) if settings.ietf == IetfHeaders::Draft11 => Draft11::with(decision, at, |draft_11| {
            draft_11.write_policy(sink);
            write_limits(sink, (decision, Some(draft_11)), id, settings, retry_after, at);
        }),
        Some(at) => write_limits(sink, (decision, None), id, settings, retry_after, at),
    }
    sink.bytes_for(&TOLLGATE_DECISION, &id.digits());
    if let Some(instead) = degraded(decision) {
        sink.text_for(&TOLLGATE_DEGRADED, instead);
    }
}

/// Writes the headers of the limits that were counted at `at`, after the wait of a refusal.
fn write_limits(
    sink: &mut impl HeaderSink,
    (decision, draft_11): (&Decision<'_>, Option<&Draft11<'_, '_>>),
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
    at: Timestamp,
) {
    if let Some(retry_after) = retry_after {
        retry_after.write(sink);
    }
    let described = described(decision, settings);
    let own = described.as_ref().map_or(&[][..], |it| it.limit().dialects());
    let dialects = || spoken(own, &settings.dialects);
    if let Some(described) = &described {
        // Clients of these dialects read the reset as a date.
        let dated = dialects().any(|it| matches!(it, Dialect::Discord | Dialect::GitHub));
        match settings.x_ratelimit {
            XRateLimit::Delta if !dated => {
                triple::X_RATELIMIT.write(sink, described, triple::Reset::Delta);
            }
            XRateLimit::Off if !dated => {}
            _ => triple::X_RATELIMIT.write(sink, described, triple::Reset::Epoch(at)),
        }
    }
    match settings.ietf {
        IetfHeaders::Draft11 => {
            if let Some(draft_11) = draft_11 {
                draft_11.write_limits(sink);
            }
        }
        IetfHeaders::Draft6 => {
            if let Some(described) = &described {
                triple::RATELIMIT.write(sink, described, triple::Reset::Delta);
            }
            ietf::write_draft_6_policy(sink, decision, at);
        }
        IetfHeaders::Off => {}
    }
    if let Some(described) = described {
        // A request that was admitted with a wait and cannot wait is refused, too.
        let has_no_place = decision.is_allowed() && retry_after.is_some();
        let is_refusal = matches!(decision.fate(), Fate::Refused) || has_no_place;
        let answer = dialects::Answer { decision, described, is_refusal, id, retry_after };
        for dialect in dialects() {
            dialects::write(sink, dialect, &answer);
        }
    }
}

/// Whether the response gets rate-limit headers: a limit was counted or could not be counted, or
/// the request was refused.
pub(crate) fn is_limited(decision: &Decision<'_>) -> bool {
    decision.limits().len() > 0 || !decision.is_allowed() || decision.is_degraded()
}

/// The fallback that was used because the store did not answer; `None` if the store answered.
fn degraded(decision: &Decision<'_>) -> Option<&'static str> {
    if !decision.is_degraded() {
        return None;
    }
    Some(match decision.fate() {
        Fate::Uncountable => "deny",
        _ if decision.limits().len() > 0 => "local",
        _ => "allow",
    })
}
