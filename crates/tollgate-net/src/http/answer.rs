//! The service of a surface on one connection: tracks requests in progress and closes the
//! connection when draining.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::Service;
use hyper::{Request, Response};
use pin_project_lite::pin_project;

use crate::conn_timer::{ConnTimer, RequestGuard};

/// The service of a surface on one connection.
pub(super) struct ConnectionService<S> {
    pub(super) service: S,
    pub(super) conn_timer: Arc<ConnTimer>,
}

impl<S, B> Service<Request<Incoming>> for ConnectionService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let running = Some(self.conn_timer.begin());
        ResponseFuture { making: self.service.call(request), running }
    }
}

pin_project! {
    /// A response future.
    pub(super) struct ResponseFuture<F> {
        #[pin]
        making: F,
        running: Option<RequestGuard>,
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.making.poll(cx))?;
        if response.status() == hyper::StatusCode::SWITCHING_PROTOCOLS {
            if let Some(running) = this.running.as_ref() {
                running.upgraded();
            }
        } else if this.running.as_ref().is_some_and(RequestGuard::is_last) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let running = this.running.take();
        if let Some(running) = running.as_ref().filter(|_| !response.body().is_end_stream()) {
            running.offered();
        }
        Poll::Ready(Ok(response.map(|body| ResponseBody { body, running })))
    }
}

pin_project! {
    /// A response body; its request is in progress until this is sent or dropped.
    pub(super) struct ResponseBody<B> {
        #[pin]
        body: B,
        running: Option<RequestGuard>,
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        if let Some(running) = this.running {
            running.wanted();
        }
        let frame = ready!(this.body.poll_frame(cx));
        if let (Some(running), Some(Ok(_))) = (this.running, &frame) {
            running.offered();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
