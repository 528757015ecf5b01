//! Replays a batch on the states that the script returned.
//!
//! In: a batch and the reply of the script, which has the state of each key before the call and how
//! many of the identical requests were admitted. Out: for each step the answer, and the changes of
//! the keys. The steps are those of the script, in the same order, with the arithmetic of
//! `tollgate_core`, so that each request gets the state at its turn.

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Timestamp, Verdict};
use tollgate_store::{Answer, Outcomes};

use super::{ScriptReply, invalid_reply};
use crate::batch::{Batch, CheckRequest};
use crate::failure::Failure;
use crate::key_state::{Availability, KeyReply, KeyState, Numbers};
use crate::waiters::DecisionReply;

/// The change of a key in a step. The index of the key refers to the batch.
pub(crate) enum KeyChange<'r> {
    /// A request was admitted; the state afterward.
    Admitted { key: usize, key_state: &'r KeyState },
    /// A request was refused; the state that refuses the next identical request, too.
    Refused { key: usize, key_state: &'r KeyState, wait: Option<UnitsWait> },
    /// An adjustment was applied, or may have been.
    Adjusted { key: usize },
}

/// When units of a log become available; only the server knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitsWait {
    /// The number of units.
    pub(crate) units: u64,
    /// The time in microseconds since 1970, by the clock of Redis.
    pub(crate) until: i64,
}

/// The replay of a batch.
pub(crate) struct Replay<'b> {
    batch: &'b Batch,
    /// The state of each key; `None`: a value that Tollgate did not write.
    key_states: Vec<Option<KeyState>>,
    numbers: Numbers<std::vec::IntoIter<i64>>,
    now: Timestamp,
}

impl<'b> Replay<'b> {
    /// Reads the states of the keys before the call.
    pub(crate) fn new(batch: &'b Batch, reply: ScriptReply) -> Result<Self, Failure> {
        let mut numbers = reply.numbers;
        let mut key_states = Vec::with_capacity(batch.keys.len());
        for key in 0..batch.keys.len() {
            let read = KeyState::read(batch.quota(key), &mut numbers).ok_or_else(invalid_reply)?;
            key_states.push(match read {
                KeyReply::Ours(key_state) => Some(key_state),
                KeyReply::Foreign => None,
            });
        }
        Ok(Self { batch, key_states, numbers, now: reply.now })
    }

    /// Replays a change.
    pub(crate) fn change(
        &mut self,
        key: usize,
        adjustment: Adjustment,
    ) -> (Result<Outcome, Failure>, KeyChange<'static>) {
        let quota = self.batch.quota(key);
        let outcome = match KeyState::read(quota, &mut self.numbers) {
            None => Err(invalid_reply()),
            Some(KeyReply::Foreign) => Err(foreign(self.batch, key)),
            Some(KeyReply::Ours(key_state)) => {
                let is_renewal = matches!(adjustment, Adjustment::Renew { .. });
                let units = if is_renewal {
                    self.numbers.whole().unwrap_or(0).min(1)
                } else {
                    u64::from(key_state.keeps_place(quota, adjustment, self.now))
                };
                let outcome = key_state.describe(quota, Verdict::admitted(units), self.now);
                // The state for later items of this call.
                self.key_states[key] = Some(key_state);
                Ok(outcome)
            }
        };
        (outcome, KeyChange::Adjusted { key })
    }

    /// Reads how many of `many` identical requests were admitted, and returns their replay.
    pub(crate) fn requests<'r>(
        &'r mut self,
        checks: &'r [CheckRequest],
        many: usize,
    ) -> Result<RequestReplay<'r>, Failure> {
        let admitted = self.numbers.next().ok_or_else(invalid_reply)?;
        let Ok(admitted) = usize::try_from(admitted) else {
            let foreign_key = checks.iter().find(|check| self.key_states[check.key].is_none());
            return Err(foreign_key.map_or_else(invalid_reply, |check| foreign(self.batch, check.key)));
        };
        let free = read_free(self.batch, checks, &mut self.numbers);
        Ok(RequestReplay {
            admitted: admitted.min(many),
            batch: self.batch,
            checks,
            free,
            key_states: &mut self.key_states,
            now: self.now,
        })
    }
}

fn foreign(batch: &Batch, key: usize) -> Failure {
    // The message omits the bare key, which may be a credential.
    Failure::Foreign(format!("{}*", batch.name_prefix(key).escape_ascii()).into())
}

/// Reads when the logs and slots of a request are available.
fn read_free<I: Iterator<Item = i64>>(
    batch: &Batch,
    checks: &[CheckRequest],
    numbers: &mut Numbers<I>,
) -> SmallVec<[Availability; 4]> {
    let read = |check: &CheckRequest| match batch.quota(check.key) {
        Quota::SlidingLog(_) => Availability { at: numbers.next().unwrap_or(0), ..Availability::default() },
        Quota::Concurrency(_) => {
            Availability { at: numbers.next().unwrap_or(0), last: numbers.time().unwrap_or_default() }
        }
        _ => Availability::default(),
    };
    checks.iter().map(read).collect()
}

