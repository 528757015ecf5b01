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
use tower_service::Service;

use crate::http_url::HttpUrl;
use crate::keep_alive::keep_alive;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens connections to one service, whatever URI is called.
#[derive(Clone)]
pub struct Connector {
    url: Arc<HttpUrl>,
    tls: Option<TlsConnector>,
}

impl Connector {
    /// Creates a connector. `tls` is used for `https` only, and required for it; its `alpn_protocols` are the versions of
    /// HTTP that the pool may get.
    pub fn new(url: HttpUrl, tls: Option<Arc<ClientConfig>>) -> Self {
        let tls = tls.filter(|_| url.is_secure()).map(TlsConnector::from);
        Self { url: Arc::new(url), tls }
    }

    async fn open(self) -> io::Result<UpstreamStream> {
        let stream = TcpStream::connect((self.url.host(), self.url.port())).await?;
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        if self.url.is_secure() && self.tls.is_none() {
            return Err(io::Error::other("TLS is not configured"));
        }
        let Some(tls) = self.tls else { return Ok(UpstreamStream(Transport::Plain(TokioIo::new(stream)))) };
        let name = ServerName::try_from(self.url.host().to_owned()).map_err(io::Error::other)?;
        Ok(UpstreamStream(Transport::Tls(Box::new(TokioIo::new(tls.connect(name, stream).await?)))))
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
pub struct UpstreamStream(Transport);

enum Transport {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for UpstreamStream {
    fn connected(&self) -> Connected {
        match &self.0 {
            Transport::Tls(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
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
        match &mut self.get_mut().0 {
            Transport::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

impl Write for UpstreamStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Transport::Plain(stream) => Pin::new(stream).poll_write(context, data),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_write(context, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(context),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
