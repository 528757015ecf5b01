//! Sliding log: every unit with its time. Exact, at the cost of memory.
//!
//! At most `limit` units lie in any stretch of one window, `(t - W, t]`. The log never holds more
//! than that (twice that when overdrawn), and units of one instant share an entry, so memory is
//! bounded by the limit.

use alloc::vec::Vec;

use super::{Algorithm, Overdraft};
use crate::amount::ChargeTimes;
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// A sliding log: at most a number of units in any stretch of one window, exactly.
///
/// ```
/// # use tollgate_core::{Algorithm, QuotaError, Rate, SlidingLog, Span, Timestamp};
/// let limit = SlidingLog::new(Rate::new(3, Span::from_secs(10)))?;
/// let mut state = limit.fresh();
/// for second in [1, 4, 6] {
///     limit.step(&mut state, 1, Timestamp::from_secs(second));
/// }
/// // Two units need the two oldest to leave, so the wait is for the second of them.
/// let refused = limit.step(&mut state, 2, Timestamp::from_secs(8));
/// assert_eq!(refused.retry_after(), Some(Span::from_secs(6)));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    rate: Rate,
}

/// Units and their times, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState {
    /// Time and number of units. Times strictly increase; numbers are above zero.
    pub entries: Vec<(Timestamp, u32)>,
}

/// The largest limit of a log, whose memory grows with its limit. Larger limits need a counter.
const MAX_LOG_UNITS: u64 = 1 << 16;

impl SlidingLog {
    /// Creates a limit on the units in any stretch of the period.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        if rate.count > MAX_LOG_UNITS {
            return Err(QuotaError::LogTooLong);
        }
        Ok(Self { rate })
    }

    /// Returns the limit as configured.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the state of a key that had `state` under a log of another length: the same
    /// instants.
    pub(crate) fn carry_over(&self, state: &SlidingLogState, now: Timestamp) -> SlidingLogState {
        SlidingLogState { entries: self.live(state, now).to_vec() }
    }

    /// Returns the instant to count at. After the clock stepped back, time stands still at the
    /// newest entry. If that is further ahead than two windows, the whole log is moved back to end
    /// at `now`.
    fn instant(&self, state: &mut SlidingLogState, now: Timestamp) -> Timestamp {
        let newest = state.entries.last().map_or(now, |&(at, _)| at.max(now));
        let ahead = newest.since(now);
        if ahead <= self.rate.period + self.rate.period {
            return newest;
        }
        for (at, _) in &mut state.entries {
            *at = at.before(ahead);
        }
        // At the epoch, several entries may have the same instant.
        state.entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = earlier.1.saturating_add(later.1);
            }
            same
        });
        now
    }

    /// Returns the number of entries that have left the window at `instant`.
    fn left(&self, state: &SlidingLogState, instant: Timestamp) -> usize {
        state.entries.partition_point(|&(at, _)| at + self.rate.period <= instant)
    }

    /// Returns the entries in the window, with a clock that stands still at the newest entry.
    fn live<'s>(&self, state: &'s SlidingLogState, now: Timestamp) -> &'s [(Timestamp, u32)] {
        let instant = state.entries.last().map_or(now, |&(at, _)| at.max(now));
        &state.entries[self.left(state, instant)..]
    }

    fn append(&self, state: &mut SlidingLogState, count: u64, instant: Timestamp) {
        let Some(count) = u32::try_from(count).ok().filter(|&count| count > 0) else { return };
        state.entries.drain(..self.left(state, instant));
        match state.entries.last_mut() {
            Some((at, more)) if *at == instant => *more += count,
            _ => state.entries.push((instant, count)),
        }
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    fn fresh(&self) -> SlidingLogState {
        SlidingLogState::default()
    }

    fn capacity(&self) -> u64 {
        self.rate.count
    }

    fn spend(&self, state: &mut SlidingLogState, cost: u64, now: Timestamp) -> Verdict {
        let instant = self.instant(state, now);
        if cost > self.rate.count {
            return Verdict::Never;
        }
        if cost == 0 {
            return Verdict::admitted(0);
        }
        let live = self.live(state, now);
        let Some(mut excess) = (units(live) + cost).checked_sub(self.rate.count + 1) else {
            self.append(state, cost, instant);
            return Verdict::admitted(cost);
        };
        // One unit more than `excess` must leave; the entry that holds it determines the wait.
        let last_to_leave = live.iter().find(|&&(_, count)| match excess.checked_sub(u64::from(count)) {
            Some(rest) => {
                excess = rest;
                false
            }
            None => true,
        });
        let free = last_to_leave.map_or(now, |&(at, _)| at + self.rate.period);
        Verdict::Refused { retry_after: free.since(now) }
    }

    fn describe(&self, state: &SlidingLogState, verdict: Verdict, now: Timestamp) -> Outcome {
        let live = self.live(state, now);
        Outcome {
            verdict,
            limit: self.rate.count,
            remaining: self.rate.count.saturating_sub(units(live)),
            reset_after: live.last().map_or(Span::ZERO, |&(at, _)| (at + self.rate.period).since(now)),
        }
    }

    fn refund(&self, state: &mut SlidingLogState, units: u64, charge: ChargeTimes, now: Timestamp) {
        if charge.at + self.rate.period <= self.instant(state, now) {
            return; // The entry has left the window; later entries belong to other requests.
        }
        // A step after the clock stepped back is recorded under the entry that was the newest then.
        let found = state.entries.partition_point(|&(at, _)| at < charge.at);
        if let Some((_, count)) = state.entries.get_mut(found) {
            *count = count.saturating_sub(u32::try_from(units).unwrap_or(u32::MAX));
            if *count == 0 {
                state.entries.remove(found);
            }
        }
    }

    fn grant(&self, state: &mut SlidingLogState, units: u64, now: Timestamp) {
        self.instant(state, now);
        let mut left = u32::try_from(units).unwrap_or(u32::MAX);
        while let Some((_, count)) = state.entries.last_mut().filter(|_| left > 0) {
            let taken = left.min(*count);
            *count -= taken;
            left -= taken;
            if *count == 0 {
                state.entries.pop();
            }
        }
    }

    fn charge(
        &self,
        state: &mut SlidingLogState,
        requested_units: u64,
        overdraft: Overdraft,
        now: Timestamp,
    ) {
        let instant = self.instant(state, now);
        let most = match overdraft {
            Overdraft::None => self.rate.count,
            Overdraft::OneCapacity => 2 * self.rate.count,
            Overdraft::Unlimited => 2 * MAX_LOG_UNITS,
        };
        let spent = units(self.live(state, now));
        self.append(state, requested_units.min(most.saturating_sub(spent)), instant);
    }

    fn used(&self, state: &SlidingLogState, now: Timestamp) -> u64 {
        units(self.live(state, now))
    }

    fn spent_until(&self, units: u64, until: Timestamp, _now: Timestamp) -> SlidingLogState {
        let count = u32::try_from(units.min(2 * self.rate.count)).unwrap_or(u32::MAX);
        let entry = (count > 0).then(|| (until.before(self.rate.period), count));
        SlidingLogState { entries: entry.into_iter().collect() }
    }

    fn expires_at(&self, state: &SlidingLogState) -> Timestamp {
        state.entries.last().map_or(Timestamp::EPOCH, |&(at, _)| at + self.rate.period)
    }
}

fn units(entries: &[(Timestamp, u32)]) -> u64 {
    entries.iter().map(|&(_, count)| u64::from(count)).sum()
}
