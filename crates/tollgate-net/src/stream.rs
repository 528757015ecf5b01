//! Streams of bytes on a listener, for protocols that are not HTTP: accepted, under TLS where
//! that is wanted, and drained.
//!
//! Not here: accepting (`accept`), and what the bytes mean. Whoever serves a stream sees to its
//! own timeouts.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::accept::accept_all;
use crate::drain::{Drain, Phase};
use crate::keep_alive::keep_alive;
use crate::tls::Tls;
use crate::wire::Transport;

/// How long, and how much, a client may still send after the last answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 1 << 20;

/// How streams are served.
#[derive(Clone)]
pub struct StreamServer {
    /// The most connections at once, on one worker. More wait to be accepted.
    pub connections: usize,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// Serves TLS if set.
    pub tls: Option<Tls>,
}

/// The bytes of one connection.
pub struct Stream {
    transport: Transport,
    peer: SocketAddr,
}

impl StreamServer {
    /// Serves every connection that arrives, until draining has ended: that is when the last
    /// connection has. Each sees the drain, and ends by itself when idle ones are to be closed
    /// ([`Drain::closing`]).
    pub async fn serve<Serve, F>(self, listener: StdListener, serve: Serve, drain: Drain) -> io::Result<()>
    where
        Serve: Fn(Stream, Drain) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (connections, begun) = (self.connections, drain.clone());
        let shared = Arc::new((self, serve, drain));
        accept_all(listener, connections, begun, |stream, peer, slot| {
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
                    Err(_late) => tracing::debug!(%peer, "nothing was said in time"),
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
            Some(tls) => Transport::Tls(Box::new(tls.acceptor.accept(stream).await?)),
            None => Transport::Plain(stream),
        };
        Ok(Stream { transport, peer })
    }
}

impl Stream {
    /// Who connected.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Closes without losing the last answer: a socket that is closed with unread bytes in it
    /// is reset, and its client may never see what it was told. So the client's side is read
    /// for a while after ours is closed.
    pub async fn close(mut self) {
        let closed = async {
            self.shutdown().await?;
            let (mut scrap, mut left) = ([0; 4 * 1024], MAX_LINGER_BYTES);
            loop {
                match self.read(&mut scrap).await? {
                    some @ 1.. if some < left => left -= some,
                    _ => return Ok::<_, io::Error>(()),
                }
            }
        };
        // Whether it took long or broke: it is over.
        let _over = timeout(LINGER_TIMEOUT, closed).await;
    }

    /// Gives up a client that takes nothing: closed in any other way, the kernel would keep
    /// what is left for it, and offer it for minutes.
    pub fn reset(self) {
        let stream = match &self.transport {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => stream.get_ref().0,
        };
        // A socket that is broken already keeps nothing.
        let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
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
