//! The service behind a limiter: the path of a request.
//!
//! ```text
//! find the client's address → decide ─┬─ refused ──► refusal; the inner service is not called
//!                                     └─ allowed ──► call the service → add headers → response
//!   no slot is free: held, decided again ┘
//!                 admitted with a wait: held ┘   └ deferred work travels with the body ┘
//!                  takes slots when it starts ┘
//!    over a soft threshold: delayed and marked
//! ```
//!
//! What a decision means for its request is in `conclusion`.
//!
//! A request loads the limiter once, so one policy decides and writes the response.
//!
//! Layers can be stacked. If an inner layer refused, the outer layer adds no headers: its
//! `X-RateLimit-Remaining: 99` would contradict the 429.
//!
//! If the store answers without waiting, the headers are prepared before the inner service is
//! called, because a decision is too large to keep with the request. A future is boxed only if the
//! store has to be awaited or the request is held.

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tollgate::policy::HeaderSettings;
use tollgate::{Decision, DecisionId, DetachedPending, InFlightGuard, Limiter, MemoryStore, SlotWait, Store};
use tower_service::Service;

use crate::body::LimitBody;
use crate::client_address::client_address;
use crate::conclusion::{Conclusion, Delayed, RequestForm};
use crate::deferred::Owing;
use crate::future::{AdmittedContext, LimitFuture, RefusalMarker};
use crate::headers::written;
use crate::layer::Wiring;
use crate::priority::{RequestPriority, remove_client_priority};
use crate::rejection::Rejection;
use crate::slot_guard::SlotGuard;
use crate::soft::remove_client_marks;
use crate::throttled::AdmittedRequest;
use crate::view::HttpRequest;
use crate::waiting_room::ShuttingDown;

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
        let ready = std::mem::replace(&mut self.inner, fresh);
        let (limiter, (mut parts, body)) = (self.wiring.limiter.load(), request.into_parts());
        // Removed before the decision, so that no limit counts by a header that the service will
        // not see.
        remove_client_marks(&mut parts);
        remove_client_priority(&mut parts);
        let client = self.wiring.client(&limiter, &parts);
        let view = HttpRequest::new(&parts, client);
        let mut form = MapForm { wiring: &*self.wiring, parts: &parts };
        let concluded = limiter
            .try_admit(&view, |decision| self.wiring.conclude(&limiter, decision, &mut form))
            .map_err(|pending| Box::new(pending.detach()));
        match concluded {
            Ok(conclusion) => self.wiring.proceed(conclusion, ready, parts, body),
            Err(pending) => {
                let wiring = Arc::clone(&self.wiring);
                let waiting = Waiting { wiring, limiter, pending, client };
                LimitFuture::waiting(Box::pin(waiting.serve(ready, Request::from_parts(parts, body))))
            }
        }
    }
}

/// A request whose store has to be awaited, or that waits in line for a slot.
struct Waiting<S> {
    wiring: Arc<Wiring<S>>,
    limiter: Arc<Limiter<S>>,
    pending: Box<DetachedPending<S>>,
    client: Option<IpAddr>,
}

impl<S: Store> Waiting<S> {
    async fn serve<Inner, B, R>(
        self,
        inner: Inner,
        request: Request<B>,
    ) -> Result<Response<LimitBody<R>>, Inner::Error>
    where
        Inner: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        Inner::Future: Send,
        B: Send + 'static,
        R: 'static,
    {
        let Self { wiring, limiter, pending, client } = self;
        let (parts, body) = request.into_parts();
        let (mut inner, mut ready) = (inner.clone(), Some(inner));
        let conclusion = {
            let view = HttpRequest::new(&parts, client);
            let hold = |wait: SlotWait| {
                // Other requests can use the readiness of the inner service in the meantime.
                ready = None;
                wiring.hold_for_slot(wait)
            };
            let mut form = MapForm { wiring: &*wiring, parts: &parts };
            let conclude = |decision: &Decision<'_>| wiring.conclude(&limiter, decision, &mut form);
            match pending.finish_waiting(Some(&view), hold, conclude).await {
                Ok(conclusion) => conclusion,
                Err(ShuttingDown) => Conclusion::Refused(form.refuse_at_shutdown(None)),
            }
        };
        if let Some(ready) = ready {
            inner = ready;
        } else if !matches!(conclusion, Conclusion::Refused(_)) {
            poll_fn(|context| inner.poll_ready(context)).await?;
        }
        wiring.proceed(conclusion, inner, parts, body).await
    }
}

