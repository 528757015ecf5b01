//! Posts spans and alerts to their receivers.
//!
//! It keeps one connection and sends one message at a time; callers queue further messages. It is not
//! on the path of a request.
//!
//! HTTP is in `tollgate_net`, the messages and retries are in `traces` and `webhook`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use tokio::time::timeout;
use tollgate_net::{ClientRequest, HttpClient};

use crate::configuration::{Endpoint, LoadPhase, Receiver};
use crate::failure::Failure;

/// The timeout of one message, from connecting to the end of the response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of response bytes that are discarded to reuse the connection.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Sends messages to one receiver.
pub(crate) struct HttpSender {
    endpoint: Endpoint,
    client: HttpClient,
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
        let (endpoint, tls) = (receiver.endpoint.clone(), receiver.tls(LoadPhase::First)?.map(Arc::new));
        let client = HttpClient::new(endpoint.url().clone(), tls, MAX_RESPONSE_BYTES);
        Ok(Self { endpoint, client })
    }

    /// Returns the receiver.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Posts JSON to a path below the endpoint.
    pub(crate) async fn post(&mut self, path: &str, json: Bytes) -> Result<(), SendError> {
        let request = ClientRequest { method: Method::POST, path, json: Some(json), token: None };
        // A response with an unusable body counts by its status.
        let status = match timeout(SEND_TIMEOUT, self.client.send(request)).await {
            Ok(Ok(response)) => response.status.as_u16(),
            Ok(Err(error)) => return Err(SendError::Failed(error.to_string())),
            Err(_late) => return Err(SendError::Failed(format!("no answer within {SEND_TIMEOUT:?}"))),
        };
        match status {
            200..=299 => Ok(()),
            408 | 425 | 429 | 500..=599 => Err(SendError::Failed(format!("answered {status}"))),
            _ => Err(SendError::Refused(status)),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "answered {status}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}
