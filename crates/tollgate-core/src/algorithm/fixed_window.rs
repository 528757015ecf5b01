//! Fixed window: a number of units per window.
//!
//! The state is the end of the window and the units spent in it. Storing the end, rather than
//! deriving it from the time of each request, makes all answers of one window agree about its
//! reset. Epoch, calendar and first-request windows differ only in `Window::closes`.
//!
//! Up to twice the limit can pass in a stretch of one window length, around a boundary. This is
//! inherent in the algorithm; `sliding_window` avoids it.
//!
//! A *tally* is a fixed window that continues to count beyond its limit: refused requests count in
//! full if the caller charges refusals (`count_denied`). Its states do not depend on the limit, so
//! rules that differ only in the limit share them ([`Quota::identity`](crate::Quota::identity)).

use super::{Algorithm, Overdraft, Window, lease_available};
use crate::amount::ChargeTimes;
use crate::outcome::{Outcome, Verdict};
use crate::rate::{MAX_PERIOD, MAX_UNITS, QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// A fixed window: a number of units in each window.
///
/// ```
/// # use tollgate_core::{Algorithm, FixedWindow, QuotaError, Rate, Timestamp};
/// let limit = FixedWindow::epoch(Rate::per_minute(2))?;
/// let (mut state, now) = (limit.fresh(), Timestamp::from_secs(59));
/// assert!(limit.step(&mut state, 2, now).is_admitted());
/// assert!(!limit.step(&mut state, 1, now).is_admitted());
/// assert!(limit.step(&mut state, 2, Timestamp::from_secs(60)).is_admitted());
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: Window,
    /// Whether it counts beyond the limit.
    tally: bool,
}

/// The largest count of a tally: above every limit, and exact in a double.
const MAX_TALLY_UNITS: u64 = 2 * MAX_UNITS;

/// The smallest limit whose states are kept separately: a store may keep smaller limits in less
/// memory.
const LARGE_LIMIT: u64 = 1 << 29;

/// The end of the window and the units spent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    /// The first instant that is no longer in the window.
    pub end: Timestamp,
    /// Units spent.
    pub count: u64,
}

impl FixedWindow {
    /// Creates a limit of `limit` units per window.
    pub fn new(limit: u64, window: Window) -> Result<Self, QuotaError> {
        if limit == 0 {
            return Err(QuotaError::ZeroRate);
        }
        Ok(Self { tally: false, ..Self::tally(limit, window)? })
    }

    /// Creates a counter of all requested units per window, refusals included. A request that
    /// brings the count above the limit is refused, and so is every request after it, including
    /// reads. The caller charges refusals (`count_denied`).
    ///
    /// A limit of zero refuses every request with a cost.
    ///
    /// ```
    /// # use tollgate_core::{Algorithm, FixedWindow, Overdraft, QuotaError, Span, Timestamp, Window};
    /// let limit = FixedWindow::tally(10, Window::Epoch(Span::from_minutes(1)))?;
    /// let (mut state, now) = (limit.fresh(), Timestamp::from_secs(59));
    /// assert!(limit.step(&mut state, 8, now).is_admitted());
    /// assert!(!limit.step(&mut state, 5, now).is_admitted());
    /// limit.charge(&mut state, 5, Overdraft::None, now);                // the refusal counts
    /// assert_eq!(limit.used(&state, now), 13);
    /// assert!(!limit.step(&mut state, 0, now).is_admitted());
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn tally(limit: u64, window: Window) -> Result<Self, QuotaError> {
        match window.longest() {
            _ if limit > MAX_UNITS => Err(QuotaError::TooMany),
            Span::ZERO => Err(QuotaError::ZeroPeriod),
            length if length > MAX_PERIOD => Err(QuotaError::TooLong),
            _ => Ok(Self { limit, window, tally: true }),
        }
    }

    /// Creates windows at multiples of the period since 1970.
    pub fn epoch(rate: Rate) -> Result<Self, QuotaError> {
        Self::new(rate.count, Window::Epoch(rate.period))
    }

    /// Creates windows that open with the first request of a key.
    pub fn anchored(rate: Rate) -> Result<Self, QuotaError> {
        Self::new(rate.count, Window::Anchored(rate.period))
    }

    /// Returns whether it counts beyond its limit.
    pub const fn is_tally(&self) -> bool {
        self.tally
    }

    /// Returns whether its states are kept separately from those of smaller limits.
    pub const fn is_large(&self) -> bool {
        self.limit >= LARGE_LIMIT && !self.tally
    }

    /// Returns the state of a key that had `state` under `before`: the same count. A window from
    /// the first request keeps its start if it is then still open. Any other window closes no later
    /// than before, unless the new windows are longer.
    pub(crate) fn carry_over(
        &self,
        before: &Self,
        state: FixedWindowState,
        now: Timestamp,
    ) -> FixedWindowState {
        let used = before.as_stored(state, now);
        let kept = before.window.opened(used.end) + self.window.longest();
        let end = match (&self.window, &before.window) {
            (Window::Anchored(_), Window::Anchored(_)) if kept > now => kept,
            _ if self.window.longest() <= before.window.longest() => {
                // Only windows from the first request end within a second.
                Timestamp::from_secs(used.end.as_secs_ceil()).min(self.window.closes(now))
            }
            _ => self.window.closes(now),
        };
        if used.count == 0 { self.fresh() } else { FixedWindowState { end, ..used } }
    }

