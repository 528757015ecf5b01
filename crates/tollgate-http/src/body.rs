//! The body of a limited response: the body of the inner service, or the body of a refusal.
//!
//! The body of an admitted response is neither boxed nor copied. The meters of its request read
//! each frame as it passes, and the deferred work (releasing slots, settling costs) runs after the
//! last frame.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate::InFlightGuard;

use crate::deferred::Owing;

pin_project! {
    /// The response body of a [`Limit`](crate::Limit) service.
    pub struct LimitBody<B> {
        #[pin]
        origin: Origin<B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Origin<B> {
        // A response of the inner service, with the work deferred to the end of the request.
        Admitted { #[pin] body: B, deferred: Option<Owing>, in_flight: Option<InFlightGuard>, is_metered: bool },
        // A refusal; `None` once the body has been yielded.
        Refused { body: Option<Bytes> },
    }
}

impl<B> LimitBody<B> {
    /// `is_metered`: the meters of the request read the body.
    pub(crate) const fn admitted(
        body: B,
        deferred: Option<Owing>,
        in_flight: Option<InFlightGuard>,
        is_metered: bool,
    ) -> Self {
        Self { origin: Origin::Admitted { body, deferred, in_flight, is_metered } }
    }

    pub(crate) fn refused(body: Bytes) -> Self {
        Self { origin: Origin::Refused { body: Some(body).filter(|body| !body.is_empty()) } }
    }
}

impl<B: fmt::Debug> fmt::Debug for LimitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Admitted { body, .. } => f.debug_tuple("LimitBody").field(body).finish(),
            Origin::Refused { body } => f.debug_tuple("LimitBody").field(body).finish(),
        }
    }
}

impl<B> Body for LimitBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.project().origin.project() {
            Projected::Admitted { body, deferred, in_flight, is_metered } => {
                let frame = std::task::ready!(body.poll_frame(cx));
                if frame.is_none() {
                    *in_flight = None;
                }
                match (&frame, &mut *deferred) {
                    (Some(Ok(frame)), Some(deferred)) if *is_metered => {
                        deferred.with_meters(|meters| meters.frame(frame));
                    }
                    (None, Some(_)) => *deferred = None,
                    _ => {}
                }
                Poll::Ready(frame)
            }
            Projected::Refused { body } => {
                Poll::Ready(body.take().map(|bytes| Ok(Frame::data(B::Data::from(bytes)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.origin {
            Origin::Admitted { body, .. } => body.is_end_stream(),
            Origin::Refused { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.origin {
            Origin::Admitted { body, .. } => body.size_hint(),
            Origin::Refused { body } => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
        }
    }
}
