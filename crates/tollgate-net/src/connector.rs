//! Connections to services, with and without TLS, for the connection pool of `hyper-util`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_net::HttpUrl;
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens connections to one service.
#[derive(Clone)]
pub(crate) struct Connector {
    url: Arc<HttpUrl>,
    tls: Option<TlsConnector>,
}

impl Connector {
    /// Creates a connector. `authorities` are PEM certificates to trust instead of the public ones.
    pub(crate) fn new(url: HttpUrl, authorities: Option<&[u8]>) -> Result<Self, rustls::Error> {
        let tls = |mut config: ClientConfig| {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        let tls = url.is_secure().then(|| tollgate_net::client_tls(authorities).map(tls)).transpose()?;
        Ok(Self { url: Arc::new(url), tls })
    }

    async fn open(self) -> io::Result<UpstreamStream> {
        let stream = TcpStream::connect((self.url.host(), self.url.port())).await?;
        stream.set_nodelay(true)?;
        tollgate_net::keep_alive(&stream)?;
        let Some(tls) = self.tls else { return Ok(UpstreamStream::Plain(TokioIo::new(stream))) };
        let name = ServerName::try_from(self.url.host().to_owned()).map_err(io::Error::other)?;
        Ok(UpstreamStream::Tls(Box::new(TokioIo::new(tls.connect(name, stream).await?))))
    }
}

impl Service<Uri> for Connector {
    type Response = UpstreamStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<UpstreamStream>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let opened = tokio::time::timeout(CONNECT_TIMEOUT, connector.open()).await;
            opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

/// A connection to a service.
pub(crate) enum UpstreamStream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for UpstreamStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tls(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

impl Write for UpstreamStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, data),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(context, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
