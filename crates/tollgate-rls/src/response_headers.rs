//! The headers that an answer asks the proxy to add, and the body of a refusal.
//!
//! Worded by `tollgate_http`, as all answers of Tollgate are: a client cannot tell whether
//! a gateway or a proxy that asked refused it.

use http::{HeaderMap, StatusCode};
use tollgate::policy::{HeaderSettings, IetfHeaders, XRateLimit};
use tollgate::{Decision, Limiter, Store};
use tollgate_http::{Rejection, RetryAfter, TOLLGATE_SOFT, soft_value, write_headers};

use crate::response::Answer;

/// Which headers an answer asks the proxy to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// What the policy's `headers` say, on every answer about a limit.
    All,
    /// On refusals only `Retry-After`, `Tollgate-Decision` and a body that explains: Envoy can
    /// add `X-RateLimit-*` by itself (`enable_x_ratelimit_headers`).
    Refusals,
    /// None, and no body.
    Off,
}

/// Adds to an answer what is said of this decision.
pub(crate) fn add<S: Store>(
    answer: &mut Answer<'_>,
    limiter: &Limiter<S>,
    decision: &Decision<'_>,
    headers: Headers,
) {
    if headers == Headers::Off {
        return;
    }
    let written = limiter.policy().headers();
    if decision.is_allowed() {
        if headers == Headers::All {
            // A name is made only for what is told of.
            if decision.limits().len() > 0 || decision.is_degraded() {
                let id = limiter.id_of(decision);
                write_headers(&mut answer.response_headers, decision, id, written, None);
            }
            if let Some(names) = soft_value(decision) {
                answer.request_headers.insert(&TOLLGATE_SOFT, names);
            }
        }
        return;
    }
    let bare;
    let settings = if headers == Headers::All {
        written
    } else {
        bare = without_limits(written);
        &bare
    };
    let jitter = settings.retry_after_jitter;
    let rng = if jitter > 0 { fastrand::u32(..) } else { 0 };
    let id = limiter.id_of(decision);
    let Some(rejection) = Rejection::of(decision, id, RetryAfter::of(decision, jitter, rng)) else { return };
    // The status is the proxy's: its `rate_limited_status`, which is 429 unless it says otherwise.
    let rejection = rejection.with_status(StatusCode::TOO_MANY_REQUESTS);
    let (parts, body) = rejection.response(&HeaderMap::new(), settings).into_parts();
    answer.response_headers = parts.headers;
    rejection.write_headers(&mut answer.response_headers, settings);
    answer.raw_body = body;
}

fn without_limits(settings: &HeaderSettings) -> HeaderSettings {
    HeaderSettings {
        x_ratelimit: XRateLimit::Off,
        ietf: IetfHeaders::Off,
        dialects: Vec::new(),
        retry_after_jitter: settings.retry_after_jitter,
        describe: Vec::new(),
    }
}
