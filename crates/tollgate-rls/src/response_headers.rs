//! The headers that a response asks the proxy to add, and the body of a refusal.
//!
//! `tollgate_http` creates them, as for all responses of Tollgate, so that clients see no
//! difference between a refusal of the gateway and of a proxy.

use http::{HeaderMap, StatusCode};
use tollgate::policy::{HeaderSettings, IetfHeaders, XRateLimit};
use tollgate::{Decision, Limiter, Store};
use tollgate_http::{
    Rejection, RetryAfter, TOLLGATE_PRIORITY, TOLLGATE_SOFT, priority_value, soft_value, write_headers,
};

use crate::response::Answer;

/// The headers that a response asks the proxy to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// The headers of the policy's `headers` section, on every response about a limit.
    All,
    /// On refusals only: `Retry-After`, `Tollgate-Decision` and a body. Envoy can add
    /// `X-RateLimit-*` by itself (`enable_x_ratelimit_headers`).
    Refusals,
    /// No headers and no body.
    Off,
}

/// Adds the headers and the body of a decision to a response.
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
            // Decision IDs are created only for decisions that are reported.
            if decision.limits().len() > 0 || decision.is_degraded() {
                let id = limiter.id_of(decision);
                write_headers(&mut answer.response_headers, decision, id, written, None);
            }
            if let Some(names) = soft_value(decision) {
                answer.request_headers.insert(&TOLLGATE_SOFT, names);
            }
            if let Some(class) = priority_value(decision) {
                answer.request_headers.insert(&TOLLGATE_PRIORITY, class);
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
    let id = limiter.id_of(decision);
    let retry_after = RetryAfter::jittered(decision, settings, || fastrand::u32(..));
    let Some(rejection) = Rejection::of(decision, id, retry_after) else { return };
    // The proxy sets the status: its `rate_limited_status`, 429 by default.
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
