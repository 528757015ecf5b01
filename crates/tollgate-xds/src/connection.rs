//! One stream to the server: TCP, TLS, HTTP/2, and the messages in both directions.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tollgate_grpc::{MessageError, MessageReader};
use tollgate_net::keep_alive;

use crate::settings::XdsSettings;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The time for TCP, TLS and the start of HTTP/2 together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that wait to be sent. A request follows each response, so two are enough.
const MAX_QUEUED_REQUESTS: usize = 4;
/// The window of flow control: large configurations arrive without pauses.
const WINDOW_BYTES: u32 = 1 << 20;

/// The reason why a stream ended. All of them are followed by a new one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("cannot connect to {server}: {reason}")]
    Connect { server: String, reason: String },
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("the server answered with HTTP status {0}")]
    Http(StatusCode),
    #[error("the server ended the stream with gRPC status {code}{message}")]
    Ended { code: String, message: String },
    #[error(
        "the server sent a message of {length} bytes, and at most {max} are accepted; \
         XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES or `rls.xds.max_message_bytes` is the bound"
    )]
    TooLarge { length: usize, max: usize },
    #[error("the server sent {0}")]
    Malformed(&'static str),
}

/// An open stream.
pub(crate) struct Stream {
    requests: Sender<Bytes>,
    response: Receiving,
    reader: MessageReader,
    max_message_bytes: usize,
    /// Kept, because HTTP/2 closes the connection without it.
    _sender: SendRequest<Channel<Bytes>>,
}

/// The response, whose head may arrive together with the first message.
enum Receiving {
    Head(Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>),
    Body(Incoming),
}

impl Stream {
    /// Connects, and opens a stream with this first request.
    pub(crate) async fn open(settings: &XdsSettings, first: Bytes) -> Result<Self, StreamError> {
        let failed = |reason: String| StreamError::Connect { server: settings.server.to_string(), reason };
        let connecting = timeout(CONNECT_TIMEOUT, connect(settings)).await;
        let mut sender = connecting
            .map_err(|_| failed(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(failed)?;
        let (requests, body) = Channel::new(MAX_QUEUED_REQUESTS);
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let mut request = Request::post(format!("{scheme}://{}{METHOD}", settings.server))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .body(body)
            .map_err(|error| failed(error.to_string()))?;
        request.headers_mut().extend(settings.headers.iter().cloned());
        let response = Box::pin(sender.send_request(request));
        let max_message_bytes = settings.max_message_bytes;
        let mut stream = Self {
            requests,
            response: Receiving::Head(response),
            reader: MessageReader::new(max_message_bytes),
            max_message_bytes,
            _sender: sender,
        };
        stream.send(first).await?;
        Ok(stream)
    }

    /// Sends a request.
    pub(crate) async fn send(&mut self, request: Bytes) -> Result<(), StreamError> {
        let closed = |_| StreamError::Lost("the server does not read requests any more".to_owned());
        self.requests.send_data(request).await.map_err(closed)
    }

    /// Returns the next message. It can be called again after its future was dropped.
    pub(crate) async fn next_message(&mut self) -> Result<Bytes, StreamError> {
        loop {
            if let Some(message) = self.reader.next_message().map_err(|it| self.refused(it))? {
                return Ok(message);
            }
            let body = match &mut self.response {
                Receiving::Head(head) => {
                    let response = head.await.map_err(|error| StreamError::Lost(causes(&error)))?;
                    if response.status() != StatusCode::OK {
                        return Err(StreamError::Http(response.status()));
                    }
                    if let Some(ended) = status(response.headers()) {
                        return Err(ended);
                    }
                    self.response = Receiving::Body(response.into_body());
                    continue;
                }
                Receiving::Body(body) => body,
            };
            let frame = match body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(StreamError::Lost(causes(&error))),
                None => return Err(StreamError::Lost("the server closed the stream".to_owned())),
            };
            match frame.into_data() {
                Ok(bytes) => self.reader.push(&bytes),
                Err(frame) => {
                    if let Some(ended) = frame.trailers_ref().and_then(status) {
                        return Err(ended);
                    }
                }
            }
        }
    }

    const fn refused(&self, error: MessageError) -> StreamError {
        match error {
            MessageError::TooLarge(length) => StreamError::TooLarge { length, max: self.max_message_bytes },
            MessageError::Compressed => {
                StreamError::Malformed("a compressed message, which was not requested")
            }
            MessageError::Malformed => StreamError::Malformed("bytes that are not a gRPC message"),
        }
    }
}

/// Returns the status in headers or trailers.
fn status(headers: &HeaderMap) -> Option<StreamError> {
    let text = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        let decoded = percent_decode_str(value).decode_utf8_lossy();
        Some(decoded.chars().take(300).flat_map(char::escape_debug).collect::<String>())
    };
    let code = text("grpc-status")?;
    let message = text("grpc-message").filter(|it| !it.is_empty());
    Some(StreamError::Ended { code, message: message.map_or_else(String::new, |it| format!(": {it}")) })
}

async fn connect(settings: &XdsSettings) -> Result<SendRequest<Channel<Bytes>>, String> {
    let server = &settings.server;
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
    let stream = stream.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).and_then(|()| keep_alive(&stream)).map_err(|error| error.to_string())?;
    let Some(tls) = &settings.tls else { return handshake(stream).await };
    let name = settings.server_name.as_ref().unwrap_or(&server.host).clone();
    let name = ServerName::try_from(name.clone()).map_err(|_| format!("{name} is not a name for TLS"))?;
    let mut config = (*tls()?).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connected = TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await;
    handshake(connected.map_err(|error| tls_error(&error))?).await
}

fn tls_error(error: &io::Error) -> String {
    format!("TLS failed: {error}")
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Channel<Bytes>>, String> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| causes(&error))?;
    // Ends when the stream is dropped or the server closes.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the configuration server ended");
        }
    });
    Ok(sender)
}

/// Returns an error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