/// The replay of identical requests.
pub(crate) struct RequestReplay<'r> {
    /// The number of admitted requests; the others were refused after them.
    pub(crate) admitted: usize,
    batch: &'r Batch,
    checks: &'r [CheckRequest],
    free: SmallVec<[Availability; 4]>,
    key_states: &'r mut [Option<KeyState>],
    now: Timestamp,
}

impl RequestReplay<'_> {
    /// Replays one admitted request.
    pub(crate) fn admit(&mut self) -> (DecisionReply, impl Iterator<Item = KeyChange<'_>>) {
        let (mut outcomes, mut renewed) = (Outcomes::new(), SmallVec::new());
        for (at, (check, &free)) in self.checks.iter().zip(&self.free).enumerate() {
            let quota = self.batch.quota(check.key);
            let Some(key_state) = &mut self.key_states[check.key] else { continue };
            let verdict = key_state.acquire(quota, check.amount, free, self.now);
            outcomes.push(key_state.describe(quota, verdict, self.now));
            if free.at < 0 {
                renewed.push(at);
            }
        }
        let reply = DecisionReply { answer: Answer { admitted: true, at: self.now, outcomes }, renewed };
        (reply, self.admitted_keys())
    }

    fn admitted_keys(&self) -> impl Iterator<Item = KeyChange<'_>> {
        self.checks.iter().filter_map(|check| {
            let key_state = self.key_states[check.key].as_ref()?;
            Some(KeyChange::Admitted { key: check.key, key_state })
        })
    }

    /// Replays the refused requests, which all have the same answer. A rule that would have admitted
    /// them reports that, without a charge.
    pub(crate) fn refuse(&mut self) -> (Answer, impl Iterator<Item = KeyChange<'_>>) {
        let mut outcomes = Outcomes::new();
        let verdicts = self.refusal_verdicts();
        for ((check, &free), verdict) in self.checks.iter().zip(&self.free).zip(verdicts) {
            let quota = self.batch.quota(check.key);
            let Some(key_state) = &mut self.key_states[check.key] else { continue };
            let mut reply = verdict;
            if let (true, Amount::Exactly(units) | Amount::UpTo(units)) = (check.count_denied, check.amount) {
                key_state.charge(quota, units, self.now);
                // The charge may have extended the wait.
                if let Verdict::Refused { .. } = verdict {
                    reply = match key_state.clone().acquire(quota, check.amount, free, self.now) {
                        longer @ Verdict::Refused { .. } => longer,
                        _ => verdict,
                    };
                }
            }
            outcomes.push(key_state.describe(quota, reply, self.now));
        }
        (Answer { admitted: false, at: self.now, outcomes }, self.refused_keys())
    }

    /// The verdict of each check before the refusal is counted.
    fn refusal_verdicts(&self) -> SmallVec<[Verdict; 4]> {
        // A key that occurs twice in a request has less for the second check.
        let mut tried: SmallVec<[(usize, KeyState); 4]> = SmallVec::new();
        let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
        for (check, &free) in self.checks.iter().zip(&self.free) {
            let quota = self.batch.quota(check.key);
            let Some(before) = &self.key_states[check.key] else { continue };
            let known = tried.iter().position(|(key, _)| *key == check.key);
            let at = known.unwrap_or_else(|| {
                tried.push((check.key, before.clone()));
                tried.len() - 1
            });
            verdicts.push(match tried[at].1.acquire(quota, check.amount, free, self.now) {
                Verdict::Admitted { .. } => Verdict::admitted(0),
                refused => refused,
            });
        }
        verdicts
    }

    /// The keys that refuse the next identical request, too: none if a refusal is counted, or if a
    /// key occurs twice.
    fn refused_keys(&self) -> impl Iterator<Item = KeyChange<'_>> {
        let occurs_before = |at: usize, key| self.checks[..at].iter().any(|other| other.key == key);
        let mut checks = self.checks.iter().enumerate();
        let is_repeatable = checks.all(|(at, check)| !check.count_denied && !occurs_before(at, check.key));
        let checks = if is_repeatable { self.checks } else { &[] };
        checks.iter().zip(&self.free).filter_map(|(check, free)| {
            let key_state = self.key_states[check.key].as_ref()?;
            let wait = match check.amount {
                Amount::Exactly(units) if free.at > 0 => Some(UnitsWait { units, until: free.at }),
                _ => None,
            };
            Some(KeyChange::Refused { key: check.key, key_state, wait })
        })
    }
}
