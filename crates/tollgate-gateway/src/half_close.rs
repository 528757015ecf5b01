//! Closes the sending side of an upstream connection that hyper owns, while its response is awaited.
//!
//! The body of a request that holds slots may fail: its client leaves, stalls or sends too much. An upstream that waits
//! for the rest would hold the slots until their `ttl`, so it is told that nothing more comes. hyper itself would close
//! both sides, and the end of the work at the upstream would not be seen.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Closes the sending side of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct HalfClose(Arc<Request>);

#[derive(Debug, Default)]
struct Request {
    is_made: AtomicBool,
    /// The task that reads from the connection.
    reader: Mutex<Option<Waker>>,
}

impl HalfClose {
    /// Closes the sending side when the task of the connection runs next.
    pub(crate) fn close(&self) {
        self.0.is_made.store(true, Ordering::SeqCst);
        if let Some(reader) = self.0.reader.lock().take() {
            reader.wake();
        }
    }

    /// Returns whether the sending side is to be closed, and registers the task that is to be woken then.
    fn poll(&self, cx: &Context<'_>) -> bool {
        let mut reader = self.0.reader.lock();
        match &mut *reader {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        drop(reader);
        self.0.is_made.load(Ordering::SeqCst)
    }
}

/// A connection whose sending side can be closed from outside.
pub(crate) struct HalfCloseStream<S> {
    stream: S,
    half_close: HalfClose,
    is_closed: bool,
}

impl<S> HalfCloseStream<S> {
    pub(crate) fn new(stream: S) -> (Self, HalfClose) {
        let half_close = HalfClose::default();
        (Self { stream, half_close: half_close.clone(), is_closed: false }, half_close)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for HalfCloseStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed && this.half_close.poll(cx) {
            this.is_closed = Pin::new(&mut this.stream).poll_shutdown(cx).is_ready();
        }
        Pin::new(&mut this.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HalfCloseStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
