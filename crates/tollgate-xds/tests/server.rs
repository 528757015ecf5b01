//! A configuration server whose messages a test chooses.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tollgate_grpc::MessageReader;
use tollgate_grpc::call::framed;
use tollgate_grpc::wire::{Reader, Write as _};
use tollgate_xds::RESOURCE_TYPE_URL;

const MAX_QUEUED_RESPONSES: usize = 1_024;

/// A listening server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    streams: mpsc::UnboundedReceiver<Stream>,
}

/// A stream that a client has opened. Dropping it ends the stream.
pub(crate) struct Stream {
    requests: mpsc::UnboundedReceiver<SeenRequest>,
    out: Sender<Bytes>,
}

/// A request of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenRequest {
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) node: String,
    pub(crate) names: usize,
    pub(crate) type_url: String,
    pub(crate) error: Option<String>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (opened, streams) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let opened = opened.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let opened = opened.clone();
                    async move { Ok::<_, Infallible>(answer(request, &opened)) }
                });
                let serving = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(connection), service);
                tokio::spawn(serving);
            }
        });
        Self { address, streams }
    }

    /// Waits for the next stream.
    pub(crate) async fn stream(&mut self) -> Stream {
        self.streams.recv().await.unwrap()
    }
}

fn answer(request: Request<Incoming>, opened: &mpsc::UnboundedSender<Stream>) -> Response<Channel<Bytes>> {
    assert_eq!(
        request.uri().path(),
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
    );
    let (seen, requests) = mpsc::unbounded_channel();
    let (out, body) = Channel::new(MAX_QUEUED_RESPONSES);
    let mut incoming = request.into_body();
    tokio::spawn(async move {
        let mut reader = MessageReader::new(1 << 20);
        while let Some(Ok(frame)) = incoming.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            reader.push(&data);
            while let Some(message) = reader.next_message().unwrap() {
                let _gone = seen.send(SeenRequest::read(&message));
            }
        }
    });
    opened.send(Stream { requests, out }).unwrap();
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    response
}

impl SeenRequest {
    fn read(message: &[u8]) -> Self {
        let mut seen = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next_field().unwrap() {
            match number {
                1 => value.text().unwrap().clone_into(&mut seen.version),
                2 => seen.node = text_of(value.bytes().unwrap(), 1),
                3 => seen.names += 1,
                4 => value.text().unwrap().clone_into(&mut seen.type_url),
                5 => value.text().unwrap().clone_into(&mut seen.nonce),
                6 => seen.error = Some(text_of(value.bytes().unwrap(), 2)),
                _ => {}
            }
        }
        seen
    }
}

fn text_of(message: &[u8], wanted: u32) -> String {
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field().unwrap() {
        if number == wanted {
            return value.text().unwrap().to_owned();
        }
    }
    String::new()
}

impl Stream {
    /// Waits for the next request.
    pub(crate) async fn request(&mut self) -> SeenRequest {
        self.requests.recv().await.unwrap()
    }

    /// Whether the client has ended the stream.
    pub(crate) async fn is_ended(&mut self) -> bool {
        self.requests.recv().await.is_none()
    }

    /// Returns a request that has arrived already.
    pub(crate) fn try_request(&mut self) -> Option<SeenRequest> {
        self.requests.try_recv().ok()
    }

    /// Sends resources.
    pub(crate) fn send(&mut self, version: &str, nonce: &str, resources: &[Vec<u8>]) {
        self.send_typed(RESOURCE_TYPE_URL, version, nonce, resources);
    }

    /// Sends resources under another type.
    pub(crate) fn send_typed(&mut self, type_url: &str, version: &str, nonce: &str, resources: &[Vec<u8>]) {
        self.send_bytes(framed(|out| {
            out.put_bytes(1, version.as_bytes());
            for resource in resources {
                out.put_message(2, |out| {
                    out.put_bytes(1, type_url.as_bytes());
                    out.put_bytes(2, resource);
                });
            }
            out.put_bytes(4, type_url.as_bytes());
            out.put_bytes(5, nonce.as_bytes());
        }));
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: Bytes) {
        self.out.try_send(Frame::data(bytes)).unwrap();
    }
}

/// A `RateLimitDescriptor`.
#[derive(Clone, Default)]
pub(crate) struct Rule {
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    /// The unit and the number of requests.
    pub(crate) limit: Option<(u64, u64)>,
    pub(crate) unlimited: bool,
    pub(crate) name: &'static str,
    pub(crate) replaces: Vec<&'static str>,
    pub(crate) below: Vec<Self>,
}

impl Rule {
    pub(crate) fn per_minute(key: &'static str, requests: u64) -> Self {
        Self { key, limit: Some((2, requests)), ..Self::default() }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_bytes(1, self.key.as_bytes());
        out.put_bytes(2, self.value.as_bytes());
        if let Some((unit, requests)) = self.limit {
            out.put_message(3, |out| {
                out.put_uint(1, unit);
                out.put_uint(2, requests);
                out.put_uint(3, u64::from(self.unlimited));
                out.put_bytes(4, self.name.as_bytes());
                for name in &self.replaces {
                    out.put_message(5, |out| out.put_bytes(1, name.as_bytes()));
                }
            });
        }
        for rule in &self.below {
            out.put_message(4, |out| rule.write(out));
        }
    }
}

/// Encodes a `RateLimitConfig`.
pub(crate) fn config(domain: &str, rules: &[Rule]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_bytes(1, domain.as_bytes());
    out.put_bytes(2, domain.as_bytes());
    for rule in rules {
        out.put_message(3, |out| rule.write(out));
    }
    out
}
