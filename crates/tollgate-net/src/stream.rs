//! A server for byte streams, for protocols other than HTTP: accepts, does TLS if configured, and
//! drains.
//!
//! Not here: accepting (`accept`), the protocol and its timeouts.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;

use crate::accept::accept_all;
use crate::drain::{Drain, Phase};
use crate::keep_alive::keep_alive;
use crate::tls::Tls;
use crate::wire::{Transport, socket};

/// How long, and how many bytes, a client may still send after the last reply.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 1 << 20;

/// The configuration of a stream server.
#[derive(Clone)]
pub struct StreamServer {
    /// The maximum number of connections of a worker. Further connections wait to be accepted.
    pub connections: usize,
    /// The timeout of a TLS handshake.
    pub handshake: Duration,
    /// Serves TLS if set.
    pub tls: Option<Tls>,
}

/// The byte stream of one connection.
pub struct Stream {
    transport: Transport,
    peer: SocketAddr,
}

impl StreamServer {
    /// Serves all connections of a listener until draining has ended and the last connection has
    /// closed. Each connection observes the drain, and must end itself when idle connections are to
    /// be closed ([`Drain::closing`]).
    pub async fn serve<Serve, F>(self, listener: StdListener, serve: Serve, drain: Drain) -> io::Result<()>
    where
        Serve: Fn(Stream, Drain) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (connections, accepting) = (self.connections, drain.clone());
        let shared = Arc::new((self, serve, drain));
        accept_all(listener, connections, accepting, |stream, peer, slot| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let (server, serve, drain) = &*shared;
                let mut closing = drain.clone();
                let opened = tokio::select! {
                    opened = timeout(server.handshake, server.open(stream, peer)) => opened,
                    () = closing.reached(Phase::Closing) => return,
                };
                match opened {
                    Ok(Ok(stream)) => serve(stream, closing).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "connection refused"),
                    Err(_late) => tracing::debug!(%peer, "the handshake timed out"),
                }
                drop(slot);
            });
        })
        .await
    }

    async fn open(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        let transport = match &self.tls {
            Some(tls) => Either::Right(Box::new(tls.acceptor().accept(stream).await?)),
            None => Either::Left(stream),
        };
        Ok(Stream { transport, peer })
    }
}

impl Stream {
    /// Returns the peer address.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Closes the connection without losing the last reply. A socket that is closed with unread
    /// bytes is reset, and its client may never see the reply. The client's side is therefore read
    /// for a while after the sending side is closed.
    pub async fn close(mut self) {
        let closed = async {
            self.shutdown().await?;
            let (mut scrap, mut left) = (vec![0; 4 * 1024], MAX_LINGER_BYTES);
            loop {
                match self.read(&mut scrap).await? {
                    some @ 1.. if some < left => left -= some,
                    _ => return Ok::<_, io::Error>(()),
                }
            }
        };
        // The connection ends in any case.
        let _over = timeout(LINGER_TIMEOUT, closed).await;
    }

    /// Resets the connection of a client that does not read. After an ordinary close the kernel
    /// would keep the remaining bytes for minutes.
    pub fn reset(self) {
        // A broken socket has no bytes left.
        let _ = socket(&self.transport).set_linger(Some(Duration::ZERO));
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
