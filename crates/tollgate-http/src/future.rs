//! The answer of a limited service, while it is being made.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;

use crate::body::LimitBody;
use crate::headers::Written;
use crate::slots::{HeldSlots, Outliving};
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
    pub(crate) slots: Option<HeldSlots>,
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
    pub(crate) const fn passing(answer: F, passing: Passing) -> Self {
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
                let mut response = ready!(answer.poll(cx))?;
                if let Some(written) = passing.written.take()
                    && response.extensions().get::<Refused>().is_none()
                {
                    written.set(response.headers_mut());
                }
                let slots =
                    passing.slots.take().and_then(|slots| match response.extensions().get::<Outliving>() {
                        Some(work) => {
                            work.keep(slots);
                            None
                        }
                        None => Some(slots),
                    });
                Poll::Ready(Ok(response.map(|body| LimitBody::admitted(body, slots))))
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
