//! The byte stream of one HTTP connection, with or without TLS.
//!
//! It records waits for the client (`conn_timer`), replays the bytes that were read to detect the
//! protocol, and closes without losing the last response: a socket that is closed with unread bytes
//! is reset, and a client in the middle of an upload would never see the refusal.

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
use tokio_util::either::Either;

use crate::conn_timer::ConnTimer;
use crate::http1::FramingGuard;

/// How long, and how many bytes, a client may still send after the last response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 64 << 20;

/// A byte stream: without TLS on the left, with TLS on the right.
pub(crate) type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Returns the socket below a byte stream.
pub(crate) fn socket(transport: &Transport) -> SockRef<'_> {
    SockRef::from(match transport {
        Either::Left(stream) => stream,
        Either::Right(stream) => stream.get_ref().0,
    })
}

/// The byte stream of one connection.
pub(crate) struct Wire {
    transport: Transport,
    /// Bytes that were read already and are read again.
    ahead: Bytes,
    /// Whether the guard has checked these bytes.
    is_ahead_checked: bool,
    /// Checks the requests that hyper reads. Boxed, so that an idle connection stays small.
    guard: Option<Box<FramingGuard>>,
    conn_timer: Arc<ConnTimer>,
    lingering: Option<LingeringClose>,
    /// The permit of the connection, which it keeps after an upgrade.
    _slot: Option<OwnedSemaphorePermit>,
}

/// A lingering close: the sending side is closed, and the client's side is read until it closes.
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
        Self {
            transport,
            ahead,
            is_ahead_checked: false,
            guard: None,
            conn_timer,
            lingering: None,
            _slot: slot,
        }
    }

    /// Whether the other end has refused bytes, because it has closed its socket.
    pub(crate) fn is_broken(&self) -> bool {
        !matches!(socket(&self.transport).take_error(), Ok(None))
    }

    /// Checks the bytes that are read from here on, which start with a request.
    pub(crate) fn start_guard(&mut self) {
        self.guard = Some(Box::default());
    }

    /// Stops checking.
    pub(crate) fn stop_guard(&mut self) {
        self.guard = None;
    }

    /// Puts back bytes that were read and checked but not used.
    pub(crate) fn put_back(&mut self, ahead: Bytes) {
        (self.ahead, self.is_ahead_checked) = (ahead, true);
    }

    /// Puts back bytes that were read, before those that were put back earlier.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.is_ahead_checked = false;
        self.ahead = if self.ahead.is_empty() {
            Bytes::copy_from_slice(bytes)
        } else {
            [bytes, &self.ahead].concat().into()
        };
    }

    /// Waits until the client sends more bytes or closes.
    pub(crate) async fn more(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Either::Left(stream) => stream.readable().await,
            Either::Right(stream) => {
                // Only decrypted bytes tell whether the client sent data.
                let mut some = [0; 64];
                let count = stream.read(&mut some).await?;
                (self.ahead, self.is_ahead_checked) = (Bytes::copy_from_slice(&some[..count]), false);
                self.conn_timer.read();
                Ok(())
            }
        }
    }

    /// Whether the guard holds back the next bytes: they follow a request for an upgrade that is in progress. hyper reads
    /// again after its response, on the same task.
    fn is_held_back(&mut self) -> bool {
        if self.guard.is_some() && self.conn_timer.is_upgraded() {
            self.guard = None;
        }
        let Some(guard) = self.guard.as_mut().filter(|it| it.awaits_upgrade()) else { return false };
        let is_running = self.conn_timer.is_running();
        if !is_running {
            guard.resume();
        }
        is_running && self.ahead.has_remaining()
    }

    /// Checks the bytes of a buffer after `start`, and removes those that hyper must not read.
    fn poll_check(&mut self, buffer: &mut ReadBuf<'_>, start: usize) -> Poll<io::Result<()>> {
        let Some(guard) = &mut self.guard else { return Poll::Ready(Ok(())) };
        let bytes = &mut buffer.filled_mut()[start..];
        let passed = guard.check(bytes);
        let (is_empty, error) = (bytes.is_empty(), guard.error());
        if error.is_none() && passed < bytes.len() {
            let held = bytes[passed..].to_vec();
            self.unread(&held);
        }
        buffer.set_filled(start + passed);
        match error {
            _ if passed > 0 || is_empty => Poll::Ready(Ok(())),
            // hyper would take no byte for the end of the connection.
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
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

/// Resets a connection that is dropped while its client does not read. After an ordinary close the
/// kernel would keep the rest of the response for minutes. After an aborted response, the client
/// may read the bytes sent so far, but not for longer than the linger timeout.
impl Drop for Wire {
    fn drop(&mut self) {
        if !self.conn_timer.is_stalled() && !self.conn_timer.is_cut() {
            return;
        }
        // A broken socket has no bytes left.
        let _ = if self.conn_timer.is_stalled() {
            socket(&self.transport).set_linger(Some(Duration::ZERO))
        } else {
            socket(&self.transport).set_tcp_user_timeout(Some(LINGER_TIMEOUT))
        };
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        if let Some(error) = self.guard.as_ref().and_then(|guard| guard.error())
            && !(self.is_ahead_checked && self.ahead.has_remaining())
        {
            return Poll::Ready(Err(error));
        }
        if self.is_held_back() {
            return Poll::Pending;
        }
        if self.ahead.has_remaining() {
            let some = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead.split_to(some));
            if !self.ahead.has_remaining() {
                // An empty slice would keep the whole buffer alive.
                self.ahead = Bytes::new();
            }
            let is_checked = self.is_ahead_checked;
            return if is_checked { Poll::Ready(Ok(())) } else { self.poll_check(buffer, start) };
        }
        ready!(Pin::new(&mut self.transport).poll_read(cx, buffer))?;
        self.conn_timer.read();
        self.poll_check(buffer, start)
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

    /// Closes the sending side, then reads from the client for a while.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = &mut *self;
        wire.conn_timer.end();
        if wire.lingering.is_none() {
            ready!(Pin::new(&mut wire.transport).poll_shutdown(cx))?;
            if wire.conn_timer.is_long_idle() {
                // No upload was in progress.
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
                // Closed, broken, or over the bound.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return lingering.deadline.as_mut().poll(cx).map(Ok),
            }
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

    /// Measures how long closing takes while the client keeps its side open, some time after a
    /// response.
    async fn closing_takes(after: Duration) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let conn_timer = ConnTimer::of_heads(Drain::new().1.ending());
        drop(conn_timer.begin());
        let mut wire = Wire::new(Either::Left(stream), Bytes::new(), conn_timer, None);
        tokio::time::advance(after).await;
        let started_at = Instant::now();
        wire.shutdown().await.unwrap();
        drop(client);
        started_at.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn closing_does_not_wait_for_idle_clients() {
        assert_eq!(closing_takes(Duration::from_secs(5)).await, Duration::ZERO);
        let waited = closing_takes(Duration::from_millis(100)).await;
        assert!(waited >= LINGER_TIMEOUT, "what it was just refused it may still be sending: {waited:?}");
    }
}
