//! From what Redis answered to what each of those who asked is told.
//!
//! The script tells how each key stood before the call, and how many of a crowd it
//! let through. The same steps are taken again here, in the same order, by the
//! arithmetic of `tollgate_core`, so everybody learns how the key stood at their turn.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Demand, Quota, Timestamp, Verdict};
use tollgate_store::{Answer, Outcomes};

use crate::draft::{Asked, Decided, Draft, Item};
use crate::encoding::quota_of;
use crate::failure::Failure;
use crate::standing::{Free, Numbers, Standing, Told};

/// Whoever wants to know what became of keys.
pub(crate) trait Witness {
    /// A request was refused, and this is how one of its keys stands. `wait`: so
    /// many units of a log are free only then.
    fn refused(
        &self,
        draft: &Draft,
        key: usize,
        standing: &Standing,
        wait: Option<(u64, i64)>,
        at: Timestamp,
    );
    /// A key was changed by somebody's hand.
    fn changed(&self, draft: &Draft, key: usize);
}

/// Answers everybody. `numbers` are the answer without its first two, which are that
/// it is one, and `now`.
pub(crate) fn replay(
    mut draft: Draft,
    numbers: impl Iterator<Item = i64>,
    now: Timestamp,
    witness: &impl Witness,
) {
    let mut numbers = Numbers(numbers);
    let mut standings = Vec::with_capacity(draft.keys.len());
    for key in 0..draft.keys.len() {
        let Some(standing) = Standing::read(quota_of(&draft, key), &mut numbers) else {
            return draft.fail(&nonsense());
        };
        standings.push(match standing {
            Told::Ours(standing) => Some(standing),
            Told::Foreign => None,
        });
    }
    for item in std::mem::take(&mut draft.items) {
        match item {
            Item::Change { key, waiting, .. } => {
                let quota = quota_of(&draft, key);
                let told = match Standing::read(quota, &mut numbers) {
                    None => Err(nonsense()),
                    Some(Told::Foreign) => Err(foreign(&draft, key)),
                    Some(Told::Ours(standing)) => {
                        let outcome = standing.describe(quota, Verdict::admitted(0), now);
                        // So it stands for whoever comes later in this call.
                        standings[key] = Some(standing);
                        Ok(outcome)
                    }
                };
                witness.changed(&draft, key);
                drop(waiting.send(told));
            }
            Item::Requests { checks, waiting } => {
                let Some(admitted) = numbers.next() else {
                    waiting.into_iter().for_each(|it| drop(it.send(Err(nonsense()))));
                    continue;
                };
                let Ok(admitted) = usize::try_from(admitted) else {
                    let whose = checks.iter().find(|it| standings[it.key].is_none());
                    let failure = whose.map_or_else(nonsense, |it| foreign(&draft, it.key));
                    waiting.into_iter().for_each(|it| drop(it.send(Err(failure.clone()))));
                    continue;
                };
                let free = read_free(&draft, &checks, &mut numbers);
                let mut turn =
                    Turn { draft: &draft, checks: &checks, free: &free, standings: &mut standings, now };
                let crowd = waiting.len();
                let mut waiting = waiting.into_iter();
                for it in waiting.by_ref().take(admitted) {
                    drop(it.send(Ok(turn.admit())));
                }
                if admitted < crowd {
                    let answer = turn.refuse();
                    turn.remember(witness);
                    for it in waiting {
                        let renewed = SmallVec::new();
                        drop(it.send(Ok(Decided { answer: answer.clone(), renewed })));
                    }
                }
            }
        }
    }
}

fn nonsense() -> Failure {
    Failure::failed("the script's answer makes no sense")
}

fn foreign(draft: &Draft, key: usize) -> Failure {
    Failure::Foreign(Arc::from(draft.name_of(key).escape_ascii().to_string()))
}

/// When the logs and slots of a request are free.
fn read_free<I: Iterator<Item = i64>>(
    draft: &Draft,
    checks: &[Asked],
    numbers: &mut Numbers<I>,
) -> SmallVec<[Free; 4]> {
    let read = |asked: &Asked| match quota_of(draft, asked.key) {
        Quota::SlidingLog(_) => Free { at: numbers.next().unwrap_or(0), ..Free::default() },
        Quota::Concurrency(_) => {
            Free { at: numbers.next().unwrap_or(0), last: numbers.time().unwrap_or_default() }
        }
        _ => Free::default(),
    };
    checks.iter().map(read).collect()
}

/// One request's turn.
struct Turn<'a> {
    draft: &'a Draft,
    checks: &'a [Asked],
    free: &'a [Free],
    standings: &'a mut [Option<Standing>],
    now: Timestamp,
}

impl Turn<'_> {
    fn admit(&mut self) -> Decided {
        let (mut outcomes, mut renewed) = (Outcomes::new(), SmallVec::new());
        for (at, (asked, &free)) in self.checks.iter().zip(self.free).enumerate() {
            let quota = quota_of(self.draft, asked.key);
            let Some(standing) = &mut self.standings[asked.key] else { continue };
            let verdict = standing.meet(quota, asked.demand, free, self.now);
            outcomes.push(standing.describe(quota, verdict, self.now));
            if free.at < 0 {
                renewed.push(at);
            }
        }
        Decided { answer: Answer { admitted: true, at: self.now, outcomes }, renewed }
    }

    /// A rule that would have admitted says so, with nothing charged.
    fn refuse(&mut self) -> Answer {
        let mut outcomes = Outcomes::new();
        // A key that is asked for twice in one request has less for the second.
        let mut tried: SmallVec<[(usize, Standing); 4]> = SmallVec::new();
        let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
        for (asked, &free) in self.checks.iter().zip(self.free) {
            let quota = quota_of(self.draft, asked.key);
            let Some(before) = &self.standings[asked.key] else { continue };
            let known = tried.iter().position(|(key, _)| *key == asked.key);
            let at = known.unwrap_or_else(|| {
                tried.push((asked.key, before.clone()));
                tried.len() - 1
            });
            verdicts.push(match tried[at].1.meet(quota, asked.demand, free, self.now) {
                Verdict::Admitted { .. } => Verdict::admitted(0),
                refused => refused,
            });
        }
        for ((asked, &free), verdict) in self.checks.iter().zip(self.free).zip(verdicts) {
            let quota = quota_of(self.draft, asked.key);
            let Some(standing) = &mut self.standings[asked.key] else { continue };
            let mut told = verdict;
            if let (true, Demand::Exactly(units) | Demand::UpTo(units)) = (asked.count_denied, asked.demand) {
                standing.charge(quota, units, self.now);
                // The charge may have made the wait longer.
                if let Verdict::Refused { .. } = verdict {
                    told = match standing.clone().meet(quota, asked.demand, free, self.now) {
                        longer @ Verdict::Refused { .. } => longer,
                        _ => verdict,
                    };
                }
            }
            outcomes.push(standing.describe(quota, told, self.now));
        }
        Answer { admitted: false, at: self.now, outcomes }
    }

    /// Hands every key of a refused request to whoever remembers refusals.
    fn remember(&self, witness: &impl Witness) {
        if self.checks.iter().any(|it| it.count_denied) {
            return;
        }
        for (asked, &free) in self.checks.iter().zip(self.free) {
            let Some(standing) = &self.standings[asked.key] else { continue };
            let wait = match asked.demand {
                Demand::Exactly(units) if free.at > 0 => Some((units, free.at)),
                _ => None,
            };
            witness.refused(self.draft, asked.key, standing, wait, self.now);
        }
    }
}
