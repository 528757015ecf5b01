//! HTTP/2 clients and upstreams.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::TEST_TIMEOUT;

/// Runs a future to its end, or fails the test.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, work).await.expect("it ends in time") })
}

/// A body that is sent frame by frame and ends when its feeder is dropped.
pub(crate) struct Feed(mpsc::UnboundedReceiver<Frame<Bytes>>);

pub(crate) struct Feeder(mpsc::UnboundedSender<Frame<Bytes>>);

impl Feed {
    pub(crate) fn new() -> (Feeder, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Feeder(sender), Self(receiver))
    }

    pub(crate) fn nothing() -> Self {
        let mut nothing = Self::new().1;
        nothing.0.close();
        nothing
    }
}

impl Feeder {
    pub(crate) fn data(&self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.send(Frame::data(Bytes::copy_from_slice(bytes.as_ref())));
    }

    /// Sends the last frame.
    pub(crate) fn trailers(self, trailers: HeaderMap) {
        let _ = self.0.send(Frame::trailers(trailers));
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }
}

/// A client connection.
pub(crate) struct Http2 {
    pub(crate) requests: client::SendRequest<Feed>,
    /// Completes when the connection ends.
    pub(crate) ended: JoinHandle<hyper::Result<()>>,
}

/// Connects without TLS, with prior knowledge.
pub(crate) async fn http2(address: SocketAddr) -> Http2 {
    connected(address, &client::Builder::new(TokioExecutor::new())).await
}

/// Connects as a client that reads no response body.
pub(crate) async fn http2_without_window(address: SocketAddr) -> Http2 {
    let mut builder = client::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    connected(address, &builder).await
}

async fn connected(address: SocketAddr, builder: &client::Builder<TokioExecutor>) -> Http2 {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    Http2 { requests, ended: tokio::spawn(connection) }
}

/// An endless body.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))))
    }
}

/// An HTTP/2 upstream without TLS that echoes bodies. The response to `/endless` never ends.
pub(crate) struct H2Upstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl H2Upstream {
    pub(crate) fn echo() -> Self {
        Self::start(false)
    }

    /// Sends GOAWAY after the first response on each connection.
    pub(crate) fn one_each() -> Self {
        Self::start(true)
    }

    fn start(one_each: bool) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve(stream, one_each));
                }
            });
        });
        Self { address, connections }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: tokio::net::TcpStream, one_each: bool) {
    let (answered, mut leave) = mpsc::unbounded_channel();
    let echo = service_fn(move |request: Request<Incoming>| {
        let te = request.headers().get("te").map_or("", |it| it.to_str().unwrap());
        let seen = format!("{} {} te={te}", request.method(), request.uri());
        let _ = answered.send(());
        async move {
            let body = match request.uri().path() {
                "/endless" => Either::Left(Endless),
                _ => Either::Right(request.into_body()),
            };
            Ok::<_, Infallible>(Response::builder().header("seen", seen).body(body).unwrap())
        }
    });
    let connection = server::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), echo);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = leave.recv(), if one_each => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
