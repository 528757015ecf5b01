//! The choice of a slot for a new key of the table of words, and its takeover.
//!
//! The order of the writes is described in `table`.

use tollgate_core::Timestamp;

use super::instant::Instant;
use super::line::{Line, WAYS, hash_of, swap, tag_of};
use super::sync::Ordering;
use super::table::{Table, state_at};
use super::word::{CLAIMED, Class, GENERATIONS, KeyUsage, PackedState, kind_of};

/// A slot for a new key.
pub(super) struct Vacancy<'t> {
    line: &'t Line,
    line_index: usize,
    way: usize,
    seen: u64,
    /// The usage of the present key. Of a key that no longer counts, only the usage of a window is
    /// known.
    occupant: Option<KeyUsage>,
}

impl Vacancy<'_> {
    /// Returns whether the slot has no key that counts.
    pub(super) fn is_free(&self) -> bool {
        !self.occupant.is_some_and(|it| it.is_live())
    }

    /// Returns whether taking the slot evicts usage.
    pub(super) fn evicts(&self) -> bool {
        self.occupant.is_some_and(|it| it.is_live() && !it.is_mark())
    }

    /// Returns the sort key: the best slot first.
    fn rank(&self) -> (bool, Option<u64>) {
        rank(self.occupant)
    }
}

struct LineScan<'t> {
    free: usize,
    vacancy: Option<Vacancy<'t>>,
}

impl Table {
    /// Takes a slot over for a key with this state. Returns false if another thread was faster.
    pub(super) fn claim_for<A: PackedState>(
        &self,
        vacancy: &Vacancy<'_>,
        hash: u64,
        algorithm: &A,
        state: A::State,
        now: Timestamp,
    ) -> bool {
        self.claim(vacancy, hash, algorithm.class(), now, |tag| algorithm.pack(state, tag, self.base))
    }

    /// Takes a slot over for a hash. `pack` returns the word for the tag of the slot. Returns false
    /// if another thread was faster.
    pub(super) fn claim(
        &self,
        vacancy: &Vacancy<'_>,
        hash: u64,
        class: Class,
        now: Timestamp,
        pack: impl Fn(u64) -> u64,
    ) -> bool {
        if let Some(occupant) = vacancy.occupant.filter(|it| !it.is_mark()) {
            // Before the key can be missed. If the key stays, the floor is higher than necessary.
            self.floors.raise(vacancy.line_index, occupant, self.instant(now));
        }
        let (slot, word) = (&vacancy.line.tags[vacancy.way], &vacancy.line.words[vacancy.way]);
        if swap(word, vacancy.seen, CLAIMED).is_err() {
            return false;
        }
        let generation = ((slot.load(Ordering::Relaxed) & 0xf) + 1) % GENERATIONS;
        let tag = tag_of(hash) << 16 | class.in_tag() | generation;
        // Release, both: a thread that sees the tag sees the slot claimed, and a thread that sees
        // the state sees the tag.
        slot.store(tag, Ordering::Release);
        word.store(pack(tag), Ordering::Release);
        if vacancy.evicts() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Returns the state of a new key in this slot: at the floor, and not below an occupant of its
    /// own rule.
    pub(super) fn start_in<A: PackedState>(
        &self,
        vacancy: &Vacancy<'_>,
        hash: u64,
        algorithm: &A,
        now: Timestamp,
    ) -> A::State {
        let time = self.time_of::<A>(now);
        let start = self.start::<A>(hash, time);
        let is_of_rule = |it: &KeyUsage| it.floor.kind() == kind_of(hash) && it.clock == A::CLOCK;
        let occupant = vacancy.occupant.filter(is_of_rule);
        state_at(occupant.map_or(start, |it| start.above(it.floor, time)), algorithm, time)
    }

    /// Returns the best slot for a new key: a free slot in the first line while that has room to
    /// spare, else in the emptier of the first two, else in the others; if no slot is free, the
    /// slot whose key has the smallest worth.
    pub(super) fn vacancy(&self, hash: u64, now: Timestamp) -> Option<Vacancy<'_>> {
        let at = self.instant(now);
        let [first, second] = [self.first(hash), self.second(hash)].map(|line| self.scan_line(line, at));
        if first.free >= 2 || (first.free > 0 && first.free >= second.free) {
            return first.vacancy;
        }
        if second.free > 0 {
            return second.vacancy;
        }
        let overflow = self.overflow(hash).into_iter().filter_map(|line| self.scan_line(line, at).vacancy);
        overflow.chain(first.vacancy).chain(second.vacancy).min_by_key(Vacancy::rank)
    }

    fn scan_line(&self, line_index: usize, at: Instant) -> LineScan<'_> {
        let line = &self.lines[line_index];
        let mut scan = LineScan { free: 0, vacancy: None };
        for way in 0..WAYS {
            let seen = line.words[way].load(Ordering::Acquire);
            if seen == CLAIMED {
                continue;
            }
            let occupant = self.usage(line.tags[way].load(Ordering::Relaxed), seen, at);
            scan.free += usize::from(worth(occupant).is_none());
            let better = scan.vacancy.as_ref().is_none_or(|best| rank(occupant) < best.rank());
            if better {
                scan.vacancy = Some(Vacancy { line, line_index, way, seen, occupant });
            }
        }
        scan
    }

    /// Returns the usage of the key of a slot.
    pub(super) fn usage(&self, tag: u64, word: u64, at: Instant) -> Option<KeyUsage> {
        Class::of_tag(tag).usage(kind_of(hash_of(tag)), word, self.base, at)
    }
}

/// Returns the worth of a present key that counts.
fn worth(occupant: Option<KeyUsage>) -> Option<u64> {
    occupant.and_then(|usage| usage.worth)
}

/// Returns the sort key of present keys: slots without one first, then those of closed windows, whose usage raises a
/// floor because the wall clock may step back.
fn rank(occupant: Option<KeyUsage>) -> (bool, Option<u64>) {
    (occupant.is_some(), worth(occupant))
}
