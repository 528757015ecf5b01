//! Watches the timeouts of a connection and the drain while the connection waits for its client.
//!
//! The timer and the drain are registered once with the task of the connection. Afterwards only flags are read, so a
//! request registers no timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use crate::caps::Caps;
use crate::conn_timer::{ClientTimeout, ConnTimer, shortest};
use crate::drain::DrainFlag;

/// An event that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// The client exceeded a timeout.
    Late(ClientTimeout),
    /// Idle connections are to be closed.
    Closing,
}

/// The timer of a connection and the drain.
pub(super) struct Watch<'w, F> {
    pub(super) timer: Pin<&'w mut Sleep>,
    /// Resolves when idle connections are to be closed.
    pub(super) closing: Pin<&'w mut F>,
    pub(super) drain: DrainFlag,
    pub(super) conn_timer: &'w ConnTimer,
    pub(super) caps: &'w Caps,
    /// Whether the task is registered with the timer, and with the drain.
    pub(super) has_timer: bool,
    pub(super) watches_drain: bool,
    pub(super) is_closing: bool,
}

impl<F: Future<Output = ()>> Watch<'_, F> {
    /// Resolves when the wait for a request has to end. All calls must come from one task.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Interrupt> {
        // The flag is set before the tasks are woken.
        if !self.is_closing && (!self.watches_drain || self.drain.has_begun()) {
            self.watches_drain = true;
            self.is_closing = self.closing.as_mut().poll(cx).is_ready();
        }
        if self.is_closing {
            return Poll::Ready(Interrupt::Closing);
        }
        self.poll_late(cx).map(Interrupt::Late)
    }

    /// Resolves when the client has exceeded a timeout.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<ClientTimeout> {
        if self.has_timer && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        self.has_timer = true;
        while self.timer.as_mut().poll(cx).is_ready() {
            match self.conn_timer.late(self.caps) {
                Ok(wait) => self.timer.as_mut().reset(Instant::now() + wait.min(shortest(self.caps))),
                Err(late) => return Poll::Ready(late),
            }
        }
        Poll::Pending
    }
}
