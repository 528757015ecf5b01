//! From what Redis answered to what each of those who asked is told.
//!
//! The script tells how each key stood before the call, and how many of a crowd it
//! let through. The same steps are taken again here, in the same order, by the
//! arithmetic of `tollgate_core`, so everybody learns how the key stood at their turn.

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Timestamp, Verdict};
use tollgate_store::{Answer, Outcomes};

use crate::batch::{BatchBuilder, CheckRequest, DecisionReply, Item, ItemWaiters, Waiters};
use crate::encoding::quota_of;
use crate::failure::Failure;
use crate::key_state::{Availability, KeyReply, KeyState, Numbers};
use crate::undo::undo;

/// Whoever wants to know what became of keys.
pub(crate) trait KeyObserver {
    /// A request was refused, and this is how one of its keys stands. `wait`: so
    /// many units of a log are free only then.
    fn refused(
        &self,
        batch: &BatchBuilder,
        key: usize,
        key_state: &KeyState,
        wait: Option<(u64, i64)>,
        at: Timestamp,
    );
    /// A request was admitted, and this is how one of its keys stands since.
    fn admitted(&self, batch: &BatchBuilder, key: usize, key_state: &KeyState, at: Timestamp);
    /// A key was changed by somebody's hand.
    fn changed(&self, batch: &BatchBuilder, key: usize);
}

/// What the script answered about a call: `numbers` without the first two, which are that
/// it is an answer, and `now`.
pub(crate) struct ScriptReply {
    pub(crate) numbers: Vec<i64>,
    pub(crate) now: Timestamp,
}

/// Answers everybody.
pub(crate) fn replay(
    batch: &BatchBuilder,
    waiters: Waiters,
    reply: ScriptReply,
    observer: &impl KeyObserver,
) {
    let Some(mut replayed) = ScriptReplay::begin(batch, reply) else { return waiters.fail(&nonsense()) };
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
                            // First, since whoever is told may ask again.
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
            // A batch files both together.
            (_, waiters) => Waiters(vec![waiters]).fail(&nonsense()),
        }
    }
}

/// What a call took that nobody waits for any more, as what has to be done to give it back.
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

/// What many have spent of one key is given back at once.
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

/// The steps of a call, taken again.
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
            None => Err(nonsense()),
            Some(KeyReply::Foreign) => Err(foreign(self.batch, key)),
            Some(KeyReply::Ours(key_state)) => {
                let outcome = key_state.describe(quota, Verdict::admitted(0), self.now);
                // So it stands for whoever comes later in this call.
                self.key_states[key] = Some(key_state);
                Ok(outcome)
            }
        }
    }

    /// How many of a crowd were admitted, and their turn.
    fn turn<'p>(&'p mut self, checks: &'p [CheckRequest]) -> Result<(usize, RequestReplay<'p>), Failure> {
        let admitted = self.numbers.next().ok_or_else(nonsense)?;
        let Ok(admitted) = usize::try_from(admitted) else {
            let whose = checks.iter().find(|it| self.key_states[it.key].is_none());
            return Err(whose.map_or_else(nonsense, |it| foreign(self.batch, it.key)));
        };
        let free = read_free(self.batch, checks, &mut self.numbers);
        let (batch, now) = (self.batch, self.now);
        Ok((admitted, RequestReplay { batch, checks, free, key_states: &mut self.key_states, now }))
    }
}

fn nonsense() -> Failure {
    Failure::failed("the script's answer makes no sense")
}

fn foreign(batch: &BatchBuilder, key: usize) -> Failure {
    // The key itself may be somebody's password: it can be found without.
    Failure::Foreign(format!("{}*", batch.file(key).escape_ascii()).into())
}

/// When the logs and slots of a request are free.
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

/// One request's turn.
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

    /// A rule that would have admitted says so, with nothing charged.
    fn refuse(&mut self) -> Answer {
        let mut outcomes = Outcomes::new();
        // A key that is asked for twice in one request has less for the second.
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
                // The charge may have made the wait longer.
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

    /// Hands every key of an admitted request to whoever remembers refusals.
    fn show(&self, observer: &impl KeyObserver) {
        for asked in self.checks {
            if let Some(key_state) = &self.key_states[asked.key] {
                observer.admitted(self.batch, asked.key, key_state, self.now);
            }
        }
    }

    /// Hands every key of a refused request to whoever remembers refusals.
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
