//! The state of a key, as read from the reply of the script.
//!
//! Most states are returned completely and interpreted by `tollgate_core`, the code that also
//! decides in memory. Logs and leases can be long, so the script returns only a summary: the units
//! in use, their end, and when the next unit is available.

use smallvec::SmallVec;
use tollgate_core::{
    Adjustment, Algorithm, Amount, BucketState, FixedWindowState, Outcome, Overdraft, Quota,
    SlidingPartsState, SlidingWindowState, Span, State, Timestamp, Verdict,
};

/// The state of a key.
#[derive(Clone, Debug)]
pub(crate) enum KeyState {
    /// A complete state.
    Whole(State),
    /// The summary of a log or of slots.
    Summed(StateSummary),
}

/// The reply for a key.
pub(crate) enum KeyReply {
    /// A state that Tollgate wrote.
    Ours(KeyState),
    /// A value that Tollgate did not write.
    Foreign,
}

/// The summary of a log or of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateSummary {
    /// The units in view, or the active leases.
    used: u64,
    /// When the newest unit was spent, or when the last lease ends.
    last: Timestamp,
}

/// When a log or slots can meet a check; only the server knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Availability {
    /// When the check can be met, in microseconds since 1970. Zero: now; negative: the owner held
    /// the slot before.
    pub(crate) at: i64,
    /// When the last lease ends after the slot is acquired.
    pub(crate) last: Timestamp,
}

/// A reader for the numbers of a reply.
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
    /// Reads a state; `None` if the reply is invalid.
    pub(crate) fn read<I: Iterator<Item = i64>>(quota: &Quota, numbers: &mut Numbers<I>) -> Option<KeyReply> {
        let first = numbers.next()?;
        let Ok(first) = u64::try_from(first) else { return Some(KeyReply::Foreign) };
        let at = Timestamp::from_micros(first);
        let key_state = match quota {
            Quota::Bucket(bucket) => {
                // A bucket in whole ticks has no grains.
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

    /// Acquires an amount as the script did or would have. `free` is the availability of the log or
    /// slot that the script returned.
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

    /// Returns whether a refund left a place of a queue as it is ([`Quota::keeps_place`]).
    pub(crate) fn keeps_place(&self, quota: &Quota, adjustment: Adjustment, now: Timestamp) -> bool {
        match self {
            Self::Whole(state) => quota.keeps_place(state, adjustment, now),
            Self::Summed(_) => false,
        }
    }

    /// Charges a rule for a refused request.
    pub(crate) fn charge(&mut self, quota: &Quota, units: u64, now: Timestamp) {
        match self {
            Self::Whole(state) => {
                quota.adjust(state, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
            }
            Self::Summed(sum) => sum.charge(quota, units, now),
        }
    }

    /// Converts a verdict to an outcome.
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
            (_, Amount::Exactly(0) | Amount::UpTo(0)) | (Quota::SlidingLog(_), Amount::Lease(_)) => {
                Verdict::admitted(0)
            }
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
                // A slot that its owner held before is renewed and not counted again.
                self.used += u64::from(free.at == 0);
                self.last = free.last;
                Verdict::admitted(1)
            }
            _ => Verdict::Never,
        }
    }

    /// Adds units; if the clock stepped back, the time stays at the newest unit.
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
