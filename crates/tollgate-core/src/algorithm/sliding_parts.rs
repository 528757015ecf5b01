//! Sliding window in parts: a few counts that place their own borders.
//!
//! A part has the time of its first unit, the time of its last unit, and a count. As long as the
//! window has no more distinct instants than parts, each instant has its own part and the result
//! equals the sliding log. After that, the two closest neighbors are merged, where distance is the
//! gap between them times the number of units that would have to be placed anew. Borders therefore
//! settle in the gaps of the traffic. A grid of equal parts of the same memory is wrong whenever a
//! burst straddles a line.
//!
//! ```text
//! border = t - W       a part that began after the border counts in full, a part that ended by it
//!                      does not count; in a part across it, the units are spread evenly
//! allow iff  weight + cost <= limit
//! ```
//!
//! The newest time is kept to the microsecond, the others in steps: the smallest of 1, 2, 5, 10,
//! 20, 50… µs of which a window has at most 60,000. A unit is recorded at the next step, never
//! before it came, and the units of a merged part lie on steps, too. So a part takes eight bytes
//! for every window length, and no product exceeds 2^49: a script in doubles is exact.
//!
//! Error bound: every part but the oldest counts all of its units. In the part across the border,
//! the last unit leaves on time (to a step), and those before it may leave early or late. Excess
//! admissions are therefore bounded by the inner units of the part that has become the oldest. A
//! write drops the units that have left; the rest of that part then begins at its next unit to
//! leave. Tested by `tests/proof/parts.rs`, which also measures the distance to the log.
//!
//! A *strict* window places all units of a part at its last unit, so that a part counts in full as
//! long as any of its units may be in the window. No unit leaves early, and no schedule admits more
//! than the limit in any window. The error is on the side of refusals: a merged unit leaves as late
//! as the last unit of its part. Neighbors are merged where that delays the fewest units for the
//! shortest time. Tested by `tests/proof/strict.rs`.
//!
//! Operations on the parts themselves are in `state`.

mod state;

pub use state::SlidingPartsState;

use self::state::Spread;
use super::{Algorithm, Overdraft};
use crate::amount::ChargeTimes;
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// A sliding window in parts: a number of units in any stretch of one window, from a few counts.
///
/// ```
/// # use tollgate_core::{Algorithm, QuotaError, Rate, SlidingParts, Span, Timestamp};
/// let limit = SlidingParts::new(Rate::new(3, Span::from_secs(10)), 7)?;
/// let mut state = limit.fresh();
/// for second in [1, 4, 6] {
///     limit.step(&mut state, 1, Timestamp::from_secs(second));
/// }
/// // Three instants in seven parts: as exact as the log.
/// let refused = limit.step(&mut state, 2, Timestamp::from_secs(8));
/// assert_eq!(refused.retry_after(), Some(Span::from_secs(6)));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingParts {
    rate: Rate,
    parts: u32,
    /// The length of a step in microseconds.
    step: u64,
    spread: Spread,
}

/// The largest limit. Keeps counts, including overdrawn ones, within 32 bits.
const MAX_UNITS: u64 = 1 << 30;

/// The largest number of steps in a window. With the rest of a step at either end, it fits 16 bits.
const MAX_STEPS: u64 = 60_000;

/// A state as seen at one instant.
#[derive(Clone, Copy)]
struct View {
    /// The time of the newest unit.
    newest: u64,
    /// The time of writes.
    instant: u64,
    /// Units that lie at least this many steps before the newest have left.
    reach: u32,
}

