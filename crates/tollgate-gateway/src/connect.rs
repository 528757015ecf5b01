//! Opens connections to upstreams.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::Sleep;
use tokio_rustls::TlsConnector;

use crate::body::Upload;
use crate::half_close::{HalfClose, HalfCloseStream};
use crate::upstream::{Origin, Protocol};

/// An HTTP/1.1 connection, used by one request at a time. Dropping it closes the connection even
/// while a request is being written: an upstream that stops reading would otherwise keep the
/// connection, and the client's connection with it.
pub(crate) struct Line {
    pub(crate) sender: http1::SendRequest<Upload>,
    /// The response timeout. The timer is reused between requests, because resetting it is cheaper
    /// than creating one.
    pub(crate) timer: Pin<Box<Sleep>>,
    pub(crate) half_close: HalfClose,
    task: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection to an upstream, ready for a request.
pub(crate) enum Sender {
    One(Line),
    Two(Shared),
}

impl Sender {
    /// Returns what closes the sending side. `None` with HTTP/2, whose connection other requests share.
    pub(crate) fn half_close(&self) -> Option<HalfClose> {
        match self {
            Self::One(line) => Some(line.half_close.clone()),
            Self::Two(_) => None,
        }
    }
}

/// An HTTP/2 connection, shared by concurrent requests.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) sender: http2::SendRequest<Upload>,
    /// The users of the connection: the pool, and each request.
    users: Arc<()>,
}

impl Shared {
    /// Whether another request gets its full share of the flow-control window: slow clients must
    /// not block others.
    pub(crate) fn has_room(&self) -> bool {
        // The pool is one of the users.
        Arc::strong_count(&self.users) <= MAX_STREAMS_PER_CONNECTION as usize
    }
}

/// The reason why connecting failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// The gateway has no sockets left; the upstream did not fail.
    #[error("out of sockets")]
    OutOfSockets(#[source] io::Error),
    #[error("{0}")]
    Failed(io::Error),
}

/// The maximum number of bytes of a response that are read ahead of the client, and the maximum
/// size of its head. This is the memory cost of a slow client.
const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;

/// The maximum number of requests on an HTTP/2 connection, and the window of each. Together they
/// never exhaust the window of the connection.
const MAX_STREAMS_PER_CONNECTION: u32 = 100;
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;

/// Opens connections to upstreams.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    most: Duration,
    header_bytes: usize,
}

impl Connector {
    /// Creates a connector. `authorities` are PEM certificates to trust instead of the public ones.
    pub(crate) fn new(authorities: Option<&[u8]>, most: Duration) -> Result<Self, rustls::Error> {
        let mut config = tollgate_net::client_tls(authorities)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), most, header_bytes: MAX_READ_AHEAD_BYTES })
    }

    pub(crate) async fn connect(&self, origin: &Origin) -> Result<Sender, ConnectError> {
        self.within_timeout(self.open(origin)).await
    }

    async fn within_timeout<T>(
        &self,
        connecting: impl Future<Output = io::Result<T>>,
    ) -> Result<T, ConnectError> {
        match tokio::time::timeout(self.most, connecting).await {
            Err(_) => Err(ConnectError::TimedOut(self.most)),
            Ok(Err(error)) if is_out_of_sockets(&error) => Err(ConnectError::OutOfSockets(error)),
            Ok(Err(error)) => Err(ConnectError::Failed(error)),
            Ok(Ok(connected)) => Ok(connected),
        }
    }

    /// Connects without TLS and without hyper.
    pub(crate) async fn connect_plain(&self, origin: &Origin) -> Result<TcpStream, ConnectError> {
        self.within_timeout(connect_tcp(origin)).await
    }

    async fn open(&self, origin: &Origin) -> io::Result<Sender> {
        let stream = connect_tcp(origin).await?;
        match origin.protocol {
            Protocol::Plain => self.http1(stream).await,
            Protocol::Http2 => http2(stream).await,
            Protocol::Tls => {
                let name = ServerName::try_from(origin.host.to_string()).map_err(io::Error::other)?;
                let stream = self.tls.connect(name, stream).await?;
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => http2(stream).await,
                    _ => self.http1(stream).await,
                }
            }
        }
    }

    async fn http1(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Sender> {
        let mut builder = http1::Builder::new();
        // Most requests have no body, so a single plain write is fastest.
        builder.max_buf_size(self.header_bytes).writev(false);
        let (stream, half_close) = HalfCloseStream::new(stream);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to an upstream ended");
            }
        });
        let timer = Box::pin(tokio::time::sleep(self.most));
        Ok(Sender::One(Line { sender, timer, half_close, task: task.abort_handle() }))
    }
}

async fn connect_tcp(origin: &Origin) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((&*origin.host, origin.port)).await?;
    stream.set_nodelay(true)?;
    tollgate_net::keep_alive(&stream)?;
    Ok(stream)
}

async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(20))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(STREAM_WINDOW_BYTES * (MAX_STREAMS_PER_CONNECTION + 1))
        .max_send_buf_size(MAX_READ_AHEAD_BYTES);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to an upstream ended");
        }
    });
    Ok(Sender::Two(Shared { sender, users: Arc::default() }))
}

/// Whether the process has too many open files or no local port left.
fn is_out_of_sockets(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) || error.kind() == io::ErrorKind::AddrNotAvailable
}
