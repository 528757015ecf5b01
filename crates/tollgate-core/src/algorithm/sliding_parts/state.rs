//! The parts of one key: their weight, when they leave, and which two are merged.
//!
//! All positions are in whole steps before the newest unit. The length of a step and the border of
//! the window are defined by the algorithm (`sliding_parts`).
//!
//! Invariants: parts are disjoint, the oldest is first; the last unit of the newest part is the
//! newest unit; no part is empty, and a part of a single unit begins where it ends.
//! [`SlidingPartsState::new`] refuses everything else.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::time::Timestamp;

/// The state of a sliding window in parts: eight bytes, and eight for each part.
#[derive(Clone, Debug, Default)]
pub struct SlidingPartsState {
    newest: Timestamp,
    /// Oldest first, then empty slots. Grows by doubling, up to the number of parts.
    slots: Box<[Part]>,
}

/// The assumed positions of the units of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Evenly from the first to the last: an estimate.
    Even,
    /// All at the last one: no unit leaves early.
    Last,
}

/// A number of units between two steps, both counted back from the newest unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    first: u16,
    last: u16,
    count: u32,
}

impl Part {
    /// Returns how many of its units have left, if units leave that lie `reach` steps back or more.
    fn gone(self, reach: u32, spread: Spread) -> u32 {
        if u32::from(self.last) >= reach {
            return self.count;
        }
        if spread == Spread::Last {
            return 0;
        }
        match u32::from(self.first).checked_sub(reach) {
            None => 0,
            Some(passed) => {
                let steps = u64::from(self.first - self.last);
                let even = u64::from(self.count - 1) * u64::from(passed) / steps.max(1);
                u32::try_from(even).unwrap_or(u32::MAX).saturating_add(1).min(self.count)
            }
        }
    }

    /// Returns the position of the unit that leaves after `before` others.
    fn place(self, before: u32, spread: Spread) -> u16 {
        if spread == Spread::Last {
            return self.last;
        }
        let (steps, gaps) = (u64::from(self.first - self.last), u64::from(self.count.saturating_sub(1)));
        let passed = (u64::from(before) * steps).div_ceil(gaps.max(1));
        self.first - u16::try_from(passed.min(steps)).unwrap_or(0)
    }

    fn merged(self, later: Self, spread: Spread) -> Self {
        let first = match spread {
            Spread::Even => self.first,
            Spread::Last => later.last,
        };
        Self { first, last: later.last, count: self.count.saturating_add(later.count) }
    }

    /// Returns the cost of merging this part with the next one: the gap between them times the
    /// units that would be placed anew; or, if all units lie at the end, the delay of the units of
    /// this part.
    fn distance(self, later: Self, spread: Spread) -> u64 {
        match spread {
            Spread::Even => {
                u64::from(self.last - later.first) * (u64::from(self.count) + u64::from(later.count))
            }
            Spread::Last => u64::from(self.last - later.last) * u64::from(self.count),
        }
    }
}

/// States are equal if their parts are equal, regardless of capacity.
impl PartialEq for SlidingPartsState {
    fn eq(&self, other: &Self) -> bool {
        self.newest == other.newest && self.live() == other.live()
    }
}

impl Eq for SlidingPartsState {}

impl SlidingPartsState {
    /// Returns the same state on a clock that is `by` microseconds ahead.
    #[must_use]
    pub fn shifted(self, by: i64) -> Self {
        if self.slots.is_empty() { self } else { Self { newest: self.newest.shifted(by), ..self } }
    }

    /// Creates a state from its parts, oldest first. Each part has its first and last step, counted
    /// back from that of the newest unit, and its count. Returns `None` if the parts break an
    /// invariant.
    pub fn new(newest: Timestamp, parts: impl IntoIterator<Item = (u16, u16, u32)>) -> Option<Self> {
        let parts = parts.into_iter().map(|(first, last, count)| Part { first, last, count });
        let slots: Box<[Part]> = parts.collect();
        let is_part = |it: &Part| match it.count {
            0 => false,
            1 => it.first == it.last,
            _ => it.first >= it.last,
        };
        let ends_at_newest = slots.last().map_or(newest == Timestamp::EPOCH, |it| it.last == 0);
        let are_apart = slots.is_sorted_by(|earlier, later| earlier.last > later.first);
        (ends_at_newest && are_apart && slots.iter().all(is_part)).then_some(Self { newest, slots })
    }

    /// Returns the time of the newest unit; 1970 if the state is empty.
    pub const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Returns the parts in the form that [`new`](Self::new) takes.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = (u16, u16, u32)> {
        self.live().iter().map(|it| (it.first, it.last, it.count))
    }

    /// Returns whether the state has no units.
    pub fn is_empty(&self) -> bool {
        self.slots.first().is_none_or(|it| it.count == 0)
    }

    /// Returns the memory of its parts in bytes.
    pub const fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    fn len(&self) -> usize {
        self.slots.partition_point(|it| it.count > 0)
    }

    fn live(&self) -> &[Part] {
        &self.slots[..self.len()]
    }

    /// Counts its steps from another newest time, if it has any units.
    pub(super) fn move_to(&mut self, newest: Timestamp) {
        self.newest = if self.is_empty() { Timestamp::EPOCH } else { newest };
    }

    /// Returns the units that have not left.
    pub(super) fn weight(&self, reach: u32, spread: Spread) -> u64 {
        self.live().iter().map(|it| u64::from(it.count - it.gone(reach, spread))).sum()
    }

