//! Atomic requests across the partitions of a cluster, and for callers that may cancel.
//!
//! A script cannot access several slots, so a request whose keys are in several partitions is sent
//! to all of them in parallel. Each part is atomic by itself. If one part refuses or fails, the
//! reservations of the other parts are undone. The same applies to a request that uses one state
//! with different quotas, which a single call cannot do.
//!
//! For about one round trip, other requests can see units that were reserved and will be released.
//! They may be refused because of them, but are never admitted wrongly. If the process dies in that
//! moment, the units stay charged.
//!
//! The request runs in its own task. If the caller cancels, all reservations are undone. This
//! matters most for slots, which only their owner could release, and for places in a queue, which
//! would stay taken until their turn.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tollgate_core::{Amount, Outcome, Rule, Timestamp, Verdict};
use tollgate_store::{Answer, Check, Outcomes, StoreError, undo_check};

use crate::batch::clash;
use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::store::ended;
use crate::waiters::DecisionReply;

/// Sends a request to all partitions, and charges all of them or none.
pub(crate) async fn reserve(
    dispatcher: &Arc<Dispatcher>,
    checks: &[Check<'_>],
    queue_of: impl Fn(&[u8]) -> usize,
) -> Result<Answer, StoreError> {
    let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
    for (at, check) in checks.iter().enumerate() {
        let queue = queue_of(check.key);
        let owned = OwnedCheck::of(at, check);
        let fits = |part: &&mut Part| {
            part.queue == queue && !part.checks.iter().any(|owned| clash(&owned.check(), check))
        };
        match parts.iter_mut().find(fits) {
            Some(part) => part.checks.push(owned),
            None => parts.push(Part { queue, checks: vec![owned] }),
        }
    }
    let ((reply, answer), (received, is_received)) = (oneshot::channel(), oneshot::channel());
    tokio::spawn(Reservation { dispatcher: Arc::clone(dispatcher), parts }.run(reply, is_received));
    let answer = answer.await.map_err(|_| ended())?;
    // A caller that cancels after the reply was sent has not received it.
    let _gone = received.send(());
    answer.map_err(StoreError::from)
}

/// A check that outlives its caller.
struct OwnedCheck {
    /// Its index in the request.
    at: usize,
    rule: Rule,
    key: Vec<u8>,
    amount: Amount,
    binding: bool,
    count_denied: bool,
}

impl OwnedCheck {
    fn of(at: usize, check: &Check<'_>) -> Self {
        let Check { rule, key, amount, binding, count_denied } = *check;
        Self { at, rule: rule.clone(), key: key.to_vec(), amount, binding, count_denied }
    }

    fn check(&self) -> Check<'_> {
        let Self { rule, key, amount, binding, count_denied, .. } = self;
        Check { rule, key, amount: *amount, binding: *binding, count_denied: *count_denied }
    }
}

/// The checks of one partition.
struct Part {
    queue: usize,
    checks: Vec<OwnedCheck>,
}

struct Reservation {
    dispatcher: Arc<Dispatcher>,
    parts: SmallVec<[Part; 4]>,
}

/// The reply of each part.
type Answers = SmallVec<[Result<DecisionReply, Failure>; 4]>;

impl Reservation {
    async fn run(self, reply: oneshot::Sender<Result<Answer, Failure>>, is_received: oneshot::Receiver<()>) {
        let replies: SmallVec<[_; 4]> = self
            .parts
            .iter()
            .map(|part| {
                let checks: SmallVec<[Check<'_>; 4]> = part.checks.iter().map(OwnedCheck::check).collect();
                self.dispatcher.decide(part.queue, &checks)
            })
            .collect();
        let mut answers = Answers::new();
        for reply in replies {
            let ended = |_| Failure::failed("the runtime of the request has shut down");
            answers.push(reply.await.map_err(ended).flatten());
        }
        let all = answers.iter().all(|it| it.as_ref().is_ok_and(|it| it.answer.admitted));
        let concluded = if all {
            self.merge(&answers, true, &[])
        } else {
            let (key_states, failed) = self.undo_reserved(&answers).await;
            // A reservation that could not be undone has been applied.
            self.merge(&answers, false, &key_states).map_err(|it| if failed { it.in_doubt() } else { it })
        };
        if (reply.send(concluded).is_err() || is_received.await.is_err()) && all {
            self.undo_reserved(&answers).await;
        }
    }

    /// Undoes the reservations, except for limits that count refusals. Returns the states of the
    /// keys by their index in the request, and whether undoing failed for one of them.
    async fn undo_reserved(&self, answers: &Answers) -> (SmallVec<[(usize, Outcome); 4]>, bool) {
        let mut changes: SmallVec<[_; 4]> = SmallVec::new();
        for (part, answer) in self.parts.iter().zip(answers) {
            let Some(decided) = answer.as_ref().ok().filter(|it| it.answer.admitted) else { continue };
            // The last charge first: a queue takes back only its last place.
            for (place, (owned, outcome)) in
                part.checks.iter().zip(&decided.answer.outcomes).enumerate().rev()
            {
                if owned.count_denied {
                    continue;
                }
                let renewed = decided.renewed.contains(&place);
                if let Some(undo) = undo_check(owned.amount, outcome, renewed, decided.answer.at) {
                    changes.push((
                        owned.at,
                        self.dispatcher.change(part.queue, (&owned.rule, &owned.key), (undo, None)),
                    ));
                }
            }
        }
        let (mut key_states, mut failed) = (SmallVec::new(), false);
        for (at, change) in changes {
            match change.await {
                Ok(Ok(outcome)) => key_states.push((at, outcome)),
                Ok(Err(_)) | Err(_) => failed = true,
            }
        }
        (key_states, failed)
    }

    /// Merges the replies of all parts. In a refusal, the limits that would have admitted the
    /// request report that without a charge, with the state after the undo.
    fn merge(
        &self,
        answers: &Answers,
        all: bool,
        key_states: &[(usize, Outcome)],
    ) -> Result<Answer, Failure> {
        let count = self.parts.iter().map(|part| part.checks.len()).sum();
        let mut outcomes: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, count);
        let (mut earliest, mut failure): (Option<Timestamp>, Option<Failure>) = (None, None);
        for (part, answer) in self.parts.iter().zip(answers) {
            let answer = match answer {
                Ok(decided) => &decided.answer,
                Err(why) => {
                    failure = Some(failure.map_or_else(|| why.clone(), |worst| worst.or_worse(why)));
                    continue;
                }
            };
            earliest = Some(earliest.map_or(answer.at, |at| at.min(answer.at)));
            for (owned, outcome) in part.checks.iter().zip(&answer.outcomes) {
                let since = key_states.iter().find(|(at, _)| *at == owned.at).map(|(_, outcome)| *outcome);
                let mut reply = since.unwrap_or(*outcome);
                if let (false, Verdict::Admitted { .. }) = (all, reply.verdict) {
                    reply.verdict = Verdict::admitted(0);
                }
                outcomes[owned.at] = Some(reply);
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let outcomes: Option<Outcomes> = outcomes.into_iter().collect();
        match (outcomes, earliest) {
            (Some(outcomes), Some(at)) => Ok(Answer { admitted: all, at, outcomes }),
            _ => Err(Failure::failed("the reply of a partition is incomplete")),
        }
    }
}
