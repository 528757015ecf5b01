//! The parts of one key: what weighs, what leaves when, and which two are merged.
//!
//! Everything here is in whole steps before that of the newest unit; what a step is, and
//! where the border runs, is the algorithm's business (`sliding_parts`).
//!
//! Invariants: parts are disjoint and the oldest is first; the last unit of the newest
//! is the newest; no part is empty, and one of a single unit begins where it
//! ends. [`SlidingPartsState::new`] refuses everything else.

use crate::time::Timestamp;

/// Units and their times, in a few parts: eight bytes, and eight for each part.
#[derive(Clone, Debug, Default)]
pub struct SlidingPartsState {
    newest: Timestamp,
    /// Oldest first, then empty ones. Grows by doubling, never beyond the number of parts.
    slots: Box<[Part]>,
}

/// Where the units of a part are taken to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Evenly, from the first to the last: an estimate.
    Even,
    /// All where the last one stands: none of them leaves before it did in fact.
    Last,
}

/// So many units from one step to another, both told back from the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    first: u16,
    last: u16,
    count: u32,
}

impl Part {
    /// How many of its units have left, if those do that stand `reach` steps back or more.
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

    /// Where the unit stands before which so many others leave.
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

    /// What merging this and the next one costs: how far they are apart, times the units that
    /// it would place anew; or, if all stand at the end, how much later the units of this one
    /// would leave.
    fn distance(self, later: Self, spread: Spread) -> u64 {
        match spread {
            Spread::Even => {
                u64::from(self.last - later.first) * (u64::from(self.count) + u64::from(later.count))
            }
            Spread::Last => u64::from(self.last - later.last) * u64::from(self.count),
        }
    }
}

/// States are equal that say the same, whatever room they have.
impl PartialEq for SlidingPartsState {
    fn eq(&self, other: &Self) -> bool {
        self.newest == other.newest && self.live() == other.live()
    }
}

impl Eq for SlidingPartsState {}

impl SlidingPartsState {
    /// A state from its parts, oldest first, each with its first and its last step, told
    /// back from that of the newest unit, and its count. `None` if that is not a state.
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

    /// When the newest unit came; 1970 if there is none.
    pub const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Its parts, as [`new`](Self::new) takes them.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = (u16, u16, u32)> {
        self.live().iter().map(|it| (it.first, it.last, it.count))
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.slots.first().is_none_or(|it| it.count == 0)
    }

    /// What its parts take, in bytes.
    pub const fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    fn len(&self) -> usize {
        self.slots.partition_point(|it| it.count > 0)
    }

    fn live(&self) -> &[Part] {
        &self.slots[..self.len()]
    }

    /// Tells its times from another one, if it has any.
    pub(super) fn move_to(&mut self, newest: Timestamp) {
        self.newest = if self.is_empty() { Timestamp::EPOCH } else { newest };
    }

    /// Units that have not left.
    pub(super) fn weight(&self, reach: u32, spread: Spread) -> u64 {
        self.live().iter().map(|it| u64::from(it.count - it.gone(reach, spread))).sum()
    }

    /// Where the `nth` of those stands that have not left.
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

    /// Drops what has left.
    pub(super) fn forget(&mut self, reach: u32, spread: Spread) {
        if spread == Spread::Last {
            // A state from elsewhere may have first units, which say nothing here.
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

    /// Removes so many parts from here on.
    fn remove(&mut self, from: usize, many: usize) {
        let len = self.len();
        self.slots[from..len].rotate_left(many);
        self.slots[len - many..len].fill(Part::default());
    }

    /// Adds units so many steps later than the newest, in so many parts at most.
    pub(super) fn append(&mut self, units: u32, later: u64, most: usize, spread: Spread) {
        let mut len = self.len();
        // A state from elsewhere may have more parts than these.
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

    /// Gives the newest its own part, or makes one of two that lie close.
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

    /// Which of the first `len` parts lies closest to the one after it; `newest` comes
    /// after them all. The oldest of several.
    fn closest(&self, newest: Part, len: usize, spread: Spread) -> usize {
        let after = |at: usize| if at + 1 < len { self.slots[at + 1] } else { newest };
        (0..len).min_by_key(|&at| self.slots[at].distance(after(at), spread)).unwrap_or(0)
    }

    fn merge(&mut self, pair: usize, spread: Spread) {
        self.slots[pair] = self.slots[pair].merged(self.slots[pair + 1], spread);
        self.remove(pair + 1, 1);
    }

    /// Makes room for one more.
    fn reserve(&mut self, len: usize, most: usize) {
        if len == self.slots.len() {
            let room = (2 * len).clamp(1, most);
            let mut grown = Vec::with_capacity(room);
            grown.extend_from_slice(&self.slots);
            grown.resize(room, Part::default());
            self.slots = grown.into_boxed_slice();
        }
    }

    /// Gives units back to the oldest part that ends so many steps back or later. Returns by
    /// how many steps what is the newest then is older.
    pub(super) fn give_back(&mut self, units: u64, age: u16) -> u16 {
        let found = self.live().partition_point(|it| it.last > age);
        if found < self.len() {
            self.reduce(found, units);
        }
        self.rebase()
    }

    /// Forgives units, the newest first. Returns as `give_back` does.
    pub(super) fn forgive(&mut self, units: u64) -> u16 {
        let mut left = units;
        for part in (0..self.len()).rev() {
            left -= self.reduce(part, left);
        }
        self.rebase()
    }

    /// Takes units from a part, as far as it has them.
    fn reduce(&mut self, at: usize, units: u64) -> u64 {
        let part = &mut self.slots[at];
        let taken = u32::try_from(units).unwrap_or(u32::MAX).min(part.count);
        match part.count - taken {
            0 => self.remove(at, 1),
            // Which of them is left nobody knows: it stays as long as any of them would.
            1 => *part = Part { first: part.last, count: 1, ..*part },
            left => part.count = left,
        }
        taken.into()
    }

    /// Tells steps from the newest unit that is left. Returns how many those are.
    fn rebase(&mut self) -> u16 {
        let (by, len) = (self.live().last().map_or(0, |it| it.last), self.len());
        for part in &mut self.slots[..len] {
            (part.first, part.last) = (part.first - by, part.last - by);
        }
        self.move_to(self.newest);
        by
    }
}
