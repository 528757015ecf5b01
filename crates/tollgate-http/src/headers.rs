//! What every limited answer tells about its limits, refused or not.
//!
//! A client that can see what is left slows down before it is refused. Which
//! words it reads differs, so the policy's `headers` section chooses: the
//! `X-RateLimit-*` of most services, the IETF fields, and dialects.
//!
//! All of them speak of the same moment. What they call the reset is the wait of
//! a limit that refused, and else the time until it is as good as unused; of slots,
//! which come back when they come back, a second (`retry_after`). So
//! `Retry-After` never ends before the reset of a limit that refused.
//!
//! A header that the service behind wrote under the same name is replaced, not
//! joined: two answers to one question help nobody. Headers that are switched
//! off are left to the service.
//!
//! Not here: status and body (`rejection`).
//!
//! Invariant: only printable ASCII is written, whatever the names are; numbers
//! fit a structured field's 15 digits. Held by `tests/headers.rs`.

mod dialects;
mod ietf;
mod retry_after;
mod triple;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::Decision;
use tollgate::policy::{HeaderSettings, IetfHeaders, XRateLimit};

pub use self::retry_after::RetryAfter;
pub(crate) use self::retry_after::decider;
use self::retry_after::until_change;

/// Writes what a decision says about its limits.
///
/// `retry_after` is the wait of a refusal, from [`RetryAfter::of`]: made before,
/// so that a body can say the same.
///
/// ```
/// # use http::HeaderMap;
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::write_headers;
/// let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 5/minute}]")?;
/// let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
/// let mut headers = HeaderMap::new();
/// write_headers(&mut headers, &decision, limiter.policy().headers(), None);
/// assert_eq!(headers["x-ratelimit-remaining"], "4");
/// assert_eq!(headers["ratelimit-policy"], r#""api";q=5;w=60"#);
/// assert_eq!(headers["ratelimit"], r#""api";r=4;t=12"#);
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn write_headers(
    headers: &mut HeaderMap,
    decision: &Decision<'_>,
    settings: &HeaderSettings,
    retry_after: Option<RetryAfter>,
) {
    if let Some(retry_after) = retry_after {
        retry_after.write(headers);
    }
    let (Some(decider), Some(at)) = (decider(decision), decision.at()) else { return };
    match settings.x_ratelimit {
        XRateLimit::Epoch => triple::X_RATELIMIT.write(headers, &decider, triple::Reset::Epoch(at)),
        XRateLimit::Delta => triple::X_RATELIMIT.write(headers, &decider, triple::Reset::Delta),
        XRateLimit::Off => {}
    }
    match settings.ietf {
        IetfHeaders::Draft11 => ietf::write_draft_11(headers, decision),
        IetfHeaders::Draft6 => {
            triple::RATELIMIT.write(headers, &decider, triple::Reset::Delta);
            ietf::write_draft_6_policy(headers, decision);
        }
        IetfHeaders::Off => {}
    }
    for dialect in &settings.dialects {
        dialects::write(headers, *dialect, decision, &decider, retry_after);
    }
}

/// Sets one header, in place of any of that name.
///
/// A map that is full (32,768 headers, from a service gone mad) stays as it is:
/// the alternative is a panic.
fn put(headers: &mut HeaderMap, name: &'static HeaderName, value: HeaderValue) {
    let _full = headers.try_insert(name, value);
}
