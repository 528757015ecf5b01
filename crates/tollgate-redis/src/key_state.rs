//! How a key stands, as Redis told it.
//!
//! Most states are told whole, and `tollgate_core` says what they mean: the very
//! code that decides in memory words what was decided in Redis. Logs and leases
//! can be long, so of them only what an answer needs is told: how much is used,
//! until when, and when the next unit is free.

use smallvec::SmallVec;
use tollgate_core::{
    Adjustment, Algorithm, Amount, BucketState, FixedWindowState, Outcome, Overdraft, Quota,
    SlidingPartsState, SlidingWindowState, Span, State, Timestamp, Verdict,
};

/// How a key stands.
#[derive(Clone, Debug)]
pub(crate) enum KeyState {
    /// All there is to know.
    Whole(State),
    /// Of a log or of slots.
    Summed(StateSummary),
}

/// What was told of a key.
pub(crate) enum KeyReply {
    /// How it stands.
    Ours(KeyState),
    /// Somebody else's data lies there.
    Foreign,
}

/// What is told of a log or of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateSummary {
    /// Units in view, or leases that run.
    used: u64,
    /// When the newest unit was spent, or when the last lease ends.
    last: Timestamp,
}

/// What only the server can tell of a log or of slots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Availability {
    /// When the demand could be met. Zero: now; below: the slot was held before.
    pub(crate) at: i64,
    /// When the last lease ends, once the slot is taken.
    pub(crate) last: Timestamp,
}

/// Numbers of an answer, one after the other.
pub(crate) struct Numbers<I>(pub(crate) I);

impl<I: Iterator<Item = i64>> Numbers<I> {
    pub(crate) fn next(&mut self) -> Option<i64> {
        self.0.next()
    }

    pub(crate) fn whole(&mut self) -> Option<u64> {
        u64::try_from(self.0.next()?).ok()
    }

    pub(crate) fn small<N: TryFrom<i64>>(&mut self) -> Option<N> {
        N::try_from(self.0.next()?).ok()
    }

    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        self.whole().map(Timestamp::from_micros)
    }
}

impl KeyState {
    /// Reads a state; `None` where no such state was told.
    pub(crate) fn read<I: Iterator<Item = i64>>(quota: &Quota, numbers: &mut Numbers<I>) -> Option<KeyReply> {
        let first = numbers.next()?;
        let Ok(first) = u64::try_from(first) else { return Some(KeyReply::Foreign) };
        let at = Timestamp::from_micros(first);
        let key_state = match quota {
            Quota::Bucket(bucket) => {
                // In whole ticks there are none.
                let has_grains = bucket.grains_per_tick() > 1;
                let grains = if has_grains { numbers.small()? } else { 0 };
                Self::Whole(State::Bucket(BucketState { tat: at, grains }))
            }
            Quota::FixedWindow(_) => {
                Self::Whole(State::FixedWindow(FixedWindowState { end: at, count: numbers.whole()? }))
            }
            Quota::SlidingWindow(_) => {
                let (current, previous) = (numbers.small()?, numbers.small()?);
                Self::Whole(State::SlidingWindow(SlidingWindowState { newest: first, current, previous }))
            }
            Quota::SlidingParts(_) => {
                let many = numbers.small::<u8>()?;
                let part = |_| Some((numbers.small()?, numbers.small()?, numbers.small()?));
                let parts = (0..many).map(part).collect::<Option<SmallVec<[_; 8]>>>()?;
                Self::Whole(State::SlidingParts(SlidingPartsState::new(at, parts)?))
            }
            Quota::SlidingLog(_) | Quota::Concurrency(_) => {
                Self::Summed(StateSummary { used: first, last: numbers.time()? })
            }
        };
        Some(KeyReply::Ours(key_state))
    }

    /// Meets a demand as the script has met it, or would have. `free` is when the
    /// script says that the log or the slot is free.
    pub(crate) fn acquire(
        &mut self,
        quota: &Quota,
        amount: Amount,
        free: Availability,
        now: Timestamp,
    ) -> Verdict {
        match self {
            Self::Whole(state) => quota.acquire(state, amount, now),
            Self::Summed(sum) => sum.acquire(quota, amount, free, now),
        }
    }

    /// Charges a rule for a request that was refused.
    pub(crate) fn charge(&mut self, quota: &Quota, units: u64, now: Timestamp) {
        match self {
            Self::Whole(state) => {
                quota.adjust(state, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
            }
            Self::Summed(sum) => sum.charge(quota, units, now),
        }
    }

    /// Words a verdict.
    pub(crate) fn describe(&self, quota: &Quota, verdict: Verdict, now: Timestamp) -> Outcome {
        match self {
            Self::Whole(state) => quota.describe(state, verdict, now),
            Self::Summed(sum) => sum.describe(quota, verdict, now),
        }
    }
}

impl StateSummary {
    fn acquire(&mut self, quota: &Quota, amount: Amount, free: Availability, now: Timestamp) -> Verdict {
        let wait = || Verdict::Refused {
            retry_after: u64::try_from(free.at)
                .map_or(Span::ZERO, |free| Timestamp::from_micros(free).since(now)),
        };
        match (quota, amount) {
            (_, Amount::Exactly(0) | Amount::UpTo(0)) => Verdict::admitted(0),
            (Quota::SlidingLog(log), Amount::Exactly(units) | Amount::UpTo(units)) => {
                let left = log.capacity().saturating_sub(self.used);
                let units = if matches!(amount, Amount::UpTo(_)) { units.min(left.max(1)) } else { units };
                if units > log.capacity() {
                    Verdict::Never
                } else if units > left {
                    wait()
                } else {
                    self.add(units, now);
                    Verdict::admitted(units)
                }
            }
            (Quota::Concurrency(_), Amount::Slot(_)) if free.at > 0 => wait(),
            (Quota::Concurrency(_), Amount::Slot(_)) => {
                // A slot that its owner held before is renewed, and none is taken.
                self.used += u64::from(free.at == 0);
                self.last = free.last;
                Verdict::admitted(1)
            }
            _ => Verdict::Never,
        }
    }

    /// A clock that stepped back stands still at the newest unit.
    fn add(&mut self, units: u64, now: Timestamp) {
        self.used += units;
        self.last = self.last.max(now);
    }

    fn charge(&mut self, quota: &Quota, units: u64, now: Timestamp) {
        let room = quota.capacity().saturating_sub(self.used);
        if matches!(quota, Quota::SlidingLog(_)) && units.min(room) > 0 {
            self.add(units.min(room), now);
        }
    }

    fn describe(&self, quota: &Quota, verdict: Verdict, now: Timestamp) -> Outcome {
        let ends = match quota {
            Quota::SlidingLog(log) => self.last + log.rate().period,
            _ => self.last,
        };
        Outcome {
            verdict,
            limit: quota.capacity(),
            remaining: quota.capacity().saturating_sub(self.used),
            reset_after: if self.used == 0 { Span::ZERO } else { ends.since(now) },
        }
    }
}
