//! All or nothing across the partitions of a cluster, and for whoever may leave.
//!
//! No script reaches across slots, so a request whose keys lie in several partitions
//! is asked of all of them at once, each part all-or-nothing by itself. If one part
//! refuses, or gives no answer, what the others had reserved is given back. So it is with
//! a request that asks for one state by different numbers, which no single call can.
//!
//! What others can see meanwhile: units that were reserved and will be given back,
//! for about a round trip. Somebody may be refused for them; nobody is ever admitted
//! wrongly. A process that dies in that moment leaves the units charged.
//!
//! The request is carried out in a task of its own. Whoever asked may leave: then all that
//! was reserved is given back, slots above all, which nobody else could release.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tollgate_core::{Amount, Outcome, Rule, Timestamp, Verdict};
use tollgate_store::{Answer, Check, Outcomes, StoreError};

use crate::batch::{DecisionReply, clash};
use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::store::ended;
use crate::undo::undo;

/// Asks all partitions, and charges all of them or none.
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
    let (reply, answer) = oneshot::channel();
    tokio::spawn(Reservation { dispatcher: Arc::clone(dispatcher), parts }.run(reply));
    answer.await.map_err(|_| ended())?.map_err(StoreError::from)
}

/// A check that outlives whoever asked.
struct OwnedCheck {
    /// Its place in the request.
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

/// What lies in one partition.
struct Part {
    queue: usize,
    checks: Vec<OwnedCheck>,
}

struct Reservation {
    dispatcher: Arc<Dispatcher>,
    parts: SmallVec<[Part; 4]>,
}

/// What each part was answered.
type Answers = SmallVec<[Result<DecisionReply, Failure>; 4]>;

impl Reservation {
    async fn run(self, reply: oneshot::Sender<Result<Answer, Failure>>) {
        let asked: SmallVec<[_; 4]> = self
            .parts
            .iter()
            .map(|part| {
                let checks: SmallVec<[Check<'_>; 4]> = part.checks.iter().map(OwnedCheck::check).collect();
                self.dispatcher.ask(part.queue, &checks)
            })
            .collect();
        let mut answers = Answers::new();
        for answer in asked {
            let ended = |_| Failure::failed("the runtime that was asking has ended");
            answers.push(answer.await.map_err(ended).and_then(|it| it));
        }
        let all = answers.iter().all(|it| it.as_ref().is_ok_and(|it| it.answer.admitted));
        let concluded = if all {
            self.told(&answers, true, &[])
        } else {
            let (key_states, failed) = self.give_back(&answers).await;
            // What could not be given back has landed.
            self.told(&answers, false, &key_states).map_err(|it| if failed { it.in_doubt() } else { it })
        };
        if reply.send(concluded).is_err() && all {
            self.give_back(&answers).await;
        }
    }

    /// Gives back what was reserved, but for limits that count refusals. How the keys
    /// stand then, by their place in the request, and whether something could not be.
    async fn give_back(&self, answers: &Answers) -> (SmallVec<[(usize, Outcome); 4]>, bool) {
        let mut changes: SmallVec<[_; 4]> = SmallVec::new();
        for (part, answer) in self.parts.iter().zip(answers) {
            let Some(decided) = answer.as_ref().ok().filter(|it| it.answer.admitted) else { continue };
            for (place, (owned, outcome)) in part.checks.iter().zip(&decided.answer.outcomes).enumerate() {
                if owned.count_denied {
                    continue;
                }
                let renewed = decided.renewed.contains(&place);
                if let Some(undo) = undo(owned.amount, outcome, renewed, decided.answer.at) {
                    changes.push((
                        owned.at,
                        self.dispatcher.change(part.queue, (&owned.rule, &owned.key), undo),
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

    /// The answers of all parts as one. Of a refusal, whoever would have admitted says so,
    /// with nothing charged, and as the key stands since it was given back.
    fn told(&self, answers: &Answers, all: bool, key_states: &[(usize, Outcome)]) -> Result<Answer, Failure> {
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
            _ => Err(Failure::failed("a partition told too little")),
        }
    }
}
