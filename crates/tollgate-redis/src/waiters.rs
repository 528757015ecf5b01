//! The tasks that wait for the replies of a call.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tollgate_core::Outcome;
pub(crate) use tollgate_store::parts::PartReply as DecisionReply;

use crate::failure::Failure;

/// The channel to a task that waits for a reply.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, Failure>>;

/// The channel on which a task waits for a reply.
pub(crate) type ReplyReceiver<T> = oneshot::Receiver<Result<T, Failure>>;

/// The waiters of one item.
pub(crate) enum ItemWaiters {
    Requests(SmallVec<[ReplySender<DecisionReply>; 1]>),
    Change(ReplySender<Outcome>),
}

impl ItemWaiters {
    /// Notifies the waiters that the call failed.
    pub(crate) fn fail(self, failure: &Failure) {
        // An error means that the receiver has stopped waiting.
        match self {
            Self::Requests(waiters) => {
                waiters.into_iter().for_each(|waiter| drop(waiter.send(Err(failure.clone()))));
            }
            Self::Change(waiter) => drop(waiter.send(Err(failure.clone()))),
        }
    }
}

/// The waiters of a call, item by item.
#[derive(Default)]
pub(crate) struct Waiters(pub(crate) Vec<ItemWaiters>);

impl Waiters {
    /// Notifies all waiters that the call failed.
    pub(crate) fn fail(self, failure: &Failure) {
        self.0.into_iter().for_each(|waiters| waiters.fail(failure));
    }

    /// Notifies all waiters that no reply came in time. If the call executes later, the charges of
    /// its requests are undone; changes cannot be undone.
    pub(crate) fn fail_late(self, deadline: Duration) {
        let (late, lost) = (Failure::TimedOut(deadline), Failure::failed("no answer in time"));
        for waiters in self.0 {
            let failure = if matches!(waiters, ItemWaiters::Change(_)) { &lost } else { &late };
            waiters.fail(failure);
        }
    }
}
