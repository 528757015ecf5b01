//! Converts the reply of a call to the answers of its requests.
//!
//! The script returns the state of each key before the call, and how many of the identical requests
//! it admitted. The same steps are replayed here in the same order, with the arithmetic of
//! `tollgate_core`, so that each request gets the state at its turn.

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Timestamp, Verdict};
use tollgate_store::{Answer, Outcomes};

use crate::batch::{BatchBuilder, CheckRequest, DecisionReply, Item, ItemWaiters, Waiters};
use crate::encoding::quota_of;
use crate::failure::Failure;
use crate::key_state::{Availability, KeyReply, KeyState, Numbers};
use crate::undo::undo;

/// Receives the states of keys during a replay.
pub(crate) trait KeyObserver {
    /// A request was refused; `key_state` is the state of one of its keys. `wait`: when units of a
    /// log become available.
    fn refused(
        &self,
        batch: &BatchBuilder,
        key: usize,
        key_state: &KeyState,
        wait: Option<(u64, i64)>,
        at: Timestamp,
    );
    /// A request was admitted; `key_state` is the state of one of its keys afterward.
    fn admitted(&self, batch: &BatchBuilder, key: usize, key_state: &KeyState, at: Timestamp);
    /// A change was applied to a key.
    fn changed(&self, batch: &BatchBuilder, key: usize);
}

/// The reply of the script: `numbers` without the first two, which are the status and `now`.
pub(crate) struct ScriptReply {
    pub(crate) numbers: Vec<i64>,
    pub(crate) now: Timestamp,
}

/// Answers all waiters.
pub(crate) fn replay(
    batch: &BatchBuilder,
    waiters: Waiters,
    reply: ScriptReply,
    observer: &impl KeyObserver,
) {
    let Some(mut replayed) = ScriptReplay::begin(batch, reply) else { return waiters.fail(&invalid_reply()) };
    for (item, waiters) in batch.items.iter().zip(waiters.0) {
        match (item, waiters) {
            (Item::Change { key, .. }, ItemWaiters::Change(waiting)) => {
                let outcome = replayed.change(*key);
                observer.changed(batch, *key);
                drop(waiting.send(outcome));
            }
            (Item::Requests { checks, many }, ItemWaiters::Requests(waiting)) => {
                let mut waiting = waiting.into_iter();
                match replayed.turn(checks) {
                    Ok((admitted, mut turn)) => {
                        for it in waiting.by_ref().take(admitted) {
                            let decided = turn.admit();
                            // Before the replies, because their receivers may send new requests.
                            turn.show(observer);
                            drop(it.send(Ok(decided)));
                        }
                        if admitted < *many {
                            let answer = turn.refuse();
                            turn.remember(observer);
                            for it in waiting {
                                let renewed = SmallVec::new();
                                drop(it.send(Ok(DecisionReply { answer: answer.clone(), renewed })));
                            }
                        }
                    }
                    Err(failure) => waiting.for_each(|it| drop(it.send(Err(failure.clone())))),
                }
            }
            // A batch adds items and waiters together, so this does not happen.
            (_, waiters) => Waiters(vec![waiters]).fail(&invalid_reply()),
        }
    }
}

/// Returns the changes that undo a call whose waiters are gone.
pub(crate) fn take_back(batch: &BatchBuilder, reply: ScriptReply) -> Vec<(usize, Adjustment)> {
    let mut undone = Vec::new();
    let taken_at = reply.now;
    let Some(mut replayed) = ScriptReplay::begin(batch, reply) else { return undone };
    for item in &batch.items {
        match item {
            Item::Change { key, .. } => drop(replayed.change(*key)),
            Item::Requests { checks, many } => {
                let Ok((admitted, mut turn)) = replayed.turn(checks) else { continue };
                for _ in 0..admitted {
                    let decided = turn.admit();
                    for (at, (asked, outcome)) in checks.iter().zip(&decided.answer.outcomes).enumerate() {
                        let renewed = decided.renewed.contains(&at);
                        if let Some(change) = undo(asked.amount, outcome, renewed, taken_at) {
                            add(&mut undone, asked.key, change);
                        }
                    }
                }
                if admitted < *many {
                    turn.refuse();
                }
            }
        }
    }
    undone
}

