//! A small HTTP client for spans and alerts.
//!
//! It keeps one connection and sends one message at a time; callers queue further messages. It is not
//! on the path of a request.
//!
//! The messages and retries are in `traces` and `webhook`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::configuration::{Endpoint, LoadPhase, Receiver};
use crate::failure::Failure;

/// The timeout of one message, from connecting to the end of the response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of response bytes that are discarded to reuse the connection.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Sends messages to one receiver.
pub(crate) struct HttpSender {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
    kept: Option<SendRequest<Full<Bytes>>>,
}

/// The reason why a message was not delivered.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The receiver refused it permanently.
    Refused(u16),
    /// A retry may succeed.
    Failed(String),
}

impl HttpSender {
    /// Creates a sender without connecting.
    pub(crate) fn new(receiver: &Receiver) -> Result<Self, Failure> {
        let tls = receiver.tls(LoadPhase::First)?.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Self { endpoint: receiver.endpoint.clone(), tls, kept: None })
    }

    /// Returns the receiver.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Posts JSON to a path below the endpoint.
    pub(crate) async fn post(&mut self, below: &str, json: Bytes) -> Result<(), SendError> {
        let status = match timeout(SEND_TIMEOUT, self.exchange(below, json)).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return Err(SendError::Failed(error)),
            Err(_late) => {
                self.kept = None;
                return Err(SendError::Failed(format!("no answer within {SEND_TIMEOUT:?}")));
            }
        };
        match status {
            200..=299 => Ok(()),
            408 | 425 | 429 | 500..=599 => Err(SendError::Failed(format!("answered {status}"))),
            _ => Err(SendError::Refused(status)),
        }
    }

    async fn exchange(&mut self, below: &str, json: Bytes) -> Result<u16, String> {
        // A connection that the peer has closed is not ready, and is replaced.
        let kept = match self.kept.take() {
            Some(mut kept) => kept.ready().await.is_ok().then_some(kept),
            None => None,
        };
        let mut sender = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let request = Request::post(self.endpoint.target(below))
            .header(HOST, self.endpoint.authority())
            .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(json))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        if Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect().await.is_ok() {
            self.kept = Some(sender);
        }
        Ok(status)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let text = |error: &dyn fmt::Display| error.to_string();
        let address = (self.endpoint.host(), self.endpoint.port());
        let stream = TcpStream::connect(address).await.map_err(|error| text(&error))?;
        stream.set_nodelay(true).map_err(|error| text(&error))?;
        match &self.tls {
            None => speak(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.endpoint.host().to_owned());
                let name = name.map_err(|error| text(&error))?;
                speak(tls.connect(name, stream).await.map_err(|error| text(&error))?).await
            }
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, String> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // Ends when the sender is dropped or the peer closes.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an outgoing connection ended");
        }
    });
    Ok(sender)
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "answered {status}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}
