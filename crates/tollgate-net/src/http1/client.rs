//! The client of a request that is forwarded: the rest of its body, its presence, and its response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::buffer::Buffer;
use crate::conn_timer::{ConnTimer, RequestGuard};
use crate::wire::Wire;

/// The client of one request.
pub struct Http1Client<'c> {
    pub(super) wire: &'c mut Wire,
    pub(super) conn_timer: &'c ConnTimer,
    /// Bytes that were read and not used: the start of the body, or of the next request.
    pub(super) input: &'c mut Option<Buffer>,
    /// The bytes of the body that were not taken yet.
    pub(super) body_left: u64,
    /// Whether the client asked for the end of the connection.
    pub(super) is_last: bool,
    /// The request in progress.
    pub(super) running: RequestGuard,
}

/// A piece of the body of a request.
#[derive(Debug)]
pub enum ClientBody {
    /// These bytes are unread in the buffer.
    Bytes(Buffer),
    /// The client left before the end of the body.
    Left,
}

impl Http1Client<'_> {
    /// The number of bytes of the body that were not taken yet.
    pub const fn body_left(&self) -> u64 {
        self.body_left
    }

    /// Whether the connection ends after this response: the client asked for it, or the server drains.
    pub fn is_last(&self) -> bool {
        self.is_last || self.running.is_last()
    }

    /// Takes a part of the body. Must not be called without a rest of the body.
    pub fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<ClientBody> {
        if let Some(input) = self.input.take() {
            return Poll::Ready(ClientBody::Bytes(self.split(input)));
        }
        let mut buffer = Buffer::take();
        match buffer.poll_fill(Pin::new(&mut *self.wire), self.body_left, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(count @ 1..)) => {
                self.body_left -= count as u64;
                Poll::Ready(ClientBody::Bytes(buffer))
            }
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(ClientBody::Left),
        }
    }

    /// Takes the body from bytes that were read with the head, and leaves the rest for the next request.
    fn split(&mut self, mut input: Buffer) -> Buffer {
        let unread = input.unread().len();
        let of_body = usize::try_from(self.body_left).unwrap_or(usize::MAX).min(unread);
        self.body_left -= of_body as u64;
        if of_body < unread {
            let mut next = Buffer::take();
            next.put(&input.unread()[of_body..]);
            *self.input = Some(next);
            input.truncate(of_body);
        }
        input
    }

    /// Resolves when the client has left. A client that has sent its next request already is not watched, nor one that
    /// still sends its body.
    pub fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.body_left > 0 || self.input.is_some() {
            return Poll::Pending;
        }
        let mut buffer = Buffer::take();
        match buffer.poll_fill(Pin::new(&mut *self.wire), u64::MAX, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(1..)) => {
                *self.input = Some(buffer);
                Poll::Pending
            }
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(()),
        }
    }

    /// Writes a part of the response.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.wire).poll_write(cx, bytes)
    }

    /// Writes what a TLS session holds back.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.wire).poll_flush(cx)
    }

    /// Records that the response was aborted, so that the client cannot take it for complete.
    pub fn abort(&self) {
        self.conn_timer.cut();
    }
}

impl std::fmt::Debug for Http1Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Client").field("body_left", &self.body_left).finish_non_exhaustive()
    }
}
