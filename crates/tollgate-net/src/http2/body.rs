//! The body of a request, between its connection and the task that reads it.
//!
//! Received bytes stay in one buffer until they are read. Flow control bounds it: the window of the client opens again
//! only when bytes have been read or dropped.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

use super::mailbox::{Event, Mailbox};

/// The body of a request on an HTTP/2 connection.
pub struct Http2Body {
    stream: u32,
    channel: Arc<BodyChannel>,
    mailbox: Arc<Mailbox>,
}

/// The bytes of a body that have arrived.
#[derive(Debug, Default)]
pub(super) struct BodyChannel(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    received: BytesMut,
    end: Option<BodyEnd>,
    /// Whether the service has dropped the body, or its stream was removed.
    is_dropped: bool,
    waker: Option<Waker>,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    Complete,
    /// The client reset the stream, or the connection ended.
    Aborted,
}

impl BodyChannel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends bytes. Returns whether they are kept; otherwise their window opens again.
    pub(super) fn push(&self, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        if state.is_dropped {
            return false;
        }
        state.received.extend_from_slice(bytes);
        wake(state);
        true
    }

    /// The number of received bytes that the service has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        self.lock().received.len()
    }

    pub(super) fn end(&self, end: BodyEnd) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        wake(state);
    }

    /// Ends the body of a removed stream. Returns the number of received bytes that the service has not read.
    pub(super) fn abort(&self) -> usize {
        let mut state = self.lock();
        let unread = std::mem::take(&mut state.received).len();
        state.end.get_or_insert(BodyEnd::Aborted);
        state.is_dropped = true;
        wake(state);
        unread
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Http2Body {
    pub(super) const fn new(stream: u32, channel: Arc<BodyChannel>, mailbox: Arc<Mailbox>) -> Self {
        Self { stream, channel, mailbox }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut state = self.channel.lock();
        if !state.received.is_empty() {
            let bytes = std::mem::take(&mut state.received).freeze();
            drop(state);
            self.mailbox.send(self.stream, Event::Consumed(bytes.len()));
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match state.end {
            Some(BodyEnd::Complete) => Poll::Ready(None),
            Some(BodyEnd::Aborted) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.channel.lock();
        state.received.is_empty() && state.end == Some(BodyEnd::Complete)
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.is_dropped = true;
        let unread = std::mem::take(&mut state.received).len();
        drop(state);
        if unread > 0 {
            self.mailbox.send(self.stream, Event::Consumed(unread));
        }
    }
}

impl fmt::Debug for Http2Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Body").field("stream", &self.stream).finish_non_exhaustive()
    }
}
