//! Requests that a gateway admits and does not send, because the service behind it rejects most requests.
//!
//! The gateway finds that out after the decision, when it has chosen an upstream. The layer therefore puts an
//! [`AdmittedRequest`] into the extensions of the request, so that the refusal has the id of the decision and
//! `tollgate explain` shows the refusal. It does so only if the policy has a throttle.

use std::net::IpAddr;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tollgate::{Decision, DecisionId, Limiter, Mode, PriorityClass, Store, ThrottleShed};

use crate::deferred::{NotForwarded, Unmeasured};
use crate::headers::RetryAfter;
use crate::rejection::Rejection;
use crate::view::HttpRequest;

/// The decision about an admitted request, in the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedRequest {
    id: DecisionId,
    /// Whether a limit applied to the request.
    is_limited: bool,
    client: Option<IpAddr>,
}

impl AdmittedRequest {
    /// Returns `None` unless the policy has a throttle that may refuse the request.
    pub(crate) fn of<S>(
        limiter: &Limiter<S>,
        decision: &Decision<'_>,
        client: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<Box<Self>> {
        if limiter.policy().throttle_mode() != Some(Mode::Enforce) {
            return None;
        }
        let is_limited = decision.is_limited();
        Some(Box::new(Self { id: limiter.id_of(decision), is_limited, client: client() }))
    }
}

/// Refuses a request that was admitted, because the service behind rejects most requests, and reports that to
/// the observer. The response is that of a shed request: 503 with `Retry-After`. It is not measured, and costs
/// that are settled are refunded.
pub fn throttled_response<S: Store>(
    limiter: &Limiter<S>,
    request: &Parts,
    (admitted, priority): (Option<AdmittedRequest>, Option<&PriorityClass>),
    shed: ThrottleShed,
) -> Response<Bytes> {
    let view = HttpRequest::new(request, admitted.and_then(|it| it.client));
    let priority = priority.and_then(|class| limiter.policy().priorities().get(usize::from(class.rank())));
    let admission = admitted.map(|it| (it.id, it.is_limited));
    let decision = limiter.refuse_throttled(&view, admission, priority, shed);
    let (id, settings) = (limiter.id_of(&decision), limiter.policy().headers());
    let retry_after = RetryAfter::jittered(&decision, settings, || fastrand::u32(..));
    let mut response = Response::default();
    if let Some(rejection) = Rejection::of(&decision, id, retry_after) {
        response = rejection.response(&request.headers, settings);
        rejection.write_headers(response.headers_mut(), settings);
    }
    response.extensions_mut().insert(NotForwarded);
    response.extensions_mut().insert(Unmeasured);
    response
}