    /// Converts a state that was carried over at `now` of a clock that never steps to the clock
    /// that the windows are aligned to, where it is `time`. The window closes when that clock
    /// says so.
    #[must_use]
    pub fn realigned(&self, state: FixedWindowState, now: Timestamp, time: Timestamp) -> FixedWindowState {
        if matches!(self.window, Window::Anchored(_)) || state.count == 0 || now == time {
            return state;
        }
        let closes = self.window.closes(time);
        let end = if state.end >= self.window.closes(now) {
            closes
        } else {
            state.end.shifted(time.ahead_of(now)).min(closes)
        };
        FixedWindowState { end, ..state }
    }

    /// Returns the largest count that a charge may leave.
    pub const fn max_count(&self, overdraft: Overdraft) -> u64 {
        match overdraft {
            _ if self.tally => MAX_TALLY_UNITS,
            Overdraft::None => self.limit,
            Overdraft::OneCapacity => 2 * self.limit,
            Overdraft::Unlimited => MAX_TALLY_UNITS,
        }
    }

    /// Returns the boundaries of the windows.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the window that `now` counts in: the stored window until it closes, also after the
    /// clock stepped back. A window that closes further ahead than two lengths is moved back to
    /// `now`, with its count.
    fn current(&self, state: &mut FixedWindowState, now: Timestamp) -> FixedWindowState {
        let length = self.window.longest();
        if state.count > 0 && state.end.since(now) > length + length {
            state.end = self.window.closes(now);
        }
        self.as_stored(*state, now)
    }

    /// Returns the state to store. A window without spent units is not open, so its end has no
    /// meaning.
    fn as_stored(&self, state: FixedWindowState, now: Timestamp) -> FixedWindowState {
        if state.count > 0 && now < state.end {
            state
        } else {
            FixedWindowState { end: self.window.closes(now), count: 0 }
        }
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    fn fresh(&self) -> FixedWindowState {
        FixedWindowState::default()
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn spend(&self, state: &mut FixedWindowState, cost: u64, now: Timestamp) -> Verdict {
        let current = self.current(state, now);
        if cost > self.limit {
            Verdict::Never
        } else if cost == 0 && !(self.tally && current.count > self.limit) {
            Verdict::admitted(0)
        } else if current.count.saturating_add(cost) <= self.limit {
            *state = FixedWindowState { count: current.count + cost, ..current };
            Verdict::admitted(cost)
        } else {
            Verdict::Refused { retry_after: current.end.since(now) }
        }
    }

    fn describe(&self, state: &FixedWindowState, verdict: Verdict, now: Timestamp) -> Outcome {
        let current = self.as_stored(*state, now);
        let idle = current.count == 0 && matches!(self.window, Window::Anchored(_));
        Outcome {
            verdict,
            limit: self.limit,
            remaining: self.limit.saturating_sub(current.count),
            reset_after: if idle { Span::ZERO } else { current.end.since(now) },
        }
    }

    fn refund(&self, state: &mut FixedWindowState, units: u64, charge: ChargeTimes, now: Timestamp) {
        let current = self.current(state, now);
        // Units spent in a closed window came back when it closed.
        if charge.at >= self.window.opened(current.end) {
            self.grant(state, units, now);
        }
    }

    fn lease(&self, state: &mut FixedWindowState, units: u64, _ttl: Span, now: Timestamp) -> Verdict {
        if self.tally {
            let _read = self.spend(state, 0, now);
            return Verdict::admitted(0);
        }
        lease_available(self, state, units, now)
    }

    fn return_lease(
        &self,
        state: &mut FixedWindowState,
        units: u64,
        taken_at: Timestamp,
        _ttl: Span,
        now: Timestamp,
    ) {
        let units = if self.tally { 0 } else { units };
        self.refund(state, units, ChargeTimes::without_end(taken_at), now);
    }

    fn grant(&self, state: &mut FixedWindowState, units: u64, now: Timestamp) {
        let current = self.current(state, now);
        if current.count > 0 {
            *state = match current.count.saturating_sub(units) {
                0 => self.fresh(),
                count => FixedWindowState { count, ..current },
            };
        }
    }

    fn charge(&self, state: &mut FixedWindowState, units: u64, overdraft: Overdraft, now: Timestamp) {
        let current = self.current(state, now);
        let most = self.max_count(overdraft).max(current.count);
        let count = current.count.saturating_add(units).min(most);
        if count > 0 {
            *state = FixedWindowState { count, ..current };
        }
    }

    fn used(&self, state: &FixedWindowState, now: Timestamp) -> u64 {
        self.as_stored(*state, now).count
    }

    /// A window that opens with the first request is returned fully spent: a partly spent one would
    /// close before the window that this request opens for its key.
    fn spent_until(&self, units: u64, until: Timestamp, _now: Timestamp) -> FixedWindowState {
        match self.window {
            _ if units == 0 => self.fresh(),
            Window::Anchored(_) => FixedWindowState { end: until, count: units.max(self.limit) },
            Window::Epoch(_) | Window::Calendar(_) => FixedWindowState { end: until, count: units },
        }
    }

    fn expires_at(&self, state: &FixedWindowState) -> Timestamp {
        if state.count > 0 { state.end } else { Timestamp::EPOCH }
    }
}
