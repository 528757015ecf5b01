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
use crate::headers::Written;
use crate::meter::Meters;
use crate::owed::{Outliving, Owing, Unreached};
use crate::soft::Soft;

/// Marks an answer, in its extensions, that a layer refused.
#[derive(Clone, Copy)]
pub(crate) struct Refused;

/// What becomes of a request that was decided about.
pub(crate) enum Conclusion {
    Passes(Passing),
    /// Passes, and is marked or held back before. Boxed, since few are.
    Softened(Box<(Passing, Soft)>),
    Refused(Response<Bytes>),
}

/// What goes with a request that passes.
#[derive(Default)]
pub(crate) struct Passing {
    /// What its answer will say about limits.
    pub(crate) written: Option<Written>,
    /// What it leaves to be paid when it is over.
    pub(crate) owed: Option<Owing>,
}

impl Passing {
    /// Sees to it that the answer can be read where a cost stands in it: a client that asks
    /// for a compressed one must not be cheaper for it. Lends the slots to the service behind.
    pub(crate) fn prepare(&mut self, parts: &mut Parts) {
        let Some(owed) = &mut self.owed else { return };
        if owed.with_meters(|meters| meters.read_bodies()) {
            // A map that is full stays as it is: the alternative is a panic.
            let _full = parts.headers.try_insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Owing::Shared(guard) = owed {
            parts.extensions.insert(guard.clone());
        }
    }

    /// What becomes of an answer.
    fn answered<R>(&mut self, mut response: Response<R>) -> Response<LimitBody<R>> {
        let is_refused = response.extensions().get::<Refused>().is_some();
        let mut owed = self.owed.take();
        if let Some(owed) = &mut owed {
            if is_refused || response.extensions().get::<Unreached>().is_some() {
                owed.with_meters(Meters::was_not_reached);
            } else {
                // As the service wrote it, before ours are added.
                owed.with_meters(|meters| meters.head(response.headers()));
            }
        }
        if let Some(written) = self.written.take()
            && !is_refused
        {
            written.set(response.headers_mut());
        }
        let owed = owed.and_then(|owed| match response.extensions().get::<Outliving>() {
            Some(work) => {
                work.keep(owed);
                None
            }
            None => Some(owed),
        });
        response.map(|body| LimitBody::admitted(body, owed))
    }
}

type Waiting<R, E> = Pin<Box<dyn Future<Output = Result<Response<LimitBody<R>>, E>> + Send>>;

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
        Passing { #[pin] answer: F, passing: Passing },
        // There is nothing to wait for.
        Refused { refusal: Option<Response<Bytes>> },
        // The store is being asked, or the request held back.
        Waiting { all: Waiting<R, E> },
    }
}

impl<F, R, E> LimitFuture<F, R, E> {
    /// The service behind has been called.
    pub(crate) fn passing(answer: F, mut passing: Passing) -> Self {
        if let Some(owed) = &mut passing.owed {
            owed.with_meters(Meters::begin);
        }
        Self { stage: Stage::Passing { answer, passing } }
    }

    pub(crate) const fn refused(refusal: Response<Bytes>) -> Self {
        Self { stage: Stage::Refused { refusal: Some(refusal) } }
    }

    pub(crate) const fn waiting(all: Waiting<R, E>) -> Self {
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
