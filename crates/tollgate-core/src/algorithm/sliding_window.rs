//! Sliding-window counter: two counts, the older weighted by the part of its window that is still
//! in view.
//!
//! This is the classic two-counter estimate: the count of the previous window fades out linearly
//! while the current one fills. It assumes that the previous traffic was evenly spread, and errs
//! where it was not. [`SlidingParts`](super::SlidingParts) has a smaller error.
//!
//! ```text
//! j = floor(t / W)      number of the window       e = t - j·W    offset into it
//! allow iff  previous·(W - e) + (current + cost)·W  <=  limit·W
//! ```
//!
//! "Wait until the window ends" is wrong in both directions here; the exact wait solves the line
//! above for `e`, in this window or in the next.

use super::{Algorithm, Overdraft, lease_available};
use crate::amount::ChargeTimes;
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// A sliding window: an estimate of the units in any stretch of one window.
///
/// ```
/// # use tollgate_core::{Algorithm, QuotaError, Rate, SlidingWindow, Span, Timestamp};
/// let limit = SlidingWindow::new(Rate::per_minute(100))?;
/// let mut state = limit.fresh();
/// limit.step(&mut state, 100, Timestamp::from_secs(30));
/// let refused = limit.step(&mut state, 1, Timestamp::from_secs(30));
/// // At the end of the window all 100 still count; the wait ends when one of them has faded.
/// assert_eq!(refused.retry_after(), Some(Span::from_millis(30_600)));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
}

/// The counts of the current and the previous window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// The number of the current window, counted from 1970.
    pub newest: u64,
    /// The units spent in the current window.
    pub current: u32,
    /// The units spent in the previous window.
    pub previous: u32,
}

/// The number of a window and the offset into it, in ticks.
#[derive(Clone, Copy)]
struct Position {
    window: u64,
    elapsed: u64,
}

impl Position {
    /// Returns this position, or the start of the window `newest` if that is later.
    const fn not_before(self, newest: u64) -> Self {
        if self.window < newest { Self { window: newest, elapsed: 0 } } else { self }
    }
}

/// The largest limit. Keeps counts, including overdrawn ones, within 32 bits.
const MAX_UNITS: u64 = 1 << 30;

impl SlidingWindowState {
    /// Returns the counts as of the window `at`, which is not earlier.
    const fn at(self, at: u64) -> Self {
        let (current, previous) = match at.saturating_sub(self.newest) {
            0 => (self.current, self.previous),
            1 => (0, self.current),
            _ => (0, 0),
        };
        Self { newest: at, current, previous }
    }

    const fn is_empty(self) -> bool {
        self.current == 0 && self.previous == 0
    }
}

