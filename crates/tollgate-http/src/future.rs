//! The answer of a limited service, while it is being made.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::{HeaderValue, Response};
use pin_project_lite::pin_project;

use crate::body::LimitBody;
use crate::deferred::{Detached, NotForwarded, Owing};
use crate::headers::PreparedHeaders;
use crate::meter::Meters;
use crate::soft::Soft;

/// Marks an answer, in its extensions, that a layer refused.
#[derive(Clone, Copy)]
pub(crate) struct RefusalMarker;

/// What becomes of a request that was decided about.
pub(crate) enum Conclusion {
    Passes(AdmittedContext),
    /// Passes, and is marked or held back before. Boxed, since few are.
    SoftDelayed(Box<(AdmittedContext, Soft)>),
    Refused(Response<Bytes>),
}

/// What goes with a request that passes.
#[derive(Default)]
pub(crate) struct AdmittedContext {
    /// What its answer will say about limits.
    pub(crate) written: Option<PreparedHeaders>,
    /// What it leaves to be paid when it is over.
    pub(crate) deferred: Option<Owing>,
}

impl AdmittedContext {
    /// Sees to it that the answer can be read where a cost stands in it: a client that asks
    /// for a compressed one must not be cheaper for it. Lends the slots to the service behind.
    pub(crate) fn prepare(&mut self, parts: &mut Parts) {
        let Some(deferred) = &mut self.deferred else { return };
        if deferred.with_meters(|meters| meters.read_bodies()) {
            // A map that is full stays as it is: the alternative is a panic.
            let _full = parts.headers.try_insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Owing::Shared(guard) = deferred {
            parts.extensions.insert(guard.clone());
        }
    }

    /// What becomes of an answer.
    fn answered<R>(&mut self, mut response: Response<R>) -> Response<LimitBody<R>> {
        let is_refused = response.extensions().get::<RefusalMarker>().is_some();
        let mut deferred = self.deferred.take();
        if let Some(deferred) = &mut deferred {
            if is_refused || response.extensions().get::<NotForwarded>().is_some() {
                deferred.with_meters(Meters::was_not_reached);
            } else {
                // As the service wrote it, before ours are added.
                deferred.with_meters(|meters| meters.head(response.headers()));
            }
        }
        if let Some(written) = self.written.take()
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
        response.map(|body| LimitBody::admitted(body, deferred))
    }
}

type PendingDecision<R, E> = Pin<Box<dyn Future<Output = Result<Response<LimitBody<R>>, E>> + Send>>;

pin_project! {
    /// The answer of a [`Limit`](crate::Limit), while it is being made.
    pub struct LimitFuture<F, R, E> {
        #[pin]
        stage: Stage<F, R, E>,
    }
}

pin_project! {
    #[project = Projected]
    enum Stage<F, R, E> {
        // The service behind is at it.
        Passing { #[pin] answer: F, passing: AdmittedContext },
        // There is nothing to wait for.
        Refused { refusal: Option<Response<Bytes>> },
        // The store is being asked, or the request held back.
        Waiting { all: PendingDecision<R, E> },
    }
}

impl<F, R, E> LimitFuture<F, R, E> {
    /// The service behind has been called.
    pub(crate) fn admitted_context(answer: F, mut passing: AdmittedContext) -> Self {
        if let Some(deferred) = &mut passing.deferred {
            deferred.with_meters(Meters::begin);
        }
        Self { stage: Stage::Passing { answer, passing } }
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
                let response = ready!(answer.poll(cx))?;
                Poll::Ready(Ok(passing.answered(response)))
            }
            // Futures are not polled again after their end; this one would wait for ever.
            Projected::Refused { refusal } => match refusal.take() {
                Some(refusal) => Poll::Ready(Ok(refusal.map(LimitBody::refused))),
                None => Poll::Pending,
            },
            Projected::Waiting { all } => all.as_mut().poll(cx),
        }
    }
}
