//! Sliding-window counter: a count per sub-window, the oldest weighted by how
//! much of it is still in view.
//!
//! With one sub-window this is the classic two-counter estimate: the previous
//! window's count fades out linearly while the current one fills. It assumes
//! that the previous traffic was evenly spread, and where it was not, it errs.
//! `k` sub-windows shrink what is assumed from a whole window to a `k`-th.
//!
//! ```text
//! j = floor(t·k / W)      which sub-window       e = t·k - j·W    how far into it
//! allow iff  oldest·(W - e) + (rest + cost)·W  <=  limit·W
//! ```
//!
//! Positions are kept in `1/k` of a tick, so `k` need not divide the window.
//! "Wait until the window ends" is wrong in both directions here; the exact
//! wait solves the line above for `e`, one sub-window at a time.

use super::{Algorithm, Overdraft};
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// So many units in any stretch of one window, estimated.
///
/// ```
/// # use tollgate_core::{Algorithm, QuotaError, Rate, SlidingWindow, Span, Timestamp};
/// let limit = SlidingWindow::new(Rate::per_minute(100))?;
/// let mut state = limit.fresh();
/// limit.step(&mut state, 100, Timestamp::from_secs(30));
/// let refused = limit.step(&mut state, 1, Timestamp::from_secs(30));
/// // Not at the window's end, when all 100 still weigh, but once one of them has faded.
/// assert_eq!(refused.retry_after(), Some(Span::from_millis(30_600)));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
    parts: u32,
}

/// Counts per sub-window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// The number of the newest sub-window, counted from 1970.
    pub newest: u64,
    /// What was spent in it, in the one before, and so on: one more than there are sub-windows.
    pub counts: Box<[u32]>,
}

/// A sub-window's number and how far into it, in `1/parts` of a tick.
#[derive(Clone, Copy)]
struct Position {
    part: u64,
    elapsed: u64,
}

impl Position {
    /// Here, or the start of the sub-window `newest` if that is later.
    const fn not_before(self, newest: u64) -> Self {
        if self.part < newest { Self { part: newest, elapsed: 0 } } else { self }
    }
}

/// Times later than this (the year 6535) count as this: `t·k` then fits.
const LAST: u64 = 1 << 57;

/// Keeps counts, overdrawn ones too, within 32 bits.
const MOST: u64 = 1 << 30;