impl SlidingWindow {
    /// Creates a two-counter estimate.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        if rate.count > MAX_UNITS {
            return Err(QuotaError::TooMany);
        }
        Ok(Self { rate })
    }

    /// Returns the limit as configured.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    const fn width(&self) -> u64 {
        self.rate.period.as_micros()
    }

    const fn position(&self, now: Timestamp) -> Position {
        let now = now.as_micros();
        Position { window: now / self.width(), elapsed: now % self.width() }
    }

    /// Returns the position of `now` for a key with this state. After the clock stepped back, the
    /// newest window continues. A window further ahead than two windows is moved back with its
    /// counts. An empty state has no position yet.
    fn locate(&self, state: &mut SlidingWindowState, now: Timestamp) -> Position {
        let here = self.position(now);
        if state.newest <= here.window || state.is_empty() {
            return here;
        }
        if state.newest - here.window > 3 {
            // The previous count has faded by the wrong clock. Its weight by the present clock is
            // not known, so it counts in full.
            let current = state.current.saturating_add(state.previous);
            *state = SlidingWindowState { newest: here.window, current, previous: 0 };
        }
        here.not_before(state.newest)
    }

    /// Returns the weighted count at `here`, times the width.
    fn weight(&self, state: SlidingWindowState, here: Position) -> u128 {
        let counts = state.at(here.window);
        u128::from(counts.current) * u128::from(self.width())
            + u128::from(counts.previous) * u128::from(self.width() - here.elapsed)
    }

    /// Returns when the weight falls to `room` if no request spends meanwhile: while the previous
    /// count fades, or else while the current one does, a window later.
    fn weighs_at_most(&self, state: SlidingWindowState, room: u64, here: Position) -> Timestamp {
        let counts = state.at(here.window);
        let (current, previous) = (u64::from(counts.current), u64::from(counts.previous));
        let (window, elapsed) = match room.checked_sub(current) {
            Some(room) => (u128::from(here.window), self.faded(previous, room).max(here.elapsed.into())),
            None => (u128::from(here.window) + 1, self.faded(current, room)),
        };
        let at = window * u128::from(self.width()) + elapsed;
        Timestamp::from_micros(u64::try_from(at).unwrap_or(u64::MAX))
    }

    /// Returns the offset into a window at which the count of the previous one weighs at most
    /// `room`.
    fn faded(&self, count: u64, room: u64) -> u128 {
        let excess = u128::from(count.saturating_sub(room));
        (u128::from(self.width()) * excess).div_ceil(u128::from(count.max(1)))
    }

    /// Returns the whole units that are left below `most` when `weight` is used.
    fn room(&self, most: u64, weight: u128) -> u64 {
        let width = u128::from(self.width());
        low((u128::from(most) * width).saturating_sub(weight) / width)
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn fresh(&self) -> SlidingWindowState {
        SlidingWindowState::default()
    }

    fn capacity(&self) -> u64 {
        self.rate.count
    }

    fn spend(&self, state: &mut SlidingWindowState, cost: u64, now: Timestamp) -> Verdict {
        let here = self.locate(state, now);
        if cost > self.rate.count {
            return Verdict::Never;
        }
        if cost == 0 {
            return Verdict::admitted(0);
        }
        let width = u128::from(self.width());
        if self.weight(*state, here) + u128::from(cost) * width > u128::from(self.rate.count) * width {
            let free = self.weighs_at_most(*state, self.rate.count - cost, here);
            return Verdict::Refused { retry_after: free.since(now) };
        }
        *state = state.at(here.window);
        state.current = state.current.saturating_add(u32::try_from(cost).unwrap_or(0));
        Verdict::admitted(cost)
    }

    fn describe(&self, state: &SlidingWindowState, verdict: Verdict, now: Timestamp) -> Outcome {
        let here = self.position(now).not_before(state.newest);
        let weight = self.weight(*state, here);
        Outcome {
            verdict,
            limit: self.rate.count,
            remaining: self.room(self.rate.count, weight),
            reset_after: match weight {
                0 => Span::ZERO,
                _ => self.weighs_at_most(*state, 0, here).since(now),
            },
        }
    }

    fn refund(&self, state: &mut SlidingWindowState, units: u64, charge: ChargeTimes, now: Timestamp) {
        let here = self.locate(state, now);
        *state = state.at(here.window);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        match state.newest.saturating_sub(self.position(charge.at).window) {
            0 => state.current = state.current.saturating_sub(units),
            1 => state.previous = state.previous.saturating_sub(units),
            _ => {}
        }
    }

    fn lease(&self, state: &mut SlidingWindowState, units: u64, _ttl: Span, now: Timestamp) -> Verdict {
        lease_available(self, state, units, now)
    }

    fn return_lease(
        &self,
        state: &mut SlidingWindowState,
        units: u64,
        taken_at: Timestamp,
        _ttl: Span,
        now: Timestamp,
    ) {
        self.refund(state, units, ChargeTimes::without_end(taken_at), now);
    }

    fn grant(&self, state: &mut SlidingWindowState, units: u64, now: Timestamp) {
        let here = self.locate(state, now);
        *state = state.at(here.window);
        // Newest first: the newest units weigh in full, so that all granted units may be spent.
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let rest = units.saturating_sub(state.current);
        state.current = state.current.saturating_sub(units);
        state.previous = state.previous.saturating_sub(rest);
    }

    fn charge(&self, state: &mut SlidingWindowState, units: u64, overdraft: Overdraft, now: Timestamp) {
        let here = self.locate(state, now);
        *state = state.at(here.window);
        let most = match overdraft {
            Overdraft::None => self.rate.count,
            Overdraft::OneCapacity => 2 * self.rate.count,
            Overdraft::Unlimited => 2 * MAX_UNITS,
        };
        let room = self.room(most, self.weight(*state, here));
        state.current = state.current.saturating_add(u32::try_from(units.min(room)).unwrap_or(0));
    }

    fn used(&self, state: &SlidingWindowState, now: Timestamp) -> u64 {
        let mut state = *state;
        let here = self.locate(&mut state, now);
        low(self.weight(state, here).div_ceil(u128::from(self.width())))
    }

    /// Charged at `now` instead of by its end: the previous count fades, so the units that are
    /// still spent do not determine how many there were.
    fn spent_until(&self, units: u64, _until: Timestamp, now: Timestamp) -> SlidingWindowState {
        let mut state = self.fresh();
        if units > 0 {
            self.charge(&mut state, units, Overdraft::OneCapacity, now);
        }
        state
    }

    fn expires_at(&self, state: &SlidingWindowState) -> Timestamp {
        let windows = match (state.current, state.previous) {
            (0, 0) => return Timestamp::EPOCH,
            (0, _) => 1,
            _ => 2,
        };
        Timestamp::from_micros(state.newest.saturating_add(windows).saturating_mul(self.width()))
    }
}

/// Narrows a number that is known to fit: weights are bounded by counts of 32 bits.
#[allow(clippy::cast_possible_truncation)]
const fn low(value: u128) -> u64 {
    value as u64
}