impl SlidingParts {
    /// Creates a limit on the units in any stretch of the period, with 2 to 64 parts.
    ///
    /// For one part, use [`SlidingWindow`](crate::SlidingWindow), the two-counter estimate.
    pub fn new(rate: Rate, parts: u32) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        if rate.count > MAX_UNITS {
            return Err(QuotaError::TooMany);
        }
        if !(2..=64).contains(&parts) {
            return Err(QuotaError::Parts);
        }
        let powers = core::iter::successors(Some(1), |power: &u64| power.checked_mul(10));
        let mut steps = powers.flat_map(|power| [power, power.saturating_mul(2), power.saturating_mul(5)]);
        let fits = |step: &u64| rate.period.as_micros().div_ceil(*step) <= MAX_STEPS;
        let step = steps.find(fits).unwrap_or(u64::MAX);
        Ok(Self { rate, parts, step, spread: Spread::Even })
    }

    /// Returns the same window with strict counting: a part counts in full while any of its units
    /// may be in the window. It never admits more than the limit in any stretch of the period, and
    /// it refuses some requests that a log would admit.
    ///
    /// ```
    /// # use tollgate_core::{Algorithm, QuotaError, Rate, SlidingParts, Span, Timestamp};
    /// let limit = SlidingParts::new(Rate::new(3, Span::from_secs(10)), 2)?.strict();
    /// let mut state = limit.fresh();
    /// for second in [1, 2, 6] {
    ///     limit.step(&mut state, 1, Timestamp::from_secs(second));
    /// }
    /// // Three instants in two parts: the first unit counts as long as the second.
    /// assert!(!limit.step(&mut state, 1, Timestamp::from_secs(11)).is_admitted());
    /// assert_eq!(limit.step(&mut state, 2, Timestamp::from_secs(12)).units(), 2);
    /// # Ok::<(), QuotaError>(())
    /// ```
    #[must_use]
    pub const fn strict(self) -> Self {
        Self { spread: Spread::Last, ..self }
    }

    /// Returns the same window with another rate, with the same number of parts and strictness.
    pub fn with_rate(self, rate: Rate) -> Result<Self, QuotaError> {
        Ok(Self { spread: self.spread, ..Self::new(rate, self.parts)? })
    }

    /// Returns whether a part counts in full while any of its units may be in the window.
    pub const fn is_strict(&self) -> bool {
        matches!(self.spread, Spread::Last)
    }

    /// Returns the limit as configured.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the largest number of parts.
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// Returns the resolution of the stored times.
    pub const fn resolution(&self) -> Span {
        Span::from_micros(self.step)
    }

    const fn width(&self) -> u64 {
        self.rate.period.as_micros()
    }

    /// Returns `state` as seen at `now`. After the clock stepped back, time stands still at the
    /// newest unit. If that is further ahead than two windows, the state is moved back by whole
    /// steps, and not before `now`.
    fn view(&self, state: &SlidingPartsState, now: Timestamp) -> View {
        let now = now.as_micros();
        if state.is_empty() {
            return View { newest: 0, instant: now, reach: 0 };
        }
        let mut newest = state.newest().as_micros();
        let ahead = newest.saturating_sub(now);
        if ahead > 2 * self.width() {
            newest -= ahead / self.step * self.step;
        }
        let (instant, last) = (now.max(newest), newest.div_ceil(self.step));
        let reach = match instant.checked_sub(self.width()) {
            // Compared to the microsecond, not to the step.
            Some(border) if border >= newest => 0,
            Some(border) => last.saturating_sub(border / self.step),
            None => last.saturating_add((self.width() - instant).div_ceil(self.step)),
        };
        View { newest, instant, reach: u32::try_from(reach).unwrap_or(u32::MAX) }
    }

    /// Returns the view as `view` does, and stores a state that had to be moved back.
    fn settle(&self, state: &mut SlidingPartsState, now: Timestamp) -> View {
        let view = self.view(state, now);
        state.move_to(Timestamp::from_micros(view.newest));
        view
    }

    /// Returns the time at which a unit leaves that lies `back` steps before the newest.
    fn leaves(&self, newest: u64, back: u16) -> Timestamp {
        let back = u64::from(back);
        Timestamp::from_micros(match newest.div_ceil(self.step).checked_sub(back) {
            _ if back == 0 => newest.saturating_add(self.width()),
            Some(step) => step.saturating_mul(self.step).saturating_add(self.width()),
            None => {
                let before_1970 = (back - newest.div_ceil(self.step)).saturating_mul(self.step);
                self.width().saturating_sub(before_1970)
            }
        })
    }

    /// Moves the newest time back after the newest units were refunded. The new newest unit has a
    /// step, not an exact time.
    fn move_back(&self, state: &mut SlidingPartsState, steps: u16) {
        if steps > 0 {
            let step = state.newest().as_micros().div_ceil(self.step).saturating_sub(steps.into());
            state.move_to(Timestamp::from_micros(step.saturating_mul(self.step)));
        }
    }

    fn append(&self, state: &mut SlidingPartsState, units: u64, view: View) {
        state.forget(view.reach, self.spread);
        if let Some(units) = u32::try_from(units).ok().filter(|&units| units > 0) {
            let later = view.instant.div_ceil(self.step) - view.newest.div_ceil(self.step);
            state.append(units, later, self.parts as usize, self.spread);
            state.move_to(Timestamp::from_micros(view.instant));
        }
    }
}

