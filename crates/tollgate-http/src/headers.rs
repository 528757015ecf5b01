//! What every limited answer tells about its limits, refused or not.
//!
//! A client that can see what is left slows down before it is refused. Which
//! words it reads differs, so the policy's `headers` section chooses: the
//! `X-RateLimit-*` of most services, the IETF fields, and dialects.
//!
//! Headers with room for one limit describe the one that `described` chooses; `RateLimit` and
//! `RateLimit-Policy` list every limit that applied.
//!
//! All of them speak of the same moment. What they call the reset is the wait of
//! a limit that refused, and else the time until it is as good as unused; of slots,
//! which come back when they come back, a second (`retry_after`). So
//! `Retry-After` never ends before the reset of a limit that refused.
//!
//! `Tollgate-Decision` names the decision, wherever a limit was counted or a
//! caller refused: whoever asks why can quote it. `Tollgate-Degraded` stands beside it
//! where the store gave no answer, and says what was done instead: `local`, `allow` or
//! `deny`, in the words of the metric that counts the same decisions.
//!
//! A header that the service behind wrote under the same name is replaced, not
//! joined: two answers to one question help nobody. Headers that are switched
//! off are left to the service.
//!
//! Not here: status and body (`rejection`).
//!
//! Invariant: only printable ASCII is written, whatever the names are; numbers
//! fit a structured field's 15 digits. Held by `tests/headers.rs`.

mod described;
mod dialects;
mod header_writer;
mod ietf;
mod retry_after;
mod triple;

use http::{HeaderMap, HeaderName};
use tollgate::policy::{Dialect, HeaderSettings, IetfHeaders, XRateLimit};
use tollgate::{Decision, DecisionId, Fate, Timestamp};

use self::described::described;
pub(crate) use self::described::{Kind, is_primary};
pub(crate) use self::dialects::{covers_everything, spoken};
use self::header_writer::HeaderWriter;
pub(crate) use self::header_writer::PreparedHeaders;
use self::retry_after::until_change;
pub use self::retry_after::{RetryAfter, limiting};

static TOLLGATE_DECISION: HeaderName = HeaderName::from_static("tollgate-decision");
static TOLLGATE_DEGRADED: HeaderName = HeaderName::from_static("tollgate-degraded");

/// Writes what a decision says about its limits, and its name.
///
/// Where nothing was to be counted and nobody refused there is nothing to say, and
/// nothing is written. `retry_after` is the wait of a refusal, from
/// [`RetryAfter::of`]: made before, so that a body can say the same.
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
    if let Some(written) = written(decision, id, settings, retry_after) {
        written.set(headers);
    }
}

/// What [`write_headers`] writes, to be set later.
pub(crate) fn written(
    decision: &Decision<'_>,
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
) -> Option<PreparedHeaders> {
    if !is_limited(decision) {
        return None;
    }
    let mut writer = HeaderWriter::new(decision.limits().map(|limit| limit.name().len()).sum());
    if let Some(retry_after) = retry_after {
        retry_after.write(&mut writer);
    }
    if let Some(at) = decision.wall_at() {
        write_limits(&mut writer, decision, id, settings, retry_after, at);
    }
    write_id(&mut writer, id);
    if let Some(instead) = degraded(decision) {
        writer.fixed_for(&TOLLGATE_DEGRADED, instead);
    }
    Some(writer.finish())
}

/// Writes the numbers of the limits that were counted at `at`.
fn write_limits(
    writer: &mut HeaderWriter,
    decision: &Decision<'_>,
    id: DecisionId,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
    at: Timestamp,
) {
    let described = described(decision, settings);
    let own = described.as_ref().map_or(&[][..], |it| it.limit().dialects());
    let dialects = || spoken(own, &settings.dialects);
    if let Some(described) = &described {
        // Whoever speaks like these is read by clients that take a reset for a date.
        let dated = dialects().any(|it| matches!(it, Dialect::Discord | Dialect::GitHub));
        match settings.x_ratelimit {
            XRateLimit::Delta if !dated => {
                triple::X_RATELIMIT.write(writer, described, triple::Reset::Delta);
            }
            XRateLimit::Off if !dated => {}
            _ => triple::X_RATELIMIT.write(writer, described, triple::Reset::Epoch(at)),
        }
    }
    match settings.ietf {
        IetfHeaders::Draft11 => ietf::write_draft_11(writer, decision, at),
        IetfHeaders::Draft6 => {
            if let Some(described) = &described {
                triple::RATELIMIT.write(writer, described, triple::Reset::Delta);
            }
            ietf::write_draft_6_policy(writer, decision, at);
        }
        IetfHeaders::Off => {}
    }
    if let Some(described) = described {
        let is_refusal = decision.fate() == Fate::Refused;
        let answer = dialects::Answer { decision, described, is_refusal, id, retry_after };
        for dialect in dialects() {
            dialects::write(writer, dialect, &answer);
        }
    }
}

/// Whether there is anything to tell: a limit was counted or could not be, or the caller
/// was refused.
pub(crate) fn is_limited(decision: &Decision<'_>) -> bool {
    decision.limits().len() > 0 || !decision.is_allowed() || decision.is_degraded()
}

/// What was done without the store, which gave no answer; `None` where it gave one.
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

fn write_id(writer: &mut HeaderWriter, id: DecisionId) {
    writer.bytes(&id.digits());
    writer.end(&TOLLGATE_DECISION);
}
