//! Waiting for a key of a gate.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate_core::{Amount, Timestamp};
use tollgate_store::Clock;

use super::waiters::Place;
use super::{Admission, Gate, Refusal};
use crate::timer::SleepFuture;

/// The number of sleeps that may end within one poll. A sleep that ends early is repeated; a
/// function that never sleeps must not block the thread.
const MAX_SLEEPS_PER_POLL: usize = 8;

/// A task that waits for a key. It completes when the key has room for the amount, when waiting does
/// not help, or at the deadline.
pub(super) struct Wait<'g, C: Clock> {
    gate: &'g Gate<C>,
    amount: Amount,
    place: Place,
    deadline: Option<Timestamp>,
    sleep: Option<(Timestamp, SleepFuture)>,
}

/// The result of one attempt to acquire.
enum Attempt {
    Over(Result<Admission, Refusal>),
    /// The task sleeps, and may be woken before.
    SleepUntil(Timestamp),
    SleepUntilWoken,
}

impl<'g, C: Clock> Wait<'g, C> {
    /// Joins the queue of the key.
    pub(super) fn new(gate: &'g Gate<C>, key: &[u8], amount: Amount, max_wait: Option<Duration>) -> Self {
        let deadline = max_wait.map(|wait| gate.now() + wait.into());
        Self { gate, amount, place: gate.waiters().join(key), deadline, sleep: None }
    }

    /// Refunds an admission whose place in the queue of the gate is after the deadline.
    fn within_deadline(&self, admission: Admission, now: Timestamp) -> Result<Admission, Refusal> {
        match self.deadline {
            Some(deadline) => self.gate.refuse_wait(&self.place.key, admission, deadline.since(now).into()),
            None => Ok(admission),
        }
    }

    /// Tries to acquire if it is the turn of this task.
    fn attempt(&self, context: &Context<'_>) -> Attempt {
        let now = self.gate.now();
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        if !self.gate.waiters().is_first(&self.place, context.waker()) {
            // At the deadline, too, a task does not pass those before it.
            return match self.deadline {
                Some(_) if is_late => Attempt::Over(Err(Refusal::queued(self.gate.peek(&self.place.key)))),
                Some(deadline) => Attempt::SleepUntil(deadline),
                None => Attempt::SleepUntilWoken,
            };
        }
        let refusal = match self.gate.take(&self.place.key, self.amount) {
            Ok(admission) => return Attempt::Over(self.within_deadline(admission, now)),
            Err(refusal) => refusal,
        };
        let Some(wait) = refusal.retry_after.filter(|_| !is_late) else { return Attempt::Over(Err(refusal)) };
        let ready_at = now + wait.into();
        match self.deadline {
            // A slot may become free before its lease ends; units come back at a known time.
            Some(deadline) if ready_at > deadline && !matches!(self.amount, Amount::Slot(_)) => {
                Attempt::Over(Err(refusal))
            }
            Some(deadline) => Attempt::SleepUntil(deadline.min(ready_at)),
            None => Attempt::SleepUntil(ready_at),
        }
    }
}

impl<C: Clock> Future for Wait<'_, C> {
    type Output = Result<Admission, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for _ in 0..MAX_SLEEPS_PER_POLL {
            let until = match self.attempt(context) {
                Attempt::Over(answer) => return Poll::Ready(answer),
                Attempt::SleepUntilWoken => return Poll::Pending,
                Attempt::SleepUntil(until) => until,
            };
            let gate = self.gate;
            let sleep = match &mut self.sleep {
                Some((known, sleep)) if *known == until => sleep,
                other => {
                    let duration = until.since(gate.now()).into();
                    &mut other.insert((until, gate.sleeper.sleep(duration))).1
                }
            };
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<C: Clock> Drop for Wait<'_, C> {
    fn drop(&mut self) {
        self.gate.waiters().leave(&self.place);
    }
}