/// Adds a change and merges refunds of the same key.
fn add(undone: &mut Vec<(usize, Adjustment)>, key: usize, change: Adjustment) {
    if let Adjustment::Refund { units: more, .. } = change
        && let Some((_, Adjustment::Refund { units, .. })) = undone
            .iter_mut()
            .rev()
            .find(|(known, it)| *known == key && matches!(it, Adjustment::Refund { .. }))
    {
        *units += more;
    } else {
        undone.push((key, change));
    }
}

/// The steps of a call, replayed.
struct ScriptReplay<'d> {
    batch: &'d BatchBuilder,
    key_states: Vec<Option<KeyState>>,
    numbers: Numbers<std::vec::IntoIter<i64>>,
    now: Timestamp,
}

impl<'d> ScriptReplay<'d> {
    fn begin(batch: &'d BatchBuilder, reply: ScriptReply) -> Option<Self> {
        let mut numbers = Numbers(reply.numbers.into_iter());
        let mut key_states = Vec::with_capacity(batch.keys.len());
        for key in 0..batch.keys.len() {
            key_states.push(match KeyState::read(quota_of(batch, key), &mut numbers)? {
                KeyReply::Ours(key_state) => Some(key_state),
                KeyReply::Foreign => None,
            });
        }
        Some(Self { batch, key_states, numbers, now: reply.now })
    }

    fn change(&mut self, key: usize) -> Result<Outcome, Failure> {
        let quota = quota_of(self.batch, key);
        match KeyState::read(quota, &mut self.numbers) {
            None => Err(invalid_reply()),
            Some(KeyReply::Foreign) => Err(foreign(self.batch, key)),
            Some(KeyReply::Ours(key_state)) => {
                let outcome = key_state.describe(quota, Verdict::admitted(0), self.now);
                // The state for later items of this call.
                self.key_states[key] = Some(key_state);
                Ok(outcome)
            }
        }
    }

    /// Returns how many of the identical requests were admitted, and their replay.
    fn turn<'p>(&'p mut self, checks: &'p [CheckRequest]) -> Result<(usize, RequestReplay<'p>), Failure> {
        let admitted = self.numbers.next().ok_or_else(invalid_reply)?;
        let Ok(admitted) = usize::try_from(admitted) else {
            let whose = checks.iter().find(|it| self.key_states[it.key].is_none());
            return Err(whose.map_or_else(invalid_reply, |it| foreign(self.batch, it.key)));
        };
        let free = read_free(self.batch, checks, &mut self.numbers);
        let (batch, now) = (self.batch, self.now);
        Ok((admitted, RequestReplay { batch, checks, free, key_states: &mut self.key_states, now }))
    }
}

fn invalid_reply() -> Failure {
    Failure::failed("the reply of the script is invalid")
}

fn foreign(batch: &BatchBuilder, key: usize) -> Failure {
    // The message omits the bare key, which may be a credential.
    Failure::Foreign(format!("{}*", batch.file(key).escape_ascii()).into())
}

/// Reads when the logs and slots of a request are available.
fn read_free<I: Iterator<Item = i64>>(
    batch: &BatchBuilder,
    checks: &[CheckRequest],
    numbers: &mut Numbers<I>,
) -> SmallVec<[Availability; 4]> {
    let read = |asked: &CheckRequest| match quota_of(batch, asked.key) {
        Quota::SlidingLog(_) => Availability { at: numbers.next().unwrap_or(0), ..Availability::default() },
        Quota::Concurrency(_) => {
            Availability { at: numbers.next().unwrap_or(0), last: numbers.time().unwrap_or_default() }
        }
        _ => Availability::default(),
    };
    checks.iter().map(read).collect()
}