impl SlidingWindow {
    /// The two-counter estimate.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        if rate.count > MOST {
            return Err(QuotaError::TooMany);
        }
        Ok(Self { rate, parts: 1 })
    }

    /// The same limit estimated from `parts` sub-windows.
    pub fn with_parts(self, parts: u32) -> Result<Self, QuotaError> {
        if !(1..=64).contains(&parts) {
            return Err(QuotaError::SubWindows);
        }
        Ok(Self { parts, ..self })
    }

    /// The limit as it was written.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How many sub-windows the estimate is made of.
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// The window's length, which is also a sub-window's length in `1/parts` of a tick.
    const fn width(&self) -> u64 {
        self.rate.period.as_micros()
    }

    fn position(&self, now: Timestamp) -> Position {
        let fine = u128::from(now.as_micros().min(LAST)) * u128::from(self.parts);
        let width = u128::from(self.width());
        let (part, elapsed) = match u64::try_from(fine) {
            Ok(fine) => (fine / self.width(), fine % self.width()),
            Err(_) => (low(fine / width), low(fine % width)),
        };
        Position { part, elapsed }
    }

    /// Where `now` falls for a key with this state. A clock that stepped back
    /// counts in the newest sub-window there is; one that is further ahead than
    /// two windows is pulled back with all that was spent. A state that holds
    /// nothing is nowhere yet.
    fn locate(&self, state: &mut SlidingWindowState, now: Timestamp) -> Position {
        let here = self.position(now);
        if state.newest <= here.part {
            return here;
        }
        if state.counts.iter().all(|&count| count == 0) {
            return here;
        }
        if state.newest - here.part > 2 * u64::from(self.parts) + 1 {
            // The oldest has faded by the clock that was wrong. How far by this
            // one is not known, so it counts in full.
            if let [.., before, oldest] = &mut *state.counts {
                *before = before.saturating_add(std::mem::take(oldest));
            }
            state.newest = here.part;
        }
        here.not_before(state.newest)
    }

    /// Moves the counts so that the newest is the one at `here`.
    fn advance(state: &mut SlidingWindowState, here: Position) {
        let shift = Counts::at(state, here).shift;
        let kept = state.counts.len() - shift;
        state.counts.copy_within(..kept, shift);
        state.counts[..shift].fill(0);
        state.newest = here.part;
    }

    /// What weighs at `here`, times the width.
    fn weight(&self, counts: Counts<'_>, here: Position) -> u128 {
        let (oldest, width) = (counts.oldest(), u128::from(self.width()));
        u128::from(counts.total() - u64::from(oldest)) * width
            + u128::from(oldest) * u128::from(self.width() - here.elapsed)
    }

    /// When `room` units and no more weigh, in `1/parts` of a tick from the
    /// epoch, if nobody spends meanwhile. Looks ahead one sub-window at a time.
    fn weighs_at_most(&self, counts: Counts<'_>, room: u64, here: Position) -> u128 {
        let width = u128::from(self.width());
        let mut rest = counts.total();
        let mut part = u128::from(here.part);
        let mut elapsed = u128::from(here.elapsed);
        for oldest in counts.oldest_first() {
            rest -= u64::from(oldest);
            if rest <= room {
                let excess = u64::from(oldest).saturating_sub(room - rest);
                let faded = match oldest {
                    0 => 0,
                    some => (width * u128::from(excess)).div_ceil(u128::from(some)),
                };
                return part * width + elapsed.max(faded);
            }
            part += 1;
            elapsed = 0;
        }
        part * width
    }

    /// Whole units until `most` of them weigh, when this much does.
    fn room(&self, most: u64, weight: u128) -> u64 {
        let width = u128::from(self.width());
        low((u128::from(most) * width).saturating_sub(weight) / width)
    }

    /// A point given in `1/parts` of a tick, rounded up.
    fn tick(&self, point: u128) -> Timestamp {
        let tick = point.div_ceil(u128::from(self.parts));
        Timestamp::from_micros(u64::try_from(tick).unwrap_or(u64::MAX))
    }

    /// A state decoded from elsewhere may have another number of sub-windows.
    /// Nothing is known of when its units were spent, so they count as spent last.
    fn fit(&self, state: &mut SlidingWindowState) {
        if state.counts.len() != self.parts as usize + 1 {
            let spent: u64 = state.counts.iter().copied().map(u64::from).sum();
            *state = SlidingWindowState { newest: state.newest, ..self.fresh() };
            state.counts[0] = u32::try_from(spent.min(2 * self.rate.count)).unwrap_or(u32::MAX);
        }
    }
}

/// A state's counts as they stand some sub-windows later.
#[derive(Clone, Copy)]
struct Counts<'a> {
    stored: &'a [u32],
    shift: usize,
}

impl<'a> Counts<'a> {
    fn at(state: &'a SlidingWindowState, here: Position) -> Self {
        let shift = usize::try_from(here.part.saturating_sub(state.newest)).unwrap_or(usize::MAX);
        Self { stored: &state.counts, shift: shift.min(state.counts.len()) }
    }

