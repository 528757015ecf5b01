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
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tollgate::policy::HeaderSettings;
use tollgate::{
    Decision, DecisionId, DetachedPending, HeldDecision, HoldEnd, Limiter, MemoryStore, NodeShedder, NotHeld,
    SlotWait, Store,
};
use tower_service::Service;

use crate::body::LimitBody;
use crate::client_address::client_address;
use crate::deferred::{Deferred, Owing};
use crate::future::{AdmittedContext, Conclusion, Delayed, LimitFuture, RefusalMarker, Start};
use crate::headers::{RetryAfter, is_limited, written};
use crate::layer::Wiring;
use crate::places::TimedPlace;
use crate::priority::{RequestPriority, remove_client_priority};
use crate::rejection::Rejection;
use crate::soft::{Soft, remove_client_marks};
use crate::tarpit::Tarpit;
use crate::throttled::AdmittedRequest;
use crate::view::HttpRequest;
use crate::waiting_room::{HeldRequest, HoldTime, ShuttingDown};

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
        let concluded = limiter
            .try_admit(&view, |decision| self.wiring.conclude(&limiter, decision, &parts))
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
        let concluded = {
            let view = HttpRequest::new(&parts, client);
            let hold = |wait: SlotWait| {
                // Other requests can use the readiness of the inner service in the meantime.
                ready = None;
                wiring.hold_for_slot(wait)
            };
            let conclude = |decision: &Decision<'_>| wiring.conclude(&limiter, decision, &parts);
            pending.finish_waiting(Some(&view), hold, conclude).await
        };
        let conclusion = match concluded {
            Ok(conclusion) => conclusion,
            Err(shutting_down) => {
                return Ok(AdmittedContext::default().not_started(shutting_down.response()));
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

/// Serves a request that is held first: until its turn in the queues of its limits, then for the delay
/// of the tarpit. It takes a place in the tarpit when its turn comes: the places are few, and the
/// queue may be long. It takes its slots after that, when the inner service is to be called.
///
/// The inner service becomes ready again after that. Its readiness may be a permit, which other
/// requests can use in the meantime.
async fn held<Inner, S, B, R>(
    wiring: Arc<Wiring<S>>,
    (delayed, mut tarpit): (Delayed<S>, Option<TimedPlace<()>>),
    ready: Inner,
    (mut parts, body): (Parts, B),
) -> Result<Response<LimitBody<R>>, Inner::Error>
where
    Inner: Service<Request<B>, Response = Response<R>> + Clone,
    S: Store,
{
    let Delayed { mut passing, soft, queued, displaceable, shedder, start } = delayed;
    let mut inner = ready.clone();
    drop(ready);
    if let Some(queued) = queued {
        match queued.wait().await {
            Ok(HoldEnd::TimeOver) => {}
            Ok(HoldEnd::Displaced) => {
                // The deferred work refunds all charges when it is dropped.
                return Ok(match displaceable {
                    Some(decision) => wiring.displace(&decision, &parts).map(LimitBody::refused),
                    // No request displaces one of the most important class.
                    None => passing.not_started(ShuttingDown.response()),
                });
            }
            Err(shutting_down) => return Ok(passing.not_started(shutting_down.response())),
        }
    }
    if let Some(soft) = soft {
        tarpit = soften(wiring.tarpit.as_ref(), soft, &mut parts);
    }
    if let Some(tarpit) = tarpit {
        tarpit.wait().await;
    }
    if let Some(start) = start {
        // Boxed, so that a request that waits stays small.
        if let Err(refusal) = Box::pin(wiring.take_slots(start, &parts, &mut passing)).await {
            return Ok(refusal.map(LimitBody::refused));
        }
    }
    // Not before: a request that is displaced is described as its caller sent it.
    passing.prepare(&mut parts);
    poll_fn(|context| inner.poll_ready(context)).await?;
    passing.in_flight = shedder.map(|shedder| shedder.enter());
    LimitFuture::passing(passing, || inner.call(Request::from_parts(parts, body))).await
}

/// Marks a request and enters the tarpit if it is to be delayed.
fn soften(tarpit: Option<&Tarpit>, soft: Soft, parts: &mut Parts) -> Option<TimedPlace<()>> {
    let time = soft.tarpit;
    let waiting = tarpit.and_then(|tarpit| tarpit.enter(time));
    soft.mark(parts, if waiting.is_some() { time } else { Duration::ZERO });
    waiting
}

/// Returns the shedder that counts requests in flight, if the policy has one. A request that is held
/// is not in flight yet: the number of held requests has bounds of its own.
fn tracked<S>(limiter: &Limiter<S>) -> Option<NodeShedder> {
    limiter.policy().node_shed().map(|_| limiter.node_shedder().clone())
}

impl<S: Store> Wiring<S> {
    /// Determines the outcome of a decision for its request.
    fn conclude(&self, limiter: &Arc<Limiter<S>>, decision: &Decision<'_>, parts: &Parts) -> Conclusion<S> {
        if !is_limited(decision) && decision.in_flight().is_none() {
            let (priority, in_flight) = (RequestPriority::of(decision), limiter.track_in_flight());
            let admitted = self.admitted(limiter, decision, parts);
            return Conclusion::Passes(AdmittedContext {
                in_flight,
                priority,
                admitted,
                ..AdmittedContext::default()
            });
        }
        let (id, settings) = (limiter.id_of(decision), limiter.policy().headers());
        if let Some(rejection) =
            Rejection::of(decision, id, RetryAfter::jittered(decision, settings, &*self.rng))
        {
            return Conclusion::Refused(self.refuse(&rejection, parts, settings));
        }
        let wait = decision.wait();
        let start = self.start(limiter, decision, (id, parts));
        let passing = AdmittedContext {
            written: written(decision, id, settings, None),
            deferred: Deferred::of(
                limiter,
                decision,
                (&self.limiter, &self.clock, &self.spawn),
                parts.extensions.get(),
                !wait.is_zero() || start.is_some(),
            ),
            in_flight: None,
            priority: RequestPriority::of(decision),
            admitted: self.admitted(limiter, decision, parts),
        };
        let soft = Soft::of(decision);
        if wait.is_zero() {
            return match soft {
                None if start.is_none() => {
                    let in_flight = limiter.track_in_flight();
                    Conclusion::Passes(AdmittedContext { in_flight, ..passing })
                }
                soft => {
                    let shedder = tracked(limiter);
                    Conclusion::Delayed(Box::new(Delayed {
                        passing,
                        soft,
                        queued: None,
                        displaceable: None,
                        shedder,
                        start,
                    }))
                }
            };
        }
        let rank = decision.rank();
        let Some(queued) = self.waiting_room.enter(HoldTime::Exactly(wait), rank) else {
            let (view, mut refused) =
                (HttpRequest::new(parts, self.client(limiter, parts)), decision.clone());
            limiter.refuse_wait(Some(&view), &mut refused, Duration::ZERO, NotHeld::NoPlace);
            let retry_after = RetryAfter::jittered(&refused, settings, &*self.rng);
            // The deferred work refunds all charges when it is dropped.
            let rejection = Rejection::by_full_room(&refused, id, retry_after);
            return Conclusion::Refused(self.refuse(&rejection, parts, settings));
        };
        // No request displaces one of the most important class.
        let displaceable = (rank > 0).then(|| Box::new(limiter.hold_decision(decision, id)));
        let (queued, shedder) = (Some(queued), tracked(limiter));
        Conclusion::Delayed(Box::new(Delayed { passing, soft, queued, displaceable, shedder, start }))
    }

    /// Calls the inner service, or returns the refusal.
    fn proceed<Inner, B, R>(
        self: &Arc<Self>,
        conclusion: Conclusion<S>,
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
        let mut passing = match conclusion {
            Conclusion::Refused(refusal) => return LimitFuture::refused(refusal),
            Conclusion::Passes(passing) => passing,
            Conclusion::Delayed(mut delayed) => {
                let mut tarpit = None;
                if delayed.queued.is_none() {
                    let soft = delayed.soft.take();
                    tarpit = soft.and_then(|soft| soften(self.tarpit.as_ref(), soft, &mut parts));
                }
                if delayed.queued.is_some() || delayed.start.is_some() || tarpit.is_some() {
                    let held = held(Arc::clone(self), (*delayed, tarpit), inner, (parts, body));
                    return LimitFuture::waiting(Box::pin(held));
                }
                let in_flight = delayed.shedder.map(|shedder| shedder.enter());
                let mut passing = AdmittedContext { in_flight, ..delayed.passing };
                passing.prepare(&mut parts);
                return LimitFuture::passing(passing, || inner.call(Request::from_parts(parts, body)));
            }
        };
        passing.prepare(&mut parts);
        LimitFuture::passing(passing, || inner.call(Request::from_parts(parts, body)))
    }

    /// Returns the start of a request that takes its slots after its wait.
    fn start(
        &self,
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        (id, parts): (DecisionId, &Parts),
    ) -> Option<Start<S>> {
        limiter.takes_slots_at_start(decision).then(|| Start {
            limiter: Arc::clone(limiter),
            id,
            client: self.client(limiter, parts),
        })
    }

    /// Refuses a request that has lost its place in the waiting room.
    fn displace(&self, held: &HeldDecision<S>, parts: &Parts) -> Response<Bytes> {
        let limiter = held.limiter();
        let view = HttpRequest::new(parts, self.client(limiter, parts));
        let (decision, settings) = (held.displace(Some(&view)), limiter.policy().headers());
        let retry_after = RetryAfter::jittered(&decision, settings, &*self.rng);
        let rejection = Rejection::by_full_room(&decision, limiter.id_of(&decision), retry_after);
        self.refuse(&rejection, parts, settings)
    }

    /// Takes the slots of an admitted request, or returns the refusal. The charges of a refused request are
    /// refunded when its context is dropped.
    async fn take_slots(
        &self,
        Start { limiter, id, client }: Start<S>,
        parts: &Parts,
        passing: &mut AdmittedContext,
    ) -> Result<(), Response<Bytes>> {
        let view = HttpRequest::new(parts, client);
        let hold = |wait: SlotWait| self.hold_for_slot(wait);
        let decision = match limiter.take_slots(&view, id, hold).await {
            Ok(decision) => decision,
            Err(shutting_down) => return Err(shutting_down.response()),
        };
        let settings = limiter.policy().headers();
        let retry_after = RetryAfter::jittered(&decision, settings, &*self.rng);
        if let Some(rejection) = Rejection::of(&decision, id, retry_after) {
            return Err(self.refuse(&rejection, parts, settings));
        }
        let wiring = (&self.limiter, &self.clock, &self.spawn);
        let slots = Deferred::of(&limiter, &decision, wiring, parts.extensions.get(), false);
        passing.deferred = Owing::join(passing.deferred.take(), slots);
        Ok(())
    }
}

impl<S> Wiring<S> {
    /// Returns the wait of a request for a slot; `None` if it finds no place.
    fn hold_for_slot(
        &self,
        wait: SlotWait,
    ) -> Option<impl Future<Output = Result<HoldEnd, ShuttingDown>> + use<S>> {
        self.waiting_room.enter(HoldTime::AtMost(wait.max_wait), wait.rank).map(HeldRequest::wait)
    }

    fn admitted(
        &self,
        limiter: &Limiter<S>,
        decision: &Decision<'_>,
        parts: &Parts,
    ) -> Option<Box<AdmittedRequest>> {
        AdmittedRequest::of(limiter, decision, || self.client(limiter, parts))
    }

    fn client(&self, limiter: &Limiter<S>, parts: &Parts) -> Option<IpAddr> {
        let peer = (self.find_peer)(parts);
        client_address(peer, &parts.headers, limiter.policy().client())
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
