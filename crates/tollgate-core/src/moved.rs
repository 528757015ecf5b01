//! States on another clock: a key whose state moves to another node.
//!
//! Each node counts on its own clock, so the times of a state are converted: `from` on one clock is the
//! same instant as `to` on the other. A unit is never counted for a shorter time than on the
//! first clock. Only the sliding window of two counters has no exact conversion, because its windows
//! begin at round times of its clock.

use alloc::vec::Vec;

use crate::algorithm::{
    BucketState, FixedWindowState, Lease, Leases, SlidingLogState, SlidingWindow, SlidingWindowState,
};
use crate::quota::{Quota, State};
use crate::time::Timestamp;

/// The part of a window by which two clocks may differ for a sliding window to keep its two counts.
const MAX_SHIFT_PART: u64 = 100;

impl Quota {
    /// Returns a state on another clock, on which it is `to` when it is `from` on the present clock.
    ///
    /// ```
    /// # use tollgate_core::{Amount, Bucket, Quota, QuotaError, Rate, Span, Timestamp};
    /// let quota = Quota::from(Bucket::new(Rate::per_minute(2))?);
    /// let (mut state, here, there) = (quota.fresh(), Timestamp::from_secs(7), Timestamp::from_secs(9_000));
    /// quota.step(&mut state, Amount::Exactly(2), here);
    /// let mut state = quota.moved(&state, here, there);
    /// let refused = quota.step(&mut state, Amount::Exactly(1), there);
    /// assert_eq!(refused.retry_after(), Some(Span::from_secs(30)));
    /// # Ok::<(), QuotaError>(())
    /// ```
    #[must_use]
    pub fn moved(&self, state: &State, from: Timestamp, to: Timestamp) -> State {
        let by = to.ahead_of(from);
        match (self, state) {
            (_, State::Bucket(it)) => State::Bucket(BucketState { tat: it.tat.shifted(by), ..*it }),
            (_, State::FixedWindow(it)) => {
                State::FixedWindow(FixedWindowState { end: it.end.shifted(by), ..*it })
            }
            (_, State::SlidingParts(it)) => State::SlidingParts(it.clone().shifted(by)),
            (_, State::SlidingLog(it)) => {
                // Entries are in the order of their times, and stay distinct unless the clock starts later.
                let mut entries: Vec<(Timestamp, u32)> = Vec::with_capacity(it.entries.len());
                for &(at, count) in &it.entries {
                    let at = at.shifted(by);
                    match entries.last_mut() {
                        Some(last) if last.0 == at => last.1 = last.1.saturating_add(count),
                        _ => entries.push((at, count)),
                    }
                }
                State::SlidingLog(SlidingLogState { entries })
            }
            (_, State::Concurrency(it)) => {
                let moved = |lease: &Lease| Lease { expires: lease.expires.shifted(by), ..*lease };
                State::Concurrency(Leases { held: it.held.iter().map(moved).collect() })
            }
            (Self::SlidingWindow(window), State::SlidingWindow(it)) if is_near(window, by) => {
                State::SlidingWindow(nearby(window, *it, by))
            }
            (_, State::SlidingWindow(_)) => {
                let mut moved = self.fresh();
                self.adjust(&mut moved, self.echo(self.used(state, from)), to);
                moved
            }
        }
    }
}

/// Whether two clocks differ by a small part of a window.
fn is_near(window: &SlidingWindow, by: i64) -> bool {
    by.unsigned_abs() <= window.rate().period.as_micros() / MAX_SHIFT_PART
}

/// Returns the counts with the units that would leave early by the difference of the clocks.
fn nearby(window: &SlidingWindow, state: SlidingWindowState, by: i64) -> SlidingWindowState {
    let period = window.rate().period.as_micros().max(1);
    let early = (u64::from(state.previous.max(state.current)) * by.unsigned_abs()).div_ceil(period);
    let current = state.current.saturating_add(u32::try_from(early).unwrap_or(u32::MAX));
    SlidingWindowState { current, ..state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Bucket, Concurrency, FixedWindow, Owner, SlidingLog, SlidingParts, Window};
    use crate::amount::Amount;
    use crate::rate::Rate;
    use crate::time::Span;

    fn quotas() -> [Quota; 6] {
        let rate = Rate::new(10, Span::from_secs(60));
        [
            Bucket::new(rate).unwrap().into(),
            FixedWindow::new(10, Window::Anchored(Span::from_secs(60))).unwrap().into(),
            SlidingWindow::new(rate).unwrap().into(),
            SlidingParts::new(rate, 8).unwrap().into(),
            SlidingLog::new(rate).unwrap().into(),
            Concurrency::new(10, Span::from_secs(60)).unwrap().into(),
        ]
    }

    #[test]
    fn a_moved_state_admits_no_more_and_keeps_its_usage() {
        let start = Timestamp::from_secs(1_000_000);
        for quota in quotas() {
            for offset in [-3_600_000_000, -250_000, 0, 90, 250_000, 7_200_000_000_i64] {
                for used in [0_u32, 1, 7, 10] {
                    let mut here = quota.fresh();
                    for number in 0..used {
                        let amount = match quota {
                            Quota::Concurrency(_) => Amount::Slot(Owner(number.into())),
                            _ => Amount::Exactly(1),
                        };
                        quota.step(&mut here, amount, start + Span::from_millis(u64::from(number) * 500));
                    }
                    let now = start + Span::from_secs(6);
                    let there = quota.moved(&here, now, now.shifted(offset));
                    for later in [0, 1_000, 20_000, 50_000, 61_000] {
                        let at = now + Span::from_millis(later);
                        let left = |state: &State, at| {
                            quota.step(&mut state.clone(), Amount::Exactly(0), at).remaining
                        };
                        let (before, after) = (left(&here, at), left(&there, at.shifted(offset)));
                        assert!(after <= before, "{quota} {offset} {used} {later}: {before} became {after}");
                        let is_exact = !matches!(quota, Quota::SlidingWindow(_)) || later == 0;
                        assert!(
                            !is_exact || before - after <= 1,
                            "{quota} {offset} {used} {later}: {before} became {after}"
                        );
                    }
                }
            }
        }
    }
}