    /// Returns the position of the `nth` unit that has not left.
    pub(super) fn place(&self, nth: u64, reach: u32, spread: Spread) -> u16 {
        let mut before = nth.saturating_sub(1);
        for part in self.live() {
            let gone = part.gone(reach, spread);
            let left = u64::from(part.count - gone);
            let Some(rest) = before.checked_sub(left) else {
                let before = gone.saturating_add(u32::try_from(before).unwrap_or(u32::MAX));
                return part.place(before, spread);
            };
            before = rest;
        }
        0
    }

    /// Drops the units that have left.
    pub(super) fn forget(&mut self, reach: u32, spread: Spread) {
        if spread == Spread::Last {
            // A state from another configuration may have first units, which have no meaning here.
            self.slots.iter_mut().for_each(|it| it.first = it.last);
        }
        let gone = self.live().partition_point(|it| u32::from(it.last) >= reach);
        self.remove(0, gone);
        if let Some(oldest) = self.slots.first_mut().filter(|it| it.count > 0) {
            let gone = oldest.gone(reach, spread);
            if gone > 0 {
                *oldest =
                    Part { first: oldest.place(gone, spread), last: oldest.last, count: oldest.count - gone };
            }
        }
        self.move_to(self.newest);
    }

    /// Removes `many` parts, starting at `from`.
    fn remove(&mut self, from: usize, many: usize) {
        let len = self.len();
        self.slots[from..len].rotate_left(many);
        self.slots[len - many..len].fill(Part::default());
    }

    /// Adds units `later` steps after the newest, with at most `most` parts.
    pub(super) fn append(&mut self, units: u32, later: u64, most: usize, spread: Spread) {
        let mut len = self.len();
        // A state from another configuration may have more parts.
        while len > most {
            self.merge(self.closest(self.slots[len - 1], len - 1, spread), spread);
            len -= 1;
        }
        let moved = |back: u16| u16::try_from(later.saturating_add(back.into())).unwrap_or(u16::MAX);
        for part in &mut self.slots[..len] {
            (part.first, part.last) = (moved(part.first), moved(part.last));
        }
        match self.slots[..len].last_mut() {
            Some(part) if part.last == 0 => part.count = part.count.saturating_add(units),
            _ => self.open(Part { first: 0, last: 0, count: units }, most, spread),
        }
    }

    /// Gives the newest units a part of their own, or merges the two closest parts.
    fn open(&mut self, newest: Part, most: usize, spread: Spread) {
        let len = self.len();
        if len < most {
            self.reserve(len, most);
            self.slots[len] = newest;
            return;
        }
        let pair = self.closest(newest, len, spread);
        if pair + 1 == len {
            self.slots[pair] = self.slots[pair].merged(newest, spread);
        } else {
            self.merge(pair, spread);
            self.slots[len - 1] = newest;
        }
    }

    /// Returns which of the first `len` parts is closest to its successor; `newest` follows the
    /// last of them. Ties go to the oldest.
    fn closest(&self, newest: Part, len: usize, spread: Spread) -> usize {
        let after = |at: usize| if at + 1 < len { self.slots[at + 1] } else { newest };
        (0..len).min_by_key(|&at| self.slots[at].distance(after(at), spread)).unwrap_or(0)
    }

    fn merge(&mut self, pair: usize, spread: Spread) {
        self.slots[pair] = self.slots[pair].merged(self.slots[pair + 1], spread);
        self.remove(pair + 1, 1);
    }

    /// Reserves memory for one more part.
    fn reserve(&mut self, len: usize, most: usize) {
        if len == self.slots.len() {
            let room = (2 * len).clamp(1, most);
            let mut grown = Vec::with_capacity(room);
            grown.extend_from_slice(&self.slots);
            grown.resize(room, Part::default());
            self.slots = grown.into_boxed_slice();
        }
    }

    /// Refunds units to the oldest part that ends `age` steps back or later. Returns by how many
    /// steps the newest unit is older afterwards.
    pub(super) fn give_back(&mut self, units: u64, age: u16) -> u16 {
        let found = self.live().partition_point(|it| it.last > age);
        if found < self.len() {
            self.reduce(found, units);
        }
        self.rebase()
    }

    /// Removes units, the newest first. Returns as `give_back` does.
    pub(super) fn forgive(&mut self, units: u64) -> u16 {
        let mut left = units;
        for part in (0..self.len()).rev() {
            left -= self.reduce(part, left);
        }
        self.rebase()
    }

    /// Takes at most `units` units from a part.
    fn reduce(&mut self, at: usize, units: u64) -> u64 {
        let part = &mut self.slots[at];
        let taken = u32::try_from(units).unwrap_or(u32::MAX).min(part.count);
        match part.count - taken {
            0 => self.remove(at, 1),
            // It is not known which unit is left, so it stays as long as the last one would.
            1 => *part = Part { first: part.last, count: 1, ..*part },
            left => part.count = left,
        }
        taken.into()
    }

    /// Counts steps from the newest remaining unit. Returns the number of steps moved.
    fn rebase(&mut self) -> u16 {
        let (by, len) = (self.live().last().map_or(0, |it| it.last), self.len());
        for part in &mut self.slots[..len] {
            (part.first, part.last) = (part.first - by, part.last - by);
        }
        self.move_to(self.newest);
        by
    }
}
