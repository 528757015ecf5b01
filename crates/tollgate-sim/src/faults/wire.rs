//! The interface between the futures of the nodes and the world: calls, tasks and sleeps that they ask for.
//!
//! A future cannot borrow the world that polls it. It leaves commands here, and the world carries them out after the
//! poll.

use std::sync::{Arc, Mutex};

use tollgate::store::{AdjustmentId, Answer, Check};
use tollgate::{Adjustment, Amount, Outcome, Rule, StoreError};

use super::clock::TrueTime;
use super::node::Report;
use crate::executor::{Receiver, Sender, TaskFuture, lock, oneshot};

/// The number of a call to a shard.
pub(super) type CallId = u64;

/// The number of a request of a client.
pub(super) type RequestId = u64;

/// The work that a task or a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The decision about a request.
    Request(RequestId),
    /// The settlement, release or renewal of a request.
    After(RequestId),
    /// The compensation of charges of a request.
    Undo(RequestId),
    /// The charges and corrections that a node has deferred.
    Reconcile,
    /// Leases that a node renews and returns in the background.
    Tend,
    /// The return of a lease that was granted after its deadline: the node never held it.
    UndoLease,
    /// A probe.
    Probe,
    /// An operator.
    Operator,
}

impl Origin {
    /// Returns the origin of calls that undo calls of this one.
    pub(super) const fn undoing(self) -> Self {
        match self {
            Self::Request(id) => Self::Undo(id),
            Self::Tend => Self::UndoLease,
            other => other,
        }
    }
}

/// A check that outlives its caller.
#[derive(Clone, Debug)]
pub(super) struct OwnedCheck {
    pub(super) rule: Rule,
    pub(super) key: Vec<u8>,
    pub(super) amount: Amount,
    pub(super) binding: bool,
    pub(super) count_denied: bool,
}

impl OwnedCheck {
    pub(super) fn of(check: &Check<'_>) -> Self {
        let Check { rule, key, amount, binding, count_denied } = *check;
        Self { rule: rule.clone(), key: key.to_vec(), amount, binding, count_denied }
    }

    pub(super) fn check(&self) -> Check<'_> {
        let Self { rule, key, amount, binding, count_denied } = self;
        Check { rule, key, amount: *amount, binding: *binding, count_denied: *count_denied }
    }
}

/// A call to a shard.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time")]
pub(super) enum Body {
    Decide(Vec<OwnedCheck>),
    Change { rule: Rule, key: Vec<u8>, adjustment: Adjustment, id: Option<AdjustmentId> },
}

/// The reply of a shard.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Decided(Answer),
    Changed(Outcome),
}

/// The reason why a call has no reply, as in `tollgate-redis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The deadline passed. If the call executes later, it is undone.
    TimedOut,
    /// Nothing was written.
    Refused,
    /// The connection broke, or the deadline of a change passed: it may have been applied.
    Failed,
}

impl Failure {
    /// Combines two failures of one request: if either may have been applied, the result may have been applied.
    pub(super) const fn or_worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::TimedOut, _) | (_, Self::TimedOut) => Self::TimedOut,
            _ => Self::Refused,
        }
    }

    /// Returns the failure that an error reports.
    pub(super) const fn of(error: &StoreError) -> Self {
        match error {
            StoreError::TimedOut(_) => Self::TimedOut,
            StoreError::Refused(_) => Self::Refused,
            _ => Self::Failed,
        }
    }

    pub(super) fn into_error(self, deadline: TrueTime) -> StoreError {
        match self {
            Self::TimedOut => StoreError::TimedOut(std::time::Duration::from_micros(deadline)),
            Self::Refused => StoreError::Refused("no connection to the simulated store".into()),
            Self::Failed => StoreError::Failed("the connection to the simulated store broke".into()),
        }
    }
}

/// The receiver of the reply of a call.
pub(super) type ReplyReceiver = Receiver<Result<Reply, Failure>>;

/// A message to the world.
pub(super) enum Command {
    /// Sends a call.
    Send { node: usize, shard: usize, origin: Origin, body: Body, reply: Sender<Result<Reply, Failure>> },
    /// Runs a task on a node.
    Spawn { node: usize, origin: Origin, task: TaskFuture },
    /// Sends a value after a time by the clock of a node.
    Sleep { node: usize, span: TrueTime, done: Sender<()> },
    /// Reports the result of a task to the world.
    Report { node: usize, report: Report },
}

/// The commands of the futures that were polled.
#[derive(Default)]
pub(super) struct Wire {
    commands: Mutex<Vec<Command>>,
    /// The work of the task that is being polled.
    current: Mutex<Option<Origin>>,
}

impl Wire {
    pub(super) fn push(&self, command: Command) {
        lock(&self.commands).push(command);
    }

    pub(super) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut lock(&self.commands))
    }

    pub(super) fn set_current(&self, origin: Option<Origin>) {
        *lock(&self.current) = origin;
    }

    /// Returns the work of the task that is being polled.
    pub(super) fn current(&self) -> Origin {
        lock(&self.current).unwrap_or(Origin::Operator)
    }

    pub(super) fn send(&self, node: usize, shard: usize, origin: Origin, body: Body) -> ReplyReceiver {
        let (reply, receiver) = oneshot();
        self.push(Command::Send { node, shard, origin, body, reply });
        receiver
    }

    pub(super) fn sleep(self: &Arc<Self>, node: usize, span: TrueTime) -> Receiver<()> {
        let (done, receiver) = oneshot();
        self.push(Command::Sleep { node, span, done });
        receiver
    }
}
