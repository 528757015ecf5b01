//! The response future of a limited service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use pin_project_lite::pin_project;
use tollgate::{InFlightGuard, RequestOutcome};

use crate::body::LimitBody;
use crate::conclusion::Admission;
use crate::deferred::{Detached, NotForwarded, Owing, OwnResponse, Unmeasured};
use crate::headers::MapSink;
use crate::meter::Meters;
use crate::priority::RequestPriority;
use crate::soft::Soft;
use crate::throttled::AdmittedRequest;

/// Marks a response, in its extensions, as the refusal of a layer.
#[derive(Clone, Copy)]
pub(crate) struct RefusalMarker;

/// The state that accompanies an admitted request.
pub(crate) struct AdmittedContext {
    /// The headers about limits that the response will get.
    pub(crate) written: Option<MapSink>,
    /// The work deferred to the end of the request.
    pub(crate) deferred: Option<Owing>,
    /// Counts the request from the call of the inner service to the end of the response.
    pub(crate) in_flight: Option<InFlightGuard>,
    /// The priority class that the request will be marked with. Boxed because few policies have classes.
    pub(crate) priority: Option<Box<RequestPriority>>,
    /// The decision, for a service that may refuse the request in place of its upstream.
    pub(crate) admitted: Option<Box<AdmittedRequest>>,
    /// The soft thresholds that the request will be marked with, and its delay. Boxed because few requests reach one.
    pub(crate) soft: Option<Box<(Soft, Duration)>>,
}

impl Admission for AdmittedContext {
    fn deferred(&mut self) -> &mut Option<Owing> {
        &mut self.deferred
    }

    fn set_in_flight(&mut self, in_flight: Option<InFlightGuard>) {
        self.in_flight = in_flight;
    }

    fn mark(&mut self, soft: Soft, held: Duration) {
        self.soft = Some(Box::new((soft, held)));
    }
}

impl AdmittedContext {
    /// Marks the request with its priority class and its soft thresholds. Requests an uncompressed response when a meter reads
    /// the body, so that a client cannot avoid a cost by accepting compression. Shares the slots with
    /// the inner service.
    pub(crate) fn prepare(&mut self, parts: &mut Parts) {
        if let Some(priority) = self.priority.take() {
            priority.mark(parts);
        }
        if let Some((soft, held)) = self.soft.take().map(|soft| *soft) {
            soft.mark(parts, held);
        }
        if let Some(admitted) = self.admitted.take() {
            parts.extensions.insert(*admitted);
        }
        let Some(deferred) = &mut self.deferred else { return };
        if let Some(timer) = deferred.service_timer() {
            parts.extensions.insert(timer);
        }
        if deferred.with_meters(|meters| meters.read_bodies()) {
            // `insert` would panic on a full map.
            let _full = parts.headers.try_insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Owing::Shared(guard) = deferred {
            parts.extensions.insert(guard.clone());
        }
    }

    /// Adds headers and deferred work to a response of the inner service.
    fn answered<R>(&mut self, mut response: Response<R>) -> Response<LimitBody<R>> {
        let is_refused = response.extensions().get::<RefusalMarker>().is_some();
        // The meters may be shared with work that goes on, and then read the late response of the service.
        let is_metered = response.extensions().get::<OwnResponse>().is_none();
        let mut deferred = self.deferred.take();
        if let Some(deferred) = &mut deferred {
            let is_measured = !is_refused && response.extensions().get::<Unmeasured>().is_none();
            deferred.complete(if is_measured {
                outcome_of(response.status())
            } else {
                RequestOutcome::Ignored
            });
            if is_refused || response.extensions().get::<NotForwarded>().is_some() {
                deferred.with_meters(Meters::was_not_reached);
            } else if is_metered {
                // Meters read the headers of the service, before the layer adds its own.
                deferred.with_meters(|meters| meters.head(response.headers()));
            }
        }
        if let Some(mut written) = self.written.take()
            && !is_refused
        {
            written.set(response.headers_mut());
        }
        let deferred = deferred.and_then(|deferred| match response.extensions().get::<Detached>() {
            Some(work) => {
                work.keep(deferred);
                None
            }
            None => Some(deferred),
        });
        let in_flight = self.in_flight.take();
        response.map(|body| LimitBody::admitted(body, deferred, in_flight, is_metered))
    }
}

/// Returns what a status says about the load of the service: statuses of a service that is overloaded, down
/// or too slow are failures, all others are answers.
pub(crate) const fn outcome_of(status: StatusCode) -> RequestOutcome {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            RequestOutcome::Failed
        }
        _ => RequestOutcome::Answered,
    }
}

type PendingDecision<R, E> = Pin<Box<dyn Future<Output = Result<Response<LimitBody<R>>, E>> + Send>>;

pin_project! {
    /// The response future of a [`Limit`](crate::Limit) service.
    pub struct LimitFuture<F, R, E> {
        #[pin]
        stage: Stage<F, R, E>,
    }
}

pin_project! {
    #[project = Projected]
    enum Stage<F, R, E> {
        // The inner service is producing its response.
        Passing { #[pin] answer: F, passing: AdmittedContext },
        // The request was refused; the response is ready.
        Refused { refusal: Option<Response<Bytes>> },
        // The store has not answered yet, or the request is delayed.
        Waiting { all: PendingDecision<R, E> },
    }
}

impl<F, R, E> fmt::Debug for LimitFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitFuture").finish_non_exhaustive()
    }
}

impl<F, R, E> LimitFuture<F, R, E> {
    /// Calls the inner service, and waits for its response. The time of the call itself counts as latency.
    pub(crate) fn passing(mut passing: AdmittedContext, call: impl FnOnce() -> F) -> Self {
        if let Some(deferred) = &mut passing.deferred {
            deferred.start();
        }
        Self { stage: Stage::Passing { answer: call(), passing } }
    }

    pub(crate) const fn refused(refusal: Response<Bytes>) -> Self {
        Self { stage: Stage::Refused { refusal: Some(refusal) } }
    }

    pub(crate) const fn waiting(all: PendingDecision<R, E>) -> Self {
        Self { stage: Stage::Waiting { all } }
    }
}

impl<F, R, E> Future for LimitFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<LimitBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().stage.project() {
            Projected::Passing { answer, passing } => {
                let response = ready!(answer.poll(cx));
                if let (Err(_), Some(deferred)) = (&response, &passing.deferred) {
                    deferred.complete(RequestOutcome::Failed);
                }
                Poll::Ready(Ok(passing.answered(response?)))
            }
            // Futures must not be polled after completion; this one stays pending if it is.
            Projected::Refused { refusal } => match refusal.take() {
                Some(refusal) => Poll::Ready(Ok(refusal.map(LimitBody::refused))),
                None => Poll::Pending,
            },
            Projected::Waiting { all } => all.as_mut().poll(cx),
        }
    }
}
