//! A small HTTP/1.1 client for JSON: one service, one request at a time.
//!
//! It has no redirects and no pool: it keeps at most one connection. Heads and bodies of responses are
//! bounded. The caller bounds the time of an exchange; only connecting has its own timeout.
//!
//! The upstreams of the gateway have their own pools (`tollgate_gateway`), because they stream bodies,
//! speak HTTP/2 and pass upgrades.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::http_url::HttpUrl;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Sends requests to one service.
pub struct HttpClient {
    url: HttpUrl,
    tls: Option<TlsConnector>,
    max_body_bytes: usize,
    kept: Option<SendRequest<Full<Bytes>>>,
}

/// A request to a path below the URL of a client.
#[derive(Clone, Debug)]
pub struct ClientRequest<'r> {
    /// The method.
    pub method: Method,
    /// The path below the URL: empty, or `/v1/traces`.
    pub path: &'r str,
    /// The body in JSON.
    pub json: Option<Bytes>,
    /// The bearer token.
    pub token: Option<&'r str>,
}

/// A response to a client.
#[derive(Debug)]
pub struct ClientResponse {
    /// The status.
    pub status: StatusCode,
    /// The body, or the reason why it was not read to its end.
    pub body: Result<Bytes, HttpClientError>,
}

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpClientError {
    /// The service cannot be reached.
    #[error(transparent)]
    Connect(io::Error),
    /// The connection failed, or TLS on it.
    #[error(transparent)]
    Connection(io::Error),
    /// The response is not HTTP/1.1, or is incomplete.
    #[error(transparent)]
    Protocol(hyper::Error),
    /// The body is longer than the client permits.
    #[error("it is too large")]
    TooLarge,
    /// The request has characters that no header can carry.
    #[error(transparent)]
    Request(#[from] http::Error),
}

impl From<hyper::Error> for HttpClientError {
    fn from(error: hyper::Error) -> Self {
        match connection_error(&error) {
            Some(lost) => Self::Connection(lost),
            None => Self::Protocol(error),
        }
    }
}

/// Returns the failure of the connection that caused an error of HTTP.
fn connection_error(error: &hyper::Error) -> Option<io::Error> {
    // A request that was canceled has the failure as the cause of its cause.
    let mut causes = iter::successors(error.source(), |&cause| cause.source());
    let cause = causes.find_map(|cause| cause.downcast_ref::<io::Error>())?;
    let tls = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    Some(match (tls, cause.raw_os_error()) {
        (Some(tls), _) => io::Error::new(cause.kind(), tls.clone()),
        (None, Some(number)) => io::Error::from_raw_os_error(number),
        (None, None) => io::Error::new(cause.kind(), cause.to_string()),
    })
}

impl HttpClient {
    /// Creates a client without connecting. `tls` is used for `https` only, and required for it.
    pub fn new(url: HttpUrl, tls: Option<Arc<ClientConfig>>, max_body_bytes: usize) -> Self {
        let tls = tls.filter(|_| url.is_secure()).map(TlsConnector::from);
        Self { url, tls, max_body_bytes, kept: None }
    }

    /// Returns the URL of the service.
    pub const fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Sends a request, and reads the response. Dropping the future closes the connection.
    pub async fn send(&mut self, request: ClientRequest<'_>) -> Result<ClientResponse, HttpClientError> {
        let request = self.build(request)?;
        // A connection that the peer has closed is not ready, and is replaced.
        let kept = match self.kept.take() {
            Some(mut kept) => kept.ready().await.is_ok().then_some(kept),
            None => None,
        };
        let mut sender = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), self.max_body_bytes).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() {
                return HttpClientError::TooLarge;
            }
            match error.downcast::<hyper::Error>() {
                Ok(error) => (*error).into(),
                Err(other) => HttpClientError::Connection(io::Error::other(other)),
            }
        });
        if body.is_ok() {
            self.kept = Some(sender);
        }
        Ok(ClientResponse { status, body })
    }

    fn build(&self, request: ClientRequest<'_>) -> Result<Request<Full<Bytes>>, HttpClientError> {
        let ClientRequest { method, path, json, token } = request;
        let mut built = Request::builder()
            .method(method)
            .uri(self.url.target(path))
            .header(HOST, self.url.authority())
            .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if json.is_some() {
            built = built.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            built = built.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(built.body(Full::new(json.unwrap_or_default()))?)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpClientError> {
        let connecting = TcpStream::connect((self.url.host(), self.url.port()));
        let connected = timeout(CONNECT_TIMEOUT, connecting).await;
        let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(HttpClientError::Connect)?;
        stream.set_nodelay(true).map_err(HttpClientError::Connect)?;
        match &self.tls {
            None if self.url.is_secure() => {
                Err(HttpClientError::Connect(io::Error::other("TLS is not configured")))
            }
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.url.host().to_owned());
                let name = name.map_err(|error| HttpClientError::Connection(io::Error::other(error)))?;
                handshake(tls.connect(name, stream).await.map_err(HttpClientError::Connection)?).await
            }
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, HttpClientError> {
    let (sender, connection) = Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await?;
    // Ends when the sender is dropped or the peer closes.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an outgoing connection ended");
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const MAX_BODY_BYTES: usize = 1 << 10;

    /// Sends a request to a server with a fixed response.
    async fn answer(said: &str) -> Result<(u16, String), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let said = said.to_owned();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                head.push(byte[0]);
            }
            let _closed = stream.write_all(said.as_bytes());
            String::from_utf8(head).unwrap()
        });
        let mut client = HttpClient::new(HttpUrl::parse(&url).unwrap(), None, MAX_BODY_BYTES);
        let request =
            ClientRequest { method: Method::GET, path: "/v1/x?y", json: None, token: Some("secret") };
        let answer = client.send(request).await;
        let head = server.join().unwrap();
        assert!(head.starts_with("GET /v1/x?y HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("Authorization: Bearer secret\r\n"), "{head}");
        let answer = answer.map_err(|error| error.to_string())?;
        let body = answer.body.map_err(|error| error.to_string())?;
        Ok((answer.status.as_u16(), String::from_utf8(body.to_vec()).unwrap()))
    }

    #[tokio::test]
    async fn every_framing_of_a_body_is_supported() {
        for (said, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, "{}"),
            ("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end"),
            (
                "HTTP/1.1 429 \r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
                429,
                "abc",
            ),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        ] {
            assert_eq!(answer(said).await, Ok((status, body.to_owned())), "{said}");
        }
    }

    #[tokio::test]
    async fn a_response_that_is_not_http_or_not_bounded_is_an_error() {
        let long_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(2 * MAX_HEAD_BYTES));
        let long_body = format!("HTTP/1.1 200 OK\r\n\r\n{}", "y".repeat(2 * MAX_BODY_BYTES));
        for said in [
            "",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
            &long_head,
            &long_body,
        ] {
            assert!(answer(said).await.is_err(), "{said:.80}");
        }
    }
}
