//! Watches the timeouts of a connection and the drain while the connection waits for its client.
//!
//! The timer and the drain are registered once with the task of the connection. Afterwards only flags are read, so a
//! request registers no timer. Both are polled outside of the budget of the task: a poll that the budget refuses would
//! register nothing, and a client that keeps its connection busy could make that the only poll.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::unconstrained;
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
    pub(super) conn_timer: &'w Arc<ConnTimer>,
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
            self.is_closing = pin!(unconstrained(self.closing.as_mut())).poll(cx).is_ready();
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
        while pin!(unconstrained(self.timer.as_mut())).poll(cx).is_ready() {
            match self.conn_timer.late(self.caps) {
                Ok(wait) => self.timer.as_mut().reset(Instant::now() + wait.min(shortest(self.caps))),
                Err(late) => return Poll::Ready(late),
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::time::Duration;

    use tokio::task::coop::consume_budget;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::drain::{Drain, Phase};

    /// Polls until the task has no budget left, as a connection with endless input does.
    fn exhaust_budget(cx: &mut Context<'_>) {
        while pin!(consume_budget()).poll(cx).is_ready() {}
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_and_drains_reach_a_connection_that_was_busy_from_its_start() {
        let caps = Caps::default();
        for drains in [false, true] {
            let (drainer, mut drain) = Drain::new();
            let conn_timer = ConnTimer::of_heads(drain.ending());
            let flag = drain.ending();
            let mut watch = Watch {
                timer: pin!(sleep(shortest(&caps))),
                closing: pin!(drain.reached(Phase::Closing)),
                drain: flag,
                conn_timer: &conn_timer,
                caps: &caps,
                has_timer: false,
                watches_drain: false,
                is_closing: false,
            };
            let mut is_first = true;
            let waiting = poll_fn(|cx| {
                if std::mem::take(&mut is_first) {
                    exhaust_budget(cx);
                }
                watch.poll(cx)
            });
            let closing = async {
                tokio::task::yield_now().await;
                if drains {
                    drainer.close_idle();
                } else {
                    std::future::pending::<()>().await;
                }
            };
            let closing = async { tokio::join!(closing, std::future::pending::<()>()) };
            let interrupt = timeout(Duration::from_secs(3_600), async {
                tokio::select! {
                    interrupt = waiting => Some(interrupt),
                    _ = closing => None,
                }
            });
            let expected = if drains { Interrupt::Closing } else { Interrupt::Late(ClientTimeout::Head) };
            assert_eq!(interrupt.await.ok().flatten(), Some(expected), "drains: {drains}");
        }
    }
}
