//! The service behind a limiter: the path of a request.
//!
//! ```text
//! find the client's address → decide ─┬─ refused ──► refusal; the inner service is not called
//!                                     └─ allowed ──► call the service → add headers → response
//!                       over a soft threshold? ┘   └ deferred work travels with the body ┘
//!                             delayed and marked
//! ```
//!
//! A request loads the limiter once, so one policy decides and writes the response.
//!
//! Layers can be stacked. If an inner layer refused, the outer layer adds no headers: its
//! `X-RateLimit-Remaining: 99` would contradict the 429.
//!
//! If the store answers without waiting, the headers are prepared before the inner service is
//! called, because a decision is too large to keep with the request. A future is boxed only if the
//! store has to be awaited or the request is delayed.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tollgate::policy::HeaderSettings;
use tollgate::{Decision, Limiter, MemoryStore, Store};
use tower_service::Service;

use crate::body::LimitBody;
use crate::client_address::client_address;
use crate::deferred::Deferred;
use crate::future::{AdmittedContext, Conclusion, LimitFuture, RefusalMarker};
use crate::headers::{RetryAfter, is_limited, written};
use crate::layer::Wiring;
use crate::rejection::Rejection;
use crate::soft::{Soft, remove_client_marks};
use crate::tarpit::TarpitWait;
use crate::view::HttpRequest;

/// A service behind a limiter, created by [`LimitLayer`](crate::LimitLayer).
///
/// It is ready when the inner service is ready. A refusal does not need the inner service, but
/// readiness is polled before the request is known.
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

impl<Inner: fmt::Debug, S> fmt::Debug for Limit<Inner, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("inner", &self.inner).finish_non_exhaustive()
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
    type Future = LimitFuture<Inner::Future, R, Inner::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Calls the instance that was polled ready; a clone may not be ready.
        let fresh = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        let (limiter, (mut parts, body)) = (self.wiring.limiter.load(), request.into_parts());
        // Removed before the decision, so that no limit counts by a header that the service will
        // not see.
        remove_client_marks(&mut parts);
        let view = self.wiring.view(&limiter, &parts);
        let concluded =
            limiter.try_decide(&view, |decision| self.wiring.conclude(&limiter, decision, &parts));
        match concluded {
            Some(Conclusion::Passes(mut passing)) => {
                passing.prepare(&mut parts);
                LimitFuture::admitted_context(ready.call(Request::from_parts(parts, body)), passing)
            }
            Some(Conclusion::SoftDelayed(softened)) => {
                let (mut passing, soft) = *softened;
                passing.prepare(&mut parts);
                let waiting = self.wiring.soften(soft, &mut parts);
                let request = Request::from_parts(parts, body);
                match waiting {
                    None => LimitFuture::admitted_context(ready.call(request), passing),
                    Some(waiting) => LimitFuture::waiting(Box::pin(held(waiting, ready, request, passing))),
                }
            }
            Some(Conclusion::Refused(refusal)) => LimitFuture::refused(refusal),
            None => {
                let request = Request::from_parts(parts, body);
                LimitFuture::waiting(Box::pin(serve(Arc::clone(&self.wiring), limiter, ready, request)))
            }
        }
    }
}

/// Serves a request when the store has to be awaited.
async fn serve<Inner, S, B, R>(
    wiring: Arc<Wiring<S>>,
    limiter: Arc<Limiter<S>>,
    mut inner: Inner,
    request: Request<B>,
) -> Result<Response<LimitBody<R>>, Inner::Error>
where
    Inner: Service<Request<B>, Response = Response<R>>,
    S: Store,
{
    let (mut parts, body) = request.into_parts();
    let view = wiring.view(&limiter, &parts);
    let decision = limiter.decide(&view).await;
    let concluded = wiring.conclude(&limiter, &decision, &parts);
    drop(decision);
    match concluded {
        Conclusion::Passes(mut passing) => {
            passing.prepare(&mut parts);
            LimitFuture::admitted_context(inner.call(Request::from_parts(parts, body)), passing).await
        }
        Conclusion::SoftDelayed(softened) => {
            let (mut passing, soft) = *softened;
            passing.prepare(&mut parts);
            if let Some(waiting) = wiring.soften(soft, &mut parts) {
                waiting.over().await;
            }
            LimitFuture::admitted_context(inner.call(Request::from_parts(parts, body)), passing).await
        }
        Conclusion::Refused(refusal) => Ok(refusal.map(LimitBody::refused)),
    }
}

/// Serves a request that is delayed first.
async fn held<Inner, B, R>(
    waiting: TarpitWait,
    mut inner: Inner,
    request: Request<B>,
    passing: AdmittedContext,
) -> Result<Response<LimitBody<R>>, Inner::Error>
where
    Inner: Service<Request<B>, Response = Response<R>>,
{
    waiting.over().await;
    LimitFuture::admitted_context(inner.call(request), passing).await
}

impl<S: Store> Wiring<S> {
    /// Determines the outcome of a decision for its request.
    fn conclude(&self, limiter: &Arc<Limiter<S>>, decision: &Decision<'_>, parts: &Parts) -> Conclusion {
        if !is_limited(decision) {
            return Conclusion::Passes(AdmittedContext::default());
        }
        let (id, settings) = (limiter.id_of(decision), limiter.policy().headers());
        if let Some(rejection) = Rejection::of(decision, id, self.retry_after(decision, settings)) {
            return Conclusion::Refused(self.refuse(&rejection, parts, settings));
        }
        let passing = AdmittedContext {
            written: written(decision, id, settings, None),
            deferred: Deferred::of(
                limiter,
                decision,
                (&self.limiter, &self.clock, self.spawn.as_ref()),
                parts.extensions.get(),
            ),
        };
        match Soft::of(decision) {
            None => Conclusion::Passes(passing),
            Some(soft) => Conclusion::SoftDelayed(Box::new((passing, soft))),
        }
    }
}

impl<S> Wiring<S> {
    fn view<'r>(&self, limiter: &Limiter<S>, parts: &'r Parts) -> HttpRequest<'r> {
        let peer = (self.find_peer)(parts);
        HttpRequest::new(parts, client_address(peer, &parts.headers, limiter.policy().client()))
    }

    /// Marks a request and enters the tarpit if it is to be delayed.
    fn soften(&self, soft: Soft, parts: &mut Parts) -> Option<TarpitWait> {
        let time = soft.tarpit;
        let waiting = self.tarpit.as_ref().and_then(|tarpit| tarpit.enter(time));
        soft.mark(parts, if waiting.is_some() { time } else { Duration::ZERO });
        waiting
    }

    fn retry_after(&self, decision: &Decision<'_>, settings: &HeaderSettings) -> Option<RetryAfter> {
        if decision.is_allowed() {
            return None;
        }
        let jitter = settings.retry_after_jitter;
        let rng = if jitter > 0 { (self.rng)() } else { 0 };
        RetryAfter::of(decision, jitter, rng)
    }

    fn refuse(
        &self,
        rejection: &Rejection<'_, '_>,
        parts: &Parts,
        settings: &HeaderSettings,
    ) -> Response<Bytes> {
        let mut response: Response<Bytes> = match &self.word {
            Some(word) => word(rejection, parts),
            None => rejection.response(&parts.headers, settings),
        };
        rejection.write_headers(response.headers_mut(), settings);
        response.extensions_mut().insert(RefusalMarker);
        response
    }
}
