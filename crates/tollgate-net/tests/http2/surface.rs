//! A surface with methods that answer at once, later, at length, or as a stream.

use std::convert::Infallible;
use std::future::{Future, Ready, pending, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::Notify;
use tollgate_net::http2::{GrpcSurface, GrpcTimeout, Http2Body, UnaryCall, UnaryReply};
use tollgate_net::{Caps, Connection, Drain, Drainer, HttpServer, Sockets};

/// The maximum size of a message.
pub(crate) const MAX_BYTES: usize = 400_000;
/// The size of a long reply.
pub(crate) const LONG_BYTES: usize = 300_000;

pub(crate) const ECHO: &str = "/test.Service/Echo";
pub(crate) const LATER: &str = "/test.Service/Later";
pub(crate) const LONG: &str = "/test.Service/Long";
pub(crate) const NEVER: &str = "/test.Service/Never";
/// Panics after it has waited.
pub(crate) const PANIC: &str = "/test.Service/Panic";
pub(crate) const STREAM: &str = "/test.Service/Stream";

const METHODS: [&str; 5] = [ECHO, LATER, LONG, NEVER, PANIC];

#[derive(Default)]
pub(crate) struct TestSurface {
    /// Completes calls of [`LATER`].
    pub(crate) release: Arc<Notify>,
    /// Counts the calls that exist.
    pub(crate) live: Arc<LiveCalls>,
}

/// The number of calls that exist, and its maximum.
#[derive(Default)]
pub(crate) struct LiveCalls {
    count: AtomicUsize,
    max: AtomicUsize,
}

impl LiveCalls {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    fn enter(self: &Arc<Self>) -> LiveCall {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.max.fetch_max(count, Ordering::Relaxed);
        LiveCall(Arc::clone(self))
    }
}

struct LiveCall(Arc<LiveCalls>);

impl Drop for LiveCall {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GrpcSurface for TestSurface {
    type Body = EchoBody;

    fn unary_method(&self, path: &[u8], content_type: &[u8]) -> Option<u8> {
        let method = METHODS.iter().position(|it| it.as_bytes() == path)?;
        (content_type == b"application/grpc").then(|| u8::try_from(method).unwrap())
    }

    fn call(&self, method: u8, body: Bytes, timeout: GrpcTimeout) -> UnaryCall {
        let (release, live) = (Arc::clone(&self.release), self.live.enter());
        Box::pin(async move {
            let _live = live;
            match METHODS[usize::from(method)] {
                _ if body.is_empty() => return UnaryReply::Refusal(status("3")),
                LATER => release.notified().await,
                PANIC => {
                    tokio::task::yield_now().await;
                    panic!("as the test expects");
                }
                LONG => return UnaryReply::Message(vec![7; LONG_BYTES].into()),
                NEVER => return pending().await,
                _ if timeout.as_bytes() == Some(b"0m") => return UnaryReply::Refusal(status("4")),
                _ => {}
            }
            UnaryReply::Message(body)
        })
    }

    fn answer(
        &self,
        request: Request<Http2Body>,
    ) -> impl Future<Output = Response<EchoBody>> + Send + 'static {
        let mut response = Response::new(EchoBody { body: None, is_done: false, _live: self.live.enter() });
        if request.uri().path() == STREAM {
            response.headers_mut().insert("x-method", HeaderValue::from_static("stream"));
            response.body_mut().body = Some(request.into_body());
        } else {
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            response.body_mut().is_done = true;
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
        Duration::from_secs(30)
    }

    fn late_refusal(&self) -> HeaderMap {
        status("4")
    }
}

pub(crate) fn status(code: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))])
}

/// Returns the bytes of a request as they arrive, then trailers.
pub(crate) struct EchoBody {
    body: Option<Http2Body>,
    is_done: bool,
    _live: LiveCall,
}

impl Body for EchoBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match std::task::ready!(Pin::new(body).poll_frame(cx)) {
            None => {
                self.body = None;
                Poll::Ready(Some(Ok(Frame::trailers(status("0")))))
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_done
    }
}

/// HTTP/1.1 is not served.
pub(crate) struct NoService;

impl Service<Request<Incoming>> for NoService {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn call(&self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(String::new())))
    }
}

/// A server on its own thread.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) drainer: Drainer,
    pub(crate) release: Arc<Notify>,
    pub(crate) live: Arc<LiveCalls>,
    thread: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(caps: Caps) -> Self {
        let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
        let address = sockets.address();
        let (drainer, drain) = Drain::new();
        let listener = sockets.into_listeners().pop().unwrap();
        let surface = Arc::new(TestSurface::default());
        let (release, live) = (Arc::clone(&surface.release), Arc::clone(&surface.live));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let server = HttpServer { caps, ..HttpServer::default() };
            let make = |_: &Connection| NoService;
            runtime.block_on(server.serve_grpc(listener, make, surface, drain)).unwrap();
        });
        Self { address, drainer, release, live, thread }
    }

    /// Ends the server, and checks that it did not panic. The clients are closed first: the server would wait for them
    /// to confirm the shutdown.
    pub(crate) fn stop<C>(self, clients: C) {
        drop(clients);
        self.drainer.begin();
        self.drainer.close_idle();
        self.thread.join().unwrap();
    }
}
