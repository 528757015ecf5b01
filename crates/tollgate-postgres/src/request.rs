//! A request that waits for a transaction: its checks or its change, and its caller.
//!
//! The caller may stop waiting at any time. Before a transaction claims the request, nothing is
//! charged then. After that, the charge is undone if the caller has been notified of a timeout, and
//! also if the caller has gone and the request took a slot or a place in a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::oneshot::{self, Receiver, Sender};
use tollgate_core::{Adjustment, Amount, Outcome, Rule};
use tollgate_store::{AdjustmentId, Answer, Check};

use crate::failure::Failure;
use crate::states::stored_key;

/// A check that outlives its caller.
pub(crate) struct OwnedCheck {
    pub(crate) rule: Rule,
    pub(crate) key: Arc<[u8]>,
    pub(crate) amount: Amount,
    pub(crate) binding: bool,
    pub(crate) count_denied: bool,
}

impl OwnedCheck {
    pub(crate) fn of(check: &Check<'_>) -> Self {
        Self {
            rule: check.rule.clone(),
            key: stored_key(check.key),
            amount: check.amount,
            binding: check.binding,
            count_denied: check.count_denied,
        }
    }

    /// Returns whether a caller that leaves holds a charge that only it could release.
    fn takes_place(&self) -> bool {
        self.rule.quota.takes_place(self.amount)
    }
}

/// A change of one key that outlives its caller.
pub(crate) struct OwnedChange {
    pub(crate) rule: Rule,
    pub(crate) key: Arc<[u8]>,
    pub(crate) adjustment: Adjustment,
    pub(crate) id: Option<AdjustmentId>,
}

/// The content of a request.
pub(crate) enum Work {
    Decide(Vec<OwnedCheck>),
    Change(Box<OwnedChange>),
}

impl Work {
    /// Returns the rules and keys whose states the request reads.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Rule, &Arc<[u8]>)> {
        let (checks, change) = match self {
            Self::Decide(checks) => (&checks[..], None),
            Self::Change(change) => (&[][..], Some(&**change)),
        };
        let checks = checks.iter().map(|it| (&it.rule, &it.key));
        checks.chain(change.into_iter().map(|it| (&it.rule, &it.key)))
    }

    pub(crate) fn takes_place(&self) -> bool {
        matches!(self, Self::Decide(checks) if checks.iter().any(OwnedCheck::takes_place))
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Decided(Decided),
    Changed(Outcome),
}

/// A decision, with the indices of checks whose owner held its slot before.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) answer: Answer,
    pub(crate) renewed: Vec<usize>,
}

pub(crate) type RequestResult = Result<Reply, Failure>;

const WAITING: u8 = 0;
const CLAIMED: u8 = 1;
const ABANDONED: u8 = 2;
const TIMED_OUT: u8 = 3;

/// The progress of a request.
#[derive(Debug, Default)]
struct Status(AtomicU8);

impl Status {
    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A request in the queue or in a transaction.
pub(crate) struct Request {
    pub(crate) work: Work,
    status: Arc<Status>,
    reply: Sender<RequestResult>,
    /// Resolves with an error if the caller left before it had received the reply.
    received: Receiver<()>,
}

/// The reply could not be delivered.
pub(crate) struct Undelivered {
    pub(crate) decided: Decided,
    pub(crate) checks: Vec<OwnedCheck>,
}

impl Request {
    pub(crate) fn new(work: Work) -> (Self, Waiter) {
        let ((reply, result), (acknowledge, received)) = (oneshot::channel(), oneshot::channel());
        let status = Arc::<Status>::default();
        let is_change = matches!(work, Work::Change(_));
        let waiter =
            Waiter { result, acknowledge: Some(acknowledge), status: Arc::clone(&status), is_change };
        (Self { work, status, reply, received }, waiter)
    }

    /// Returns whether the caller waits for the answer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.status.0.load(Ordering::Acquire) != ABANDONED
    }

    /// Claims the request for a transaction. Returns false if its caller has left.
    pub(crate) fn claim(&self) -> bool {
        self.status.change(WAITING, CLAIMED)
    }

    /// Delivers the answer of a transaction that has been committed. `undo` is called if it cannot be
    /// delivered, and was charged, and has to be undone.
    pub(crate) fn deliver(self, result: RequestResult, undo: impl FnOnce(Undelivered) + Send + 'static) {
        let Self { work, status, reply, received } = self;
        let takes_place = work.takes_place();
        let decided = match (&result, takes_place) {
            (Ok(Reply::Decided(decided)), true) => {
                Some(Decided { answer: decided.answer.clone(), renewed: decided.renewed.clone() })
            }
            _ => None,
        };
        match (reply.send(result), work) {
            (Err(Ok(Reply::Decided(decided))), Work::Decide(checks)) => {
                let is_late = status.0.load(Ordering::Acquire) == TIMED_OUT;
                if decided.answer.admitted && (is_late || takes_place) {
                    undo(Undelivered { decided, checks });
                }
            }
            (Ok(()), Work::Decide(checks)) => {
                let Some(decided) = decided.filter(|it| it.answer.admitted) else { return };
                tokio::spawn(async move {
                    if received.await.is_err() {
                        undo(Undelivered { decided, checks });
                    }
                });
            }
            _ => {}
        }
    }
}

/// Notifies the callers of requests of a failure.
pub(crate) fn fail(requests: impl IntoIterator<Item = Request>, failure: &Failure) {
    for request in requests {
        let _gone = request.reply.send(Err(failure.clone()));
    }
}

/// The caller of a request.
pub(crate) struct Waiter {
    result: Receiver<RequestResult>,
    acknowledge: Option<Sender<()>>,
    status: Arc<Status>,
    is_change: bool,
}

impl Waiter {
    /// Waits for the answer until the deadline.
    pub(crate) async fn wait(mut self, deadline: Duration) -> RequestResult {
        let result = match tokio::time::timeout(deadline, &mut self.result).await {
            Ok(result) => result.unwrap_or_else(|_| Err(ended())),
            Err(_) => self.give_up(deadline),
        };
        if let Some(acknowledge) = self.acknowledge.take() {
            let _gone = acknowledge.send(());
        }
        result
    }

    /// Waits for the answer without a deadline.
    pub(crate) async fn wait_patiently(mut self) -> RequestResult {
        (&mut self.result).await.unwrap_or_else(|_| Err(ended()))
    }

    fn give_up(&mut self, deadline: Duration) -> RequestResult {
        if self.status.change(WAITING, ABANDONED) {
            return Err(Failure::TimedOut(deadline));
        }
        self.status.change(CLAIMED, TIMED_OUT);
        // From here on no reply can be sent; one may have been sent just before.
        self.result.close();
        match self.result.try_recv() {
            Ok(result) => result,
            // A change cannot be undone, and may yet be committed.
            Err(_) if self.is_change => {
                Err(Failure::failed(format!("no answer from the store within {deadline:?}")))
            }
            Err(_) => Err(Failure::TimedOut(deadline)),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.status.change(WAITING, ABANDONED);
    }
}

/// The runtime of the transaction has shut down.
fn ended() -> Failure {
    Failure::failed("the runtime of the transaction has shut down")
}
