//! The bytes of one connection, under TLS or not.
//!
//! Notes what the client is waited for (`conn_timer`), hands out again what was read
//! to find out which protocol is spoken, and closes without losing the last
//! answer: a socket that is closed with unread bytes in it is reset, and a
//! client in the middle of an upload would never see why it was refused.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use crate::conn_timer::ConnTimer;

/// How long, and how much, a client may still send after the last answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 64 << 20;

/// A stream of bytes, under TLS or not.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The bytes of one connection.
pub(crate) struct Wire {
    transport: Transport,
    /// What was read already, to be read again.
    ahead: Bytes,
    conn_timer: Arc<ConnTimer>,
    lingering: Option<LingeringClose>,
    /// The connection's place, which it keeps when its protocol changes.
    _slot: Option<OwnedSemaphorePermit>,
}

/// The end of a connection: our side is closed, the client's is read until it is too.
struct LingeringClose {
    deadline: Pin<Box<Sleep>>,
    left: usize,
}

impl Wire {
    pub(crate) const fn new(
        transport: Transport,
        ahead: Bytes,
        conn_timer: Arc<ConnTimer>,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { transport, ahead, conn_timer, lingering: None, _slot: slot }
    }

    /// Puts back what was read and not used.
    pub(crate) fn put_back(&mut self, ahead: Bytes) {
        self.ahead = ahead;
    }

    /// Waits until the client says something more, or closes.
    pub(crate) async fn more(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Plain(stream) => stream.readable().await,
            Transport::Tls(stream) => {
                // Only what is decrypted tells whether anything was said.
                let mut some = [0; 64];
                let count = stream.read(&mut some).await?;
                self.ahead = Bytes::copy_from_slice(&some[..count]);
                self.conn_timer.read();
                Ok(())
            }
        }
    }

    fn note_write<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            self.conn_timer.blocked();
        } else {
            self.conn_timer.wrote();
        }
        written
    }
}

/// Resets a connection that is given up while its client takes nothing: closed in any
/// other way, the kernel would keep what is left of the answer, and offer it for minutes.
/// Of an answer that was cut off in its middle the client may take what was sent so far, but
/// not for longer than others may at their end.
impl Drop for Wire {
    fn drop(&mut self) {
        if !self.conn_timer.is_stalled() && !self.conn_timer.is_cut() {
            return;
        }
        let stream = match &self.transport {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => stream.get_ref().0,
        };
        // A socket that is broken already keeps nothing.
        let _ = if self.conn_timer.is_stalled() {
            SockRef::from(stream).set_linger(Some(Duration::ZERO))
        } else {
            SockRef::from(stream).set_tcp_user_timeout(Some(LINGER_TIMEOUT))
        };
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.has_remaining() {
            let some = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead.split_to(some));
            if !self.ahead.has_remaining() {
                // An empty rest would keep all of it, for as long as the connection lives.
                self.ahead = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.transport).poll_read(cx, buffer);
        if read.is_ready() {
            self.conn_timer.read();
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write(cx, bytes);
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write_vectored(cx, slices);
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    /// Closes our side, then reads what the client still sends, for a while.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = &mut *self;
        wire.conn_timer.end();
        if wire.lingering.is_none() {
            ready!(Pin::new(&mut wire.transport).poll_shutdown(cx))?;
            if wire.conn_timer.is_long_idle() {
                // Nobody was in the middle of anything.
                return Poll::Ready(Ok(()));
            }
        }
        let lingering = wire.lingering.get_or_insert_with(|| LingeringClose {
            deadline: Box::pin(tokio::time::sleep(LINGER_TIMEOUT)),
            left: MAX_LINGER_BYTES,
        });
        let mut scrap = [0; 8 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut scrap);
            let read = Pin::new(&mut wire.transport).poll_read(cx, &mut buffer);
            let some = buffer.filled().len();
            match read {
                Poll::Ready(Ok(())) if some > 0 && lingering.left > some => lingering.left -= some,
                // Closed, broken, or more than anybody needs to hear.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return lingering.deadline.as_mut().poll(cx).map(Ok),
            }
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::drain::Drain;

    /// How long closing takes while the client keeps its side open, some time after an answer.
    async fn closing_takes(after: Duration) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let conn_timer = ConnTimer::of_heads(Drain::new().1.ending());
        drop(conn_timer.begin());
        let mut wire = Wire::new(Transport::Plain(stream), Bytes::new(), conn_timer, None);
        tokio::time::advance(after).await;
        let begun = Instant::now();
        wire.shutdown().await.unwrap();
        drop(client);
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_idle_for_long_is_not_waited_for() {
        assert_eq!(closing_takes(Duration::from_secs(5)).await, Duration::ZERO);
        let waited = closing_takes(Duration::from_millis(100)).await;
        assert!(waited >= LINGER_TIMEOUT, "what it was just refused it may still be sending: {waited:?}");
    }
}