    /// The counts still in view, newest first, without the empty ones since.
    fn in_view(self) -> &'a [u32] {
        &self.stored[..self.stored.len() - self.shift]
    }

    fn total(self) -> u64 {
        self.in_view().iter().copied().map(u64::from).sum()
    }

    fn oldest(self) -> u32 {
        self.in_view().last().copied().unwrap_or(0)
    }

    fn oldest_first(self) -> impl Iterator<Item = u32> {
        self.in_view().iter().rev().copied().chain(std::iter::repeat_n(0, self.shift))
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn fresh(&self) -> SlidingWindowState {
        SlidingWindowState { newest: 0, counts: vec![0; self.parts as usize + 1].into_boxed_slice() }
    }

    fn capacity(&self) -> u64 {
        self.rate.count
    }

    fn spend(&self, state: &mut SlidingWindowState, cost: u64, now: Timestamp) -> Verdict {
        self.fit(state);
        let here = self.locate(state, now);
        if cost > self.rate.count {
            return Verdict::Never;
        }
        if cost == 0 {
            return Verdict::admitted(0);
        }
        let counts = Counts::at(state, here);
        let width = u128::from(self.width());
        if self.weight(counts, here) + u128::from(cost) * width > u128::from(self.rate.count) * width {
            let free = self.weighs_at_most(counts, self.rate.count - cost, here);
            return Verdict::Refused { retry_after: self.tick(free).since(now) };
        }
        Self::advance(state, here);
        state.counts[0] += u32::try_from(cost).unwrap_or(0);
        Verdict::admitted(cost)
    }

    fn describe(&self, state: &SlidingWindowState, verdict: Verdict, now: Timestamp) -> Outcome {
        let here = self.position(now).not_before(state.newest);
        let counts = Counts::at(state, here);
        let weight = self.weight(counts, here);
        Outcome {
            verdict,
            limit: self.rate.count,
            remaining: self.room(self.rate.count, weight),
            reset_after: match weight {
                0 => Span::ZERO,
                _ => self.tick(self.weighs_at_most(counts, 0, here)).since(now),
            },
        }
    }

    fn refund(&self, state: &mut SlidingWindowState, units: u64, taken_at: Timestamp, now: Timestamp) {
        self.fit(state);
        let here = self.locate(state, now);
        Self::advance(state, here);
        let age = state.newest.saturating_sub(self.position(taken_at).part);
        if let Some(count) = usize::try_from(age).ok().and_then(|age| state.counts.get_mut(age)) {
            *count = count.saturating_sub(u32::try_from(units).unwrap_or(u32::MAX));
        }
    }

    fn grant(&self, state: &mut SlidingWindowState, units: u64, now: Timestamp) {
        self.fit(state);
        let here = self.locate(state, now);
        Self::advance(state, here);
        // Newest first: those weigh in full, so as many units as are granted may be spent.
        let mut left = u32::try_from(units).unwrap_or(u32::MAX);
        for count in &mut state.counts {
            let taken = left.min(*count);
            *count -= taken;
            left -= taken;
        }
    }

    fn charge(&self, state: &mut SlidingWindowState, units: u64, overdraft: Overdraft, now: Timestamp) {
        self.fit(state);
        let here = self.locate(state, now);
        Self::advance(state, here);
        let most = match overdraft {
            Overdraft::None => self.rate.count,
            Overdraft::OneCapacity => 2 * self.rate.count,
        };
        let room = self.room(most, self.weight(Counts::at(state, here), here));
        state.counts[0] += u32::try_from(units.min(room)).unwrap_or(0);
    }

    fn used(&self, state: &SlidingWindowState, now: Timestamp) -> u64 {
        let mut state = state.clone();
        self.fit(&mut state);
        let here = self.locate(&mut state, now);
        low(self.weight(Counts::at(&state, here), here).div_ceil(u128::from(self.width())))
    }

    fn forgettable_at(&self, state: &SlidingWindowState) -> Timestamp {
        // A state with other sub-windows than these counts as spent last (see `fit`).
        let fits = state.counts.len() == self.parts as usize + 1;
        let newest_spent = state.counts.iter().position(|&count| count > 0);
        newest_spent.map_or(Timestamp::EPOCH, |age| {
            let seen = u128::from(state.newest) + u128::from(self.parts) + 1;
            self.tick((seen - if fits { age as u128 } else { 0 }) * u128::from(self.width()))
        })
    }
}

/// A number known to fit: positions are bounded by `LAST`, weights by `MOST`.
#[allow(clippy::cast_possible_truncation)]
const fn low(value: u128) -> u64 {
    value as u64
}
