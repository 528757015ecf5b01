//! Sliding window in parts: a few counts that place their own borders.
//!
//! A part is when its first unit came, when its last one did, and how many there
//! were. As long as no more instants are in view than there may be parts, each has
//! one of its own and this *is* the sliding log. After that the two neighbours are
//! merged that lie closest, by the gap between them times the units that would have
//! to be placed anew, so that borders end up where the traffic has its gaps. A grid
//! of equal parts, as wide as memory allows, errs wherever a burst straddles a line.
//!
//! ```text
//! border = t - W       a part that began after it counts in full, one that ended by it not at all;
//!                      of the one across it, the units stand evenly from the first to the last
//! allow iff  weight + cost <= limit
//! ```
//!
//! The newest time is kept to the microsecond, the others in steps: the smallest of 1, 2,
//! 5, 10, 20, 50… µs of which a window has at most 60,000. A unit is filed under the next
//! step, never before it came, and the units of a merged part stand on steps, too. So a
//! part takes eight bytes whatever the window, and no product exceeds 2^49: a script in
//! doubles is exact.
//!
//! What it may err by: every part but the oldest counts all that came. Of the one across
//! the border the last unit leaves on time (to a step), those before it may leave early or
//! late: what passes too many are inner units of what has become the oldest part. Writing
//! drops what has left; the rest of that part then begins at its next unit to leave.
//! Held by `tests/proof/parts.rs`, with how close it comes to the log.
//!
//! A *strict* window takes all units of a part to stand where its last one does, so that a
//! part counts in full as long as any of it may be in view. No unit leaves before its time,
//! and no schedule admits more than the limit in any window. What it errs by, it refuses: a
//! merged unit leaves as late as the last one of its part. Neighbours are merged where that
//! delays the fewest units for the shortest time. Held by `tests/proof/strict.rs`.
//!
//! Not here: what is done to the parts themselves (`state`).

mod state;

pub use state::SlidingPartsState;

use self::state::Spread;
use super::{Algorithm, Overdraft};
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// So many units in any stretch of one window, from a few parts.
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
    /// In microseconds.
    step: u64,
    spread: Spread,
}

/// Keeps counts, overdrawn ones too, within 32 bits.
const MAX_UNITS: u64 = 1 << 30;

/// Most steps in a window. With the rest of a step at either end they fit 16 bits.
const MAX_STEPS: u64 = 60_000;

/// What a key looks like at some instant.
#[derive(Clone, Copy)]
struct View {
    /// When the newest unit came.
    newest: u64,
    /// What is written now is written at this instant.
    instant: u64,
    /// Units so many steps before the newest, or more, have left.
    reach: u32,
}

impl SlidingParts {
    /// So many units in any stretch of the period, from 2 to 64 parts.
    ///
    /// One part would be a count and a guess: that is [`SlidingWindow`](crate::SlidingWindow).
    pub fn new(rate: Rate, parts: u32) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        if rate.count > MAX_UNITS {
            return Err(QuotaError::TooMany);
        }
        if !(2..=64).contains(&parts) {
            return Err(QuotaError::Parts);
        }
        let powers = std::iter::successors(Some(1), |power: &u64| power.checked_mul(10));
        let mut steps = powers.flat_map(|power| [power, power.saturating_mul(2), power.saturating_mul(5)]);
        let fits = |step: &u64| rate.period.as_micros().div_ceil(*step) <= MAX_STEPS;
        let step = steps.find(fits).unwrap_or(u64::MAX);
        Ok(Self { rate, parts, step, spread: Spread::Even })
    }

    /// The same window, which counts a part in full while any of it may be in view: it never
    /// admits more than the limit in any stretch of the period, and refuses some of what a
    /// log would admit.
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

    /// The same window with another rate: as many parts, and as strict.
    pub fn with_rate(self, rate: Rate) -> Result<Self, QuotaError> {
        Ok(Self { spread: self.spread, ..Self::new(rate, self.parts)? })
    }

    /// Whether a part counts in full while any of it may be in view.
    pub const fn is_strict(&self) -> bool {
        matches!(self.spread, Spread::Last)
    }

    /// The limit as it was written.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How many parts there may be.
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// In what times are kept.
    pub const fn resolution(&self) -> Span {
        Span::from_micros(self.step)
    }

    const fn width(&self) -> u64 {
        self.rate.period.as_micros()
    }

    /// How `state` looks at `now`. A clock that stepped back stands still at the newest
    /// unit, unless that is further ahead than two windows: then all is pulled back, by
    /// whole steps and not before `now`.
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
            // To the microsecond, not to the step.
            Some(border) if border >= newest => 0,
            Some(border) => last.saturating_sub(border / self.step),
            None => last.saturating_add((self.width() - instant).div_ceil(self.step)),
        };
        View { newest, instant, reach: u32::try_from(reach).unwrap_or(u32::MAX) }
    }

    /// The same, and what was too far ahead is pulled back for good.
    fn settle(&self, state: &mut SlidingPartsState, now: Timestamp) -> View {
        let view = self.view(state, now);
        state.move_to(Timestamp::from_micros(view.newest));
        view
    }

    /// When a unit leaves that stands so many steps before the newest.
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

    /// After the newest units were given back: what is the newest now has a step, not a time.
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

    fn refund(&self, state: &mut SlidingPartsState, units: u64, taken_at: Timestamp, now: Timestamp) {
        let view = self.settle(state, now);
        state.forget(view.reach, self.spread);
        // What has left the window is not given back: whoever came since is somebody else.
        let taken_at = taken_at.as_micros().div_ceil(self.step);
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
