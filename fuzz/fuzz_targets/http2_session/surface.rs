//! A surface whose methods answer at once, later, at length, never, or as a stream.

use std::future::{Future, pending, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::sync::Notify;
use tollgate_net::http2::{GrpcSurface, GrpcTimeout, Http2Body, UnaryCall, UnaryReply};

/// The paths of unary methods, then those of others.
pub(crate) const PATHS: [&str; 10] = [
    "/u/Echo",
    "/u/Later",
    "/u/Long",
    "/u/Never",
    "/u/Refuse",
    "/s/Echo",
    "/s/Unread",
    "/s/Fail",
    "/s/Early",
    "/other",
];
const UNARY_METHODS: usize = 5;

pub(crate) const MAX_TIME: Duration = Duration::from_secs(30);
/// The maximum size of a message.
const MAX_BYTES: usize = 100_000;
/// The size of a long reply.
const LONG_BYTES: usize = 70_000;

#[derive(Default)]
pub(crate) struct FuzzSurface {
    /// Completes the calls that wait.
    pub(crate) release: Arc<Notify>,
    /// Whether calls do not wait.
    pub(crate) is_open: AtomicBool,
    /// Has one more reference for each call in progress.
    pub(crate) calls: Arc<()>,
}

fn status(code: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))])
}

impl GrpcSurface for FuzzSurface {
    type Body = FuzzBody;

    fn unary_method(&self, path: &[u8], _: &[u8]) -> Option<u8> {
        let method = PATHS[..UNARY_METHODS].iter().position(|it| it.as_bytes() == path)?;
        u8::try_from(method).ok()
    }

    fn call(&self, method: u8, body: Bytes, _: GrpcTimeout) -> UnaryCall {
        let (call, release) = (Arc::clone(&self.calls), Arc::clone(&self.release));
        let is_open = self.is_open.load(Ordering::Relaxed);
        Box::pin(async move {
            let _call = call;
            match method {
                0 => UnaryReply::Message(body),
                1 => {
                    if !is_open {
                        release.notified().await;
                    }
                    UnaryReply::Message(body)
                }
                2 => UnaryReply::Message(vec![7; LONG_BYTES].into()),
                3 => pending().await,
                _ => UnaryReply::Refusal(status("7")),
            }
        })
    }

    fn answer(
        &self,
        request: Request<Http2Body>,
    ) -> impl Future<Output = Response<FuzzBody>> + Send + 'static {
        let kind = PATHS.iter().position(|it| *it == request.uri().path()).unwrap_or(PATHS.len());
        let mut response = Response::new(FuzzBody {
            kind,
            request: Some(request.into_body()),
            count: 0,
            waiting: None,
            release: Arc::clone(&self.release),
            is_open: self.is_open.load(Ordering::Relaxed),
            _call: Arc::clone(&self.calls),
        });
        if kind == PATHS.len() - 1 {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        ready(response)
    }

    fn check_partial(&self, received: &[u8]) -> Result<(), HeaderMap> {
        if received.len() > MAX_BYTES { Err(status("8")) } else { Ok(()) }
    }

    fn full_refusal(&self) -> HeaderMap {
        status("8")
    }

    fn max_time(&self) -> Duration {
        MAX_TIME
    }

    fn late_refusal(&self) -> HeaderMap {
        status("4")
    }
}

/// The body of a response.
pub(crate) struct FuzzBody {
    kind: usize,
    request: Option<Http2Body>,
    count: usize,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    release: Arc<Notify>,
    is_open: bool,
    _call: Arc<()>,
}

impl FuzzBody {
    /// Waits for the release; immediately ready if calls do not wait.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_open {
            return Poll::Ready(());
        }
        let release = Arc::clone(&self.release);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { release.notified().await }));
        waiting.as_mut().poll(cx)
    }
}

impl Body for FuzzBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.count += 1;
        let kind = PATHS.get(self.kind).copied().unwrap_or_default();
        match (kind, self.count) {
            ("/s/Echo", _) => {
                let Some(request) = &mut self.request else { return Poll::Ready(None) };
                match std::task::ready!(Pin::new(request).poll_frame(cx)) {
                    None => {
                        self.request = None;
                        Poll::Ready(Some(Ok(Frame::trailers(status("0")))))
                    }
                    frame => Poll::Ready(frame),
                }
            }
            ("/s/Unread", _) => {
                std::task::ready!(self.poll_release(cx));
                self.kind = PATHS.len();
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"unread")))))
            }
            ("/s/Fail", 1) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part"))))),
            ("/s/Fail", _) => Poll::Ready(Some(Err(io::ErrorKind::Other.into()))),
            ("/s/Early", 1) => {
                self.request = None;
                Poll::Ready(Some(Ok(Frame::data(vec![1; LONG_BYTES].into()))))
            }
            ("/s/Early", 2) => Poll::Ready(Some(Ok(Frame::data(Bytes::new())))),
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kind == PATHS.len() - 1
    }
}