impl Algorithm for SlidingParts {
    type State = SlidingPartsState;

    fn fresh(&self) -> SlidingPartsState {
        SlidingPartsState::default()
    }

    fn capacity(&self) -> u64 {
        self.rate.count
    }

    fn spend(&self, state: &mut SlidingPartsState, cost: u64, now: Timestamp) -> Verdict {
        let view = self.settle(state, now);
        if cost > self.rate.count {
            return Verdict::Never;
        }
        if cost == 0 {
            return Verdict::admitted(0);
        }
        let excess = (state.weight(view.reach, self.spread) + cost).saturating_sub(self.rate.count);
        if excess > 0 {
            let free = self.leaves(view.newest, state.place(excess, view.reach, self.spread));
            return Verdict::Refused { retry_after: free.since(now) };
        }
        self.append(state, cost, view);
        Verdict::admitted(cost)
    }

    fn describe(&self, state: &SlidingPartsState, verdict: Verdict, now: Timestamp) -> Outcome {
        let view = self.view(state, now);
        let weight = state.weight(view.reach, self.spread);
        Outcome {
            verdict,
            limit: self.rate.count,
            remaining: self.rate.count.saturating_sub(weight),
            reset_after: match weight {
                0 => Span::ZERO,
                _ => self.leaves(view.newest, 0).since(now),
            },
        }
    }

    fn refund(&self, state: &mut SlidingPartsState, units: u64, charge: ChargeTimes, now: Timestamp) {
        let view = self.settle(state, now);
        state.forget(view.reach, self.spread);
        // Units that have left the window are not refunded: later units belong to other requests.
        let taken_at = charge.at.as_micros().div_ceil(self.step);
        let age = view.newest.div_ceil(self.step).checked_sub(taken_at);
        if let Some(age) = age.filter(|&age| age < u64::from(view.reach)) {
            let steps = state.give_back(units, u16::try_from(age).unwrap_or(u16::MAX));
            self.move_back(state, steps);
        }
    }

    fn grant(&self, state: &mut SlidingPartsState, units: u64, now: Timestamp) {
        let view = self.settle(state, now);
        state.forget(view.reach, self.spread);
        let steps = state.forgive(units);
        self.move_back(state, steps);
    }

    fn charge(&self, state: &mut SlidingPartsState, units: u64, overdraft: Overdraft, now: Timestamp) {
        let view = self.settle(state, now);
        let most = match overdraft {
            Overdraft::None => self.rate.count,
            Overdraft::OneCapacity => 2 * self.rate.count,
            Overdraft::Unlimited => 2 * MAX_UNITS,
        };
        let room = most.saturating_sub(state.weight(view.reach, self.spread));
        self.append(state, units.min(room), view);
    }

    fn used(&self, state: &SlidingPartsState, now: Timestamp) -> u64 {
        state.weight(self.view(state, now).reach, self.spread)
    }

    fn spent_until(&self, units: u64, until: Timestamp, _now: Timestamp) -> SlidingPartsState {
        let count = u32::try_from(units.min(2 * self.rate.count)).unwrap_or(u32::MAX);
        let newest = until.before(self.rate.period);
        let part = (count > 0).then_some((0, 0, count));
        SlidingPartsState::new(newest, part).unwrap_or_default()
    }

    fn expires_at(&self, state: &SlidingPartsState) -> Timestamp {
        if state.is_empty() { Timestamp::EPOCH } else { self.leaves(state.newest().as_micros(), 0) }
    }
}
