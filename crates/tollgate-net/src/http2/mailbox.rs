//! Events of the tasks of a connection: responses, and bytes of requests that were read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::UnaryReply;

/// An event of a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// The reply to a unary call.
    Reply(UnaryReply),
    /// The head of a response; `true`: it has no body.
    Head(StatusCode, HeaderMap, bool),
    /// A piece of a response. The permit is released when it has been sent.
    Data(Bytes, OwnedSemaphorePermit),
    /// The end of a response, with or without trailers.
    End(Option<HeaderMap>),
    /// The response cannot be completed.
    Failed,
    /// Bytes of the request were read or dropped.
    Consumed(usize),
}

/// The events that a connection has not handled yet. Their number is bounded: a task sends one piece at a time, and
/// only received bytes are consumed.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: Vec<(u32, Event)>,
    waker: Option<Waker>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, and wakes the connection.
    pub(super) fn send(&self, stream: u32, event: Event) {
        let mut state = self.lock();
        state.events.push((stream, event));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the events; if there are none, the connection is woken by the next one.
    pub(super) fn take(&self, waker: &Waker) -> Vec<(u32, Event)> {
        let mut state = self.lock();
        if state.events.is_empty() {
            state.waker = Some(waker.clone());
        }
        std::mem::take(&mut state.events)
    }
}
