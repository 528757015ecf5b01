//! From what Redis answered to what each of those who asked is told.
//!
//! The script tells how each key stood before the call, and how many of a crowd it
//! let through. The same steps are taken again here, in the same order, by the
//! arithmetic of `tollgate_core`, so everybody learns how the key stood at their turn.

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Demand, Outcome, Quota, Timestamp, Verdict};
use tollgate_store::{Answer, Outcomes};

use crate::draft::{Asked, Crowd, Decided, Draft, Item, Waiters};
use crate::encoding::quota_of;
use crate::failure::Failure;
use crate::standing::{Free, Numbers, Standing, Told as ToldState};
use crate::undo::undo;

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
    /// A request was admitted, and this is how one of its keys stands since.
    fn admitted(&self, draft: &Draft, key: usize, standing: &Standing, at: Timestamp);
    /// A key was changed by somebody's hand.
    fn changed(&self, draft: &Draft, key: usize);
}

/// What the script answered about a call: `numbers` without the first two, which are that
/// it is an answer, and `now`.
pub(crate) struct Told {
    pub(crate) numbers: Vec<i64>,
    pub(crate) now: Timestamp,
}

/// Answers everybody.
pub(crate) fn replay(draft: &Draft, crowd: Crowd, told: Told, witness: &impl Witness) {
    let Some(mut play) = Play::begin(draft, told) else { return crowd.fail(&nonsense()) };
    for (item, waiters) in draft.items.iter().zip(crowd.0) {
        match (item, waiters) {
            (Item::Change { key, .. }, Waiters::Change(waiting)) => {
                let outcome = play.change(*key);
                witness.changed(draft, *key);
                drop(waiting.send(outcome));
            }
            (Item::Requests { checks, many }, Waiters::Requests(waiting)) => {
                let mut waiting = waiting.into_iter();
                match play.turn(checks) {
                    Ok((admitted, mut turn)) => {
                        for it in waiting.by_ref().take(admitted) {
                            let decided = turn.admit();
                            // First, since whoever is told may ask again.
                            turn.show(witness);
                            drop(it.send(Ok(decided)));
                        }
                        if admitted < *many {
                            let answer = turn.refuse();
                            turn.remember(witness);
                            for it in waiting {
                                let renewed = SmallVec::new();
                                drop(it.send(Ok(Decided { answer: answer.clone(), renewed })));
                            }
                        }
                    }
                    Err(failure) => waiting.for_each(|it| drop(it.send(Err(failure.clone())))),
                }
            }
            // A draft files both together.
            (_, waiters) => Crowd(vec![waiters]).fail(&nonsense()),
        }
    }
}

/// What a call took that nobody waits for any more, as what has to be done to give it back.
pub(crate) fn take_back(draft: &Draft, told: Told) -> Vec<(usize, Adjustment)> {
    let mut undone = Vec::new();
    let taken_at = told.now;
    let Some(mut play) = Play::begin(draft, told) else { return undone };
    for item in &draft.items {
        match item {
            Item::Change { key, .. } => drop(play.change(*key)),
            Item::Requests { checks, many } => {
                let Ok((admitted, mut turn)) = play.turn(checks) else { continue };
                for _ in 0..admitted {
                    let decided = turn.admit();
                    for (at, (asked, outcome)) in checks.iter().zip(&decided.answer.outcomes).enumerate() {
                        let renewed = decided.renewed.contains(&at);
                        if let Some(change) = undo(asked.demand, outcome, renewed, taken_at) {
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
struct Play<'d> {
    draft: &'d Draft,
    standings: Vec<Option<Standing>>,
    numbers: Numbers<std::vec::IntoIter<i64>>,
    now: Timestamp,
}

impl<'d> Play<'d> {
    fn begin(draft: &'d Draft, told: Told) -> Option<Self> {
        let mut numbers = Numbers(told.numbers.into_iter());
        let mut standings = Vec::with_capacity(draft.keys.len());
        for key in 0..draft.keys.len() {
            standings.push(match Standing::read(quota_of(draft, key), &mut numbers)? {
                ToldState::Ours(standing) => Some(standing),
                ToldState::Foreign => None,
            });
        }
        Some(Self { draft, standings, numbers, now: told.now })
    }

    fn change(&mut self, key: usize) -> Result<Outcome, Failure> {
        let quota = quota_of(self.draft, key);
        match Standing::read(quota, &mut self.numbers) {
            None => Err(nonsense()),
            Some(ToldState::Foreign) => Err(foreign(self.draft, key)),
            Some(ToldState::Ours(standing)) => {
                let outcome = standing.describe(quota, Verdict::admitted(0), self.now);
                // So it stands for whoever comes later in this call.
                self.standings[key] = Some(standing);
                Ok(outcome)
            }
        }
    }

    /// How many of a crowd were admitted, and their turn.
    fn turn<'p>(&'p mut self, checks: &'p [Asked]) -> Result<(usize, Turn<'p>), Failure> {
        let admitted = self.numbers.next().ok_or_else(nonsense)?;
        let Ok(admitted) = usize::try_from(admitted) else {
            let whose = checks.iter().find(|it| self.standings[it.key].is_none());
            return Err(whose.map_or_else(nonsense, |it| foreign(self.draft, it.key)));
        };
        let free = read_free(self.draft, checks, &mut self.numbers);
        let (draft, now) = (self.draft, self.now);
        Ok((admitted, Turn { draft, checks, free, standings: &mut self.standings, now }))
    }
}

fn nonsense() -> Failure {
    Failure::failed("the script's answer makes no sense")
}

fn foreign(draft: &Draft, key: usize) -> Failure {
    // The key itself may be somebody's password: it can be found without.
    Failure::Foreign(format!("{}*", draft.file(key).escape_ascii()).into())
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
    free: SmallVec<[Free; 4]>,
    standings: &'a mut [Option<Standing>],
    now: Timestamp,
}

impl Turn<'_> {
    fn admit(&mut self) -> Decided {
        let (mut outcomes, mut renewed) = (Outcomes::new(), SmallVec::new());
        for (at, (asked, &free)) in self.checks.iter().zip(&self.free).enumerate() {
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
        for (asked, &free) in self.checks.iter().zip(&self.free) {
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
        for ((asked, &free), verdict) in self.checks.iter().zip(&self.free).zip(verdicts) {
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

    /// Hands every key of an admitted request to whoever remembers refusals.
    fn show(&self, witness: &impl Witness) {
        for asked in self.checks {
            if let Some(standing) = &self.standings[asked.key] {
                witness.admitted(self.draft, asked.key, standing, self.now);
            }
        }
    }

    /// Hands every key of a refused request to whoever remembers refusals.
    fn remember(&self, witness: &impl Witness) {
        let twice = |at: usize, it: &Asked| self.checks[..at].iter().any(|other| other.key == it.key);
        if self.checks.iter().enumerate().any(|(at, it)| it.count_denied || twice(at, it)) {
            return;
        }
        for (asked, &free) in self.checks.iter().zip(&self.free) {
            let Some(standing) = &self.standings[asked.key] else { continue };
            let wait = match asked.demand {
                Demand::Exactly(units) if free.at > 0 => Some((units, free.at)),
                _ => None,
            };
            witness.refused(self.draft, asked.key, standing, wait, self.now);
        }
    }
}
