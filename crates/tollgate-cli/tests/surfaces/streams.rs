//! Open streams of gRPC: `Watch` of health, and reflection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// `list_services: "*"`, with the prefix of gRPC.
const LIST_SERVICES: &[u8] = &[0, 0, 0, 0, 3, 7 << 3 | 2, 1, b'*'];

/// One stream of each, with one response received.
pub(crate) struct Streams(JoinHandle<[End; 2]>);

/// The data until a stream ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) body: Vec<u8>,
    /// The status of gRPC.
    pub(crate) status: String,
}

impl Streams {
    pub(crate) fn open(rls: SocketAddr) -> Self {
        let (opened, is_open) = mpsc::channel();
        let streams = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let watch =
                    Stream::open(rls, "grpc.health.v1.Health/Watch", StreamRequest::all(&[0; 5])).await;
                let reflection = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
                let talk = Stream::open(rls, reflection, StreamRequest::so_far(LIST_SERVICES)).await;
                opened.send(()).unwrap();
                [watch.end().await, talk.end().await]
            })
        });
        is_open.recv().unwrap();
        Self(streams)
    }

    /// Waits until they end, and returns how.
    pub(crate) fn ended(self) -> [End; 2] {
        self.0.join().unwrap()
    }
}

/// On its own connection, which lives while it is used.
struct Stream {
    answer: Incoming,
    _client: SendRequest<StreamRequest>,
}

impl Stream {
    async fn open(rls: SocketAddr, method: &str, body: StreamRequest) -> Self {
        let wire = TokioIo::new(TcpStream::connect(rls).await.unwrap());
        let (mut client, connection) = handshake(TokioExecutor::new(), wire).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post(format!("http://{rls}/{method}"));
        let request = request.header("content-type", "application/grpc").header("te", "trailers");
        let mut answer = client.send_request(request.body(body).unwrap()).await.unwrap().into_body();
        assert!(answer.frame().await.unwrap().unwrap().is_data());
        Self { answer, _client: client }
    }

    async fn end(mut self) -> End {
        let (mut body, mut status) = (Vec::new(), String::new());
        while let Some(frame) = self.answer.frame().await {
            match frame.unwrap().into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => {
                    frame.into_trailers().unwrap()["grpc-status"].to_str().unwrap().clone_into(&mut status);
                }
            }
        }
        End { body, status }
    }
}

/// The request body of a client, which stays open if the client may send more.
struct StreamRequest {
    question: Option<Bytes>,
    is_all: bool,
}

impl StreamRequest {
    const fn all(question: &'static [u8]) -> Self {
        Self { question: Some(Bytes::from_static(question)), is_all: true }
    }

    const fn so_far(question: &'static [u8]) -> Self {
        Self { question: Some(Bytes::from_static(question)), is_all: false }
    }
}

impl Body for StreamRequest {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.question.take() {
            Some(question) => Poll::Ready(Some(Ok(Frame::data(question)))),
            None if self.is_all => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