/// The replay of one request.
struct RequestReplay<'a> {
    batch: &'a BatchBuilder,
    checks: &'a [CheckRequest],
    free: SmallVec<[Availability; 4]>,
    key_states: &'a mut [Option<KeyState>],
    now: Timestamp,
}

impl RequestReplay<'_> {
    fn admit(&mut self) -> DecisionReply {
        let (mut outcomes, mut renewed) = (Outcomes::new(), SmallVec::new());
        for (at, (asked, &free)) in self.checks.iter().zip(&self.free).enumerate() {
            let quota = quota_of(self.batch, asked.key);
            let Some(key_state) = &mut self.key_states[asked.key] else { continue };
            let verdict = key_state.acquire(quota, asked.amount, free, self.now);
            outcomes.push(key_state.describe(quota, verdict, self.now));
            if free.at < 0 {
                renewed.push(at);
            }
        }
        DecisionReply { answer: Answer { admitted: true, at: self.now, outcomes }, renewed }
    }

    /// Refuses the request. A rule that would have admitted it reports that, without a charge.
    fn refuse(&mut self) -> Answer {
        let mut outcomes = Outcomes::new();
        // A key that occurs twice in a request has less for the second check.
        let mut tried: SmallVec<[(usize, KeyState); 4]> = SmallVec::new();
        let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
        for (asked, &free) in self.checks.iter().zip(&self.free) {
            let quota = quota_of(self.batch, asked.key);
            let Some(before) = &self.key_states[asked.key] else { continue };
            let known = tried.iter().position(|(key, _)| *key == asked.key);
            let at = known.unwrap_or_else(|| {
                tried.push((asked.key, before.clone()));
                tried.len() - 1
            });
            verdicts.push(match tried[at].1.acquire(quota, asked.amount, free, self.now) {
                Verdict::Admitted { .. } => Verdict::admitted(0),
                refused => refused,
            });
        }
        for ((asked, &free), verdict) in self.checks.iter().zip(&self.free).zip(verdicts) {
            let quota = quota_of(self.batch, asked.key);
            let Some(key_state) = &mut self.key_states[asked.key] else { continue };
            let mut reply = verdict;
            if let (true, Amount::Exactly(units) | Amount::UpTo(units)) = (asked.count_denied, asked.amount) {
                key_state.charge(quota, units, self.now);
                // The charge may have extended the wait.
                if let Verdict::Refused { .. } = verdict {
                    reply = match key_state.clone().acquire(quota, asked.amount, free, self.now) {
                        longer @ Verdict::Refused { .. } => longer,
                        _ => verdict,
                    };
                }
            }
            outcomes.push(key_state.describe(quota, reply, self.now));
        }
        Answer { admitted: false, at: self.now, outcomes }
    }

    /// Reports the keys of an admitted request to the observer.
    fn show(&self, observer: &impl KeyObserver) {
        for asked in self.checks {
            if let Some(key_state) = &self.key_states[asked.key] {
                observer.admitted(self.batch, asked.key, key_state, self.now);
            }
        }
    }

    /// Reports the keys of a refused request to the observer.
    fn remember(&self, observer: &impl KeyObserver) {
        let twice = |at: usize, it: &CheckRequest| self.checks[..at].iter().any(|other| other.key == it.key);
        if self.checks.iter().enumerate().any(|(at, it)| it.count_denied || twice(at, it)) {
            return;
        }
        for (asked, &free) in self.checks.iter().zip(&self.free) {
            let Some(key_state) = &self.key_states[asked.key] else { continue };
            let wait = match asked.amount {
                Amount::Exactly(units) if free.at > 0 => Some((units, free.at)),
                _ => None,
            };
            observer.refused(self.batch, asked.key, key_state, wait, self.now);
        }
    }
}
