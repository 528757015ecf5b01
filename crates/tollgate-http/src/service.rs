//! A service behind a limiter: the life of a request.
//!
//! ```text
//! settle the client's address → decide ─┬─ refused ──► word it; the service is never called
//!                                       ├─ no answer ► outage
//!                                       └─ allowed ──► call the service → add headers → answer
//!                                                      └ slots, if any, go with the body ┘
//! ```
//!
//! The limiter is taken once and kept: the policy that decides also words.
//!
//! Layers can be stacked. Of an answer that one further in refused, that one has
//! told everything: an outer layer with plenty left adds no headers, or its
//! `X-RateLimit-Remaining: 99` would stand on a 429.
//!
//! One allocation for each request, its future: the futures of stores have no
//! name that could be written here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tollgate::policy::HeaderSettings;
use tollgate::{Decision, MemoryStore, Store};
use tower_service::Service;

use crate::body::LimitBody;
use crate::client_address::client_address;
use crate::headers::{RetryAfter, write_headers};
use crate::layer::Wiring;
use crate::outage::Outage;
use crate::rejection::Rejection;
use crate::slots::HeldSlots;
use crate::view::HttpRequest;

/// Marks an answer, in its extensions, that a layer refused.
#[derive(Clone, Copy)]
struct Refused;

/// A service behind a limiter. Made by [`LimitLayer`](crate::LimitLayer).
///
/// It is ready when the service behind it is, although a refusal does not need
/// that one: what will be refused is not known before it arrives.
pub struct Limit<Inner, S = MemoryStore> {
    inner: Inner,
    wiring: Arc<Wiring<S>>,
}

impl<Inner, S> Limit<Inner, S> {
    pub(crate) const fn new(inner: Inner, wiring: Arc<Wiring<S>>) -> Self {
        Self { inner, wiring }
    }
}

impl<Inner: Clone, S> Clone for Limit<Inner, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), wiring: Arc::clone(&self.wiring) }
    }
}

impl<Inner, S, B, R> Service<Request<B>> for Limit<Inner, S>
where
    Inner: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    Inner::Future: Send,
    S: Store,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<LimitBody<R>>;
    type Error = Inner::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was found ready goes with the request; a clone need not be.
        let fresh = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, fresh);
        Box::pin(serve(Arc::clone(&self.wiring), ready, request))
    }
}

async fn serve<Inner, S, B, R>(
    wiring: Arc<Wiring<S>>,
    mut inner: Inner,
    request: Request<B>,
) -> Result<Response<LimitBody<R>>, Inner::Error>
where
    Inner: Service<Request<B>, Response = Response<R>>,
    S: Store,
{
    let limiter = wiring.limiter.load();
    let policy = limiter.policy();
    let (parts, body) = request.into_parts();
    let peer = (wiring.find_peer)(&parts);
    let client = client_address(peer, &parts.headers, policy.client());
    let view = HttpRequest::new(&parts, client);

    let decision = match limiter.decide(&view).await {
        Ok(decision) => Some(decision),
        Err(_no_answer) => match Outage::of(policy, &view) {
            Outage::Passes => None,
            outage => return Ok(wiring.refuse_in(outage, &parts, policy.headers())),
        },
    };
    if let Some(decision) = &decision {
        let retry_after = wiring.retry_after(decision, policy.headers());
        if let Some(rejection) = Rejection::of(decision, retry_after) {
            return Ok(wiring.refuse(&rejection, &parts, policy.headers()));
        }
    }

    let spawn = wiring.spawn.as_ref();
    let slots = decision.as_ref().and_then(|decision| HeldSlots::of(&limiter, decision, spawn));
    let mut response = inner.call(Request::from_parts(parts, body)).await?;
    if let Some(decision) = &decision
        && response.extensions().get::<Refused>().is_none()
    {
        write_headers(response.headers_mut(), decision, policy.headers(), None);
    }
    Ok(response.map(|body| LimitBody::admitted(body, slots)))
}

impl<S> Wiring<S> {
    fn retry_after(&self, decision: &Decision<'_>, settings: &HeaderSettings) -> Option<RetryAfter> {
        if decision.is_allowed() {
            return None;
        }
        let jitter = settings.retry_after_jitter;
        let dice = if jitter > 0 { (self.dice)() } else { 0 };
        RetryAfter::of(decision, jitter, dice)
    }

    fn refuse<R>(
        &self,
        rejection: &Rejection<'_, '_>,
        parts: &Parts,
        settings: &HeaderSettings,
    ) -> Response<LimitBody<R>> {
        let mut response: Response<Bytes> = match &self.word {
            Some(word) => word(rejection, parts),
            None => rejection.response(&parts.headers),
        };
        rejection.write_headers(response.headers_mut(), settings);
        response.extensions_mut().insert(Refused);
        response.map(LimitBody::refused)
    }

    fn refuse_in<R>(
        &self,
        outage: Outage<'_>,
        parts: &Parts,
        settings: &HeaderSettings,
    ) -> Response<LimitBody<R>> {
        let rejection = match outage {
            Outage::Uncounted(fate) => Rejection::uncounted(fate),
            Outage::Denied(limits) => Some(Rejection::by_outage(&limits)),
            Outage::Passes => None,
        };
        let rejection = rejection.unwrap_or_else(|| Rejection::by_outage(&[]));
        self.refuse(&rejection, parts, settings)
    }
}
