//! Envoy's external authorization: `envoy.service.auth.v3.Authorization/Check`.
//!
//! The limits on paths decide about the request that Envoy describes, as forward auth does. The answer has
//! the headers, the status and the body that the gateway would send, and the decision as dynamic metadata.
//!
//! - The client is the peer that Envoy saw (`source`). If it is one of `client.trusted_proxies`, the
//!   forwarding header names the client.
//! - Slots are read and not held, because the end of the request is not reported.
//! - The answer to a request that has to wait in a queue is held within the `grpc-timeout` (`held`).
//! - `Tollgate-*` headers of the client are removed or overwritten: the service can trust them.
//!
//! A request that cannot be read is denied, and not answered by an error: Envoy may let requests pass
//! whose call fails (`failure_mode_allow`). A call without a request is an error.
//!
//! Not here: the HTTP form of external authorization, which is forward auth (`tollgate_server`).

mod request;
mod response;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use tollgate::{Clock as _, Decision, Input, Limiter, NotHeld, Store};
use tollgate_grpc::GrpcBody;
use tollgate_grpc::call::{self as grpc, Refusal, read_message};
use tollgate_http::{
    Rejection, RetryAfter, TOLLGATE_PRIORITY, TOLLGATE_SOFT, client_address, priority_value, soft_value,
    write_headers,
};

use self::request::{CheckRequest, DescribedRequest};
use self::response::{CheckResponse, Verdict};
use crate::counters::Surface;
use crate::held::{CallTimeout, GrpcTimeout, NotStarted, waiting_for_store};
use crate::service::Inner;

pub(crate) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

impl<S: Store> Inner<S> {
    /// Answers a call of `Check`.
    pub(crate) async fn authorize<B: Body>(
        &self,
        body: B,
        headers: &HeaderMap,
    ) -> Result<Response<GrpcBody>, Refusal> {
        let message = read_message(body).await?;
        let described = CheckRequest::read(&message)?;
        let limiter = self.limiter.load();
        let (response, denied) = match described.into_request() {
            Ok(described) => {
                let call = self.decide_described(&limiter, described, headers);
                waiting_for_store(&limiter, GrpcTimeout::of(headers), call).await
            }
            Err(unreadable) => {
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                (CheckResponse::unreadable(status, &unreadable).framed(), true)
            }
        };
        self.counters().answered(Surface::Authorization, denied);
        Ok(grpc::response(GrpcBody::message(response)))
    }

    /// Decides about a request, and returns the encoded response when it may be sent.
    async fn decide_described(
        &self,
        limiter: &Limiter<S>,
        described: DescribedRequest<'_>,
        headers: &HeaderMap,
    ) -> (Bytes, bool) {
        let started_at = self.clock.now();
        let client = client_address(described.peer, &described.headers, limiter.policy().client());
        let request = described.with_client(client);
        let mut decision = limiter.decide_without_slots(&request).await;
        let spent = self.clock.now().since(started_at).into();
        let timeout = CallTimeout::Grpc(GrpcTimeout::of(headers));
        let input: &(dyn Input + Sync) = &request;
        let hold = self.held.hold(limiter, (Some(input), &mut decision), timeout, spent).await;
        let answer = respond(limiter, &decision, &request.headers);
        if let Some(hold) = hold
            && let Err(reason) = hold.await
        {
            match reason {
                NotStarted::ShuttingDown => decision.refuse_wait(Duration::ZERO),
                NotStarted::Displaced => {
                    limiter.refuse_wait(Some(&request), &mut decision, Duration::ZERO, NotHeld::Displaced);
                }
            }
            return (respond(limiter, &decision, &request.headers).framed(), true);
        }
        (answer.framed(), !decision.is_allowed())
    }
}

/// Creates the response to a decision.
fn respond<S: Store>(limiter: &Limiter<S>, decision: &Decision<'_>, request: &HeaderMap) -> CheckResponse {
    let (id, settings) = (limiter.id_of(decision), limiter.policy().headers());
    let retry_after = RetryAfter::jittered(decision, settings, || fastrand::u32(..));
    let metadata = response::metadata(decision, id);
    if let Some(rejection) = Rejection::of(decision, id, retry_after) {
        let mut response = rejection.response(request, settings);
        rejection.write_headers(response.headers_mut(), settings);
        let detail = rejection.detail().to_owned();
        return CheckResponse { verdict: Verdict::Denied { response, detail }, metadata };
    }
    let (mut to_client, mut to_service) = (HeaderMap::new(), HeaderMap::new());
    write_headers(&mut to_client, decision, id, settings, None);
    if let Some(names) = soft_value(decision) {
        to_service.insert(&TOLLGATE_SOFT, names);
    }
    if let Some(class) = priority_value(decision) {
        to_service.insert(&TOLLGATE_PRIORITY, class);
    }
    let is_forged = |name: &&http::HeaderName| {
        let text = name.as_str().replace('_', "-");
        text.starts_with("tollgate-") && !to_service.contains_key(*name)
    };
    let removed = request.keys().filter(is_forged).cloned().collect();
    CheckResponse { verdict: Verdict::Allowed { to_client, to_service, removed }, metadata }
}