/// Serves a request that is held first (`conclusion`).
///
/// The inner service becomes ready again after that. Its readiness may be a permit, which other
/// requests can use in the meantime.
async fn held<Inner, S, B, R>(
    wiring: Arc<Wiring<S>>,
    mut delayed: Box<Delayed<S, AdmittedContext>>,
    ready: Inner,
    (mut parts, body): (Parts, B),
) -> Result<Response<LimitBody<R>>, Inner::Error>
where
    Inner: Service<Request<B>, Response = Response<R>> + Clone,
    S: Store,
{
    let mut inner = ready.clone();
    drop(ready);
    let end = delayed.wait(&wiring).await;
    let started = wiring.start(&mut delayed, end, &mut MapForm { wiring: &wiring, parts: &parts }).await;
    if let Err(refusal) = started {
        return Ok(refusal.map(LimitBody::refused));
    }
    // Not before: a request that is displaced is described as its caller sent it.
    delayed.admission.prepare(&mut parts);
    poll_fn(|context| inner.poll_ready(context)).await?;
    LimitFuture::passing(delayed.into_admission(), || inner.call(Request::from_parts(parts, body))).await
}

/// A request whose headers are in a map.
struct MapForm<'a, S> {
    wiring: &'a Wiring<S>,
    parts: &'a Parts,
}

impl<S: Store> RequestForm<S> for MapForm<'_, S> {
    type Admission = AdmittedContext;
    type Refusal = Response<Bytes>;

    fn view(&self, limiter: &Limiter<S>) -> impl tollgate::Request + Send + Sync {
        HttpRequest::new(self.parts, self.wiring.client(limiter, self.parts))
    }

    fn outer_slots(&self) -> Option<&SlotGuard> {
        self.parts.extensions.get()
    }

    fn admit(
        &self,
        limiter: &Limiter<S>,
        decision: &Decision<'_>,
        id: Option<DecisionId>,
        (deferred, in_flight): (Option<Owing>, Option<InFlightGuard>),
    ) -> AdmittedContext {
        let client = || self.wiring.client(limiter, self.parts);
        AdmittedContext {
            written: id.and_then(|id| written(decision, id, limiter.policy().headers(), None)),
            deferred,
            in_flight,
            priority: RequestPriority::of(decision),
            admitted: AdmittedRequest::of(limiter, decision, client),
            soft: None,
        }
    }

    fn refuse(&mut self, rejection: &Rejection<'_, '_>, settings: &HeaderSettings) -> Response<Bytes> {
        let mut response: Response<Bytes> = match &self.wiring.word {
            Some(word) => word(rejection, self.parts),
            None => rejection.response(&self.parts.headers, settings),
        };
        rejection.write_headers(response.headers_mut(), settings);
        response.extensions_mut().insert(RefusalMarker);
        response
    }

    fn refuse_at_shutdown(&mut self, admission: Option<&mut AdmittedContext>) -> Response<Bytes> {
        let mut response = ShuttingDown.response();
        if let Some(mut written) = admission.and_then(|it| it.written.take()) {
            written.set(response.headers_mut());
        }
        response.extensions_mut().insert(RefusalMarker);
        response
    }
}

/// The outcome of a decision for a request of the layer.
type LayerConclusion<S> = Conclusion<S, AdmittedContext, Response<Bytes>>;

impl<S: Store> Wiring<S> {
    /// Calls the inner service, or returns the refusal.
    fn proceed<Inner, B, R>(
        self: &Arc<Self>,
        conclusion: LayerConclusion<S>,
        mut inner: Inner,
        mut parts: Parts,
        body: B,
    ) -> LimitFuture<Inner::Future, R, Inner::Error>
    where
        Inner: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        Inner::Future: Send,
        B: Send + 'static,
        R: 'static,
    {
        match conclusion {
            Conclusion::Refused(refusal) => LimitFuture::refused(refusal),
            Conclusion::Passes(mut passing) => {
                passing.prepare(&mut parts);
                LimitFuture::passing(passing, || inner.call(Request::from_parts(parts, body)))
            }
            Conclusion::Delayed(delayed) => {
                LimitFuture::waiting(Box::pin(held(Arc::clone(self), delayed, inner, (parts, body))))
            }
        }
    }
}

impl<S> Wiring<S> {
    fn client(&self, limiter: &Limiter<S>, parts: &Parts) -> Option<IpAddr> {
        let peer = (self.find_peer)(parts);
        client_address(peer, &parts.headers, limiter.policy().client())
    }
}
