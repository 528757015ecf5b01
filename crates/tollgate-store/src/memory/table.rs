//! The table of one-word states: bounded, self-cleaning, lock-free for known keys.
//!
//! A cache line holds four slots. A slot is a tag word (48 bits of the key's hash, the class of its
//! quota, a generation) and a state word. A key has seven possible lines, and is nearly always in
//! the first two. The hot path loads a tag, loads a state, computes the step, and swaps it in. It takes
//! no lock, and a refusal writes nothing.
//!
//! *Self-cleaning.* An expired state is free space. There is no sweep.
//!
//! *Bounded, and strict when full.* If all slots of its lines are live, the key is
//! evicted that has the least to gain from it (the share it has spent, times how
//! long that still counts). Its usage raises a floor, from which every key
//! of its rule starts that is not found. So a flood of new keys makes the table
//! stricter to new keys, and frees no key that it evicts.
//!
//! *Ownership of a slot.* A slot is taken over in three steps: its state word is swapped for
//! `CLAIMED`, the tag is written with a new generation, the state is written with the same
//! generation. A thread that read the old tag finds a word of another generation, or its swap
//! fails; in both cases it retries. Two threads that insert the same key would give it two
//! allowances, so insertion (and only insertion) holds one of a few locks, chosen by the key.
//!
//! *Visibility of a floor.* The floor is raised before the slot is claimed. A thread that misses a
//! key because its slot was claimed therefore sees the floor.
//!
//! Tested by `interleavings` (every order of events in small cases), `tests/threads.rs`,
//! `tests/hostile.rs` (ten million keys) and `tests/floods.rs`.

use tollgate_core::{Adjustment, Outcome, Span, TickBucket, Timestamp, Verdict};

use super::action::Action;
use super::floor::{Floor, Start};
use super::floor_map::FloorMap;
use super::instant::{ClockKind, Instant};
use super::line::{Charge, Line, WAYS, swap, zeroed};
use super::prior_usage::{NoPriorUsage, PriorUsage};
use super::sync::{AtomicU64, Mutex, Ordering, lock, pause};
use super::word::{self, KeyUsage, PackedState, kind_of};
use crate::prefetch::prefetch;

const STRIPES: usize = if cfg!(loom) { 2 } else { 256 };

/// The number of lines in which a key may be: the two usual ones, and the overflow lines.
pub(super) const LINES_PER_KEY: usize = 2 + OVERFLOW_MULTIPLIERS.len();

/// The odd numbers that spread a hash over its overflow lines.
const OVERFLOW_MULTIPLIERS: [u64; 5] = [
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
];

/// The slots per hundred keys of a table, and those of tables before overflow lines were five. See [`Table::new`].
const SLOTS_PER_HUNDRED_KEYS: usize = 146;
const FORMER_SLOTS_PER_HUNDRED_KEYS: usize = 190;

/// The largest capacity, which takes twenty-four gigabytes. Larger requests are reduced to it.
const MAX_KEYS: usize = 1_000_000_000;

/// States by hash.
pub(super) struct Table {
    pub(super) lines: Box<[Line]>,
    /// Serialize the insertion of one key.
    stripes: Box<[Mutex<()>]>,
    /// The origin of times in words. Far enough back that no step of the clock reaches it, and a
    /// whole second: ends of windows are kept in milliseconds.
    pub(super) base: Timestamp,
    /// The range of times that words can represent.
    earliest: Timestamp,
    latest: Timestamp,
    pub(super) floors: FloorMap,
    /// How far the wall clock was last known to be ahead, in two's complement: words of windows use
    /// its time.
    ahead: AtomicU64,
    pub(super) evictions: AtomicU64,
}

impl Table {
    /// Creates a table for this many live keys, starting at `now`.
    ///
    /// It has 1.46 slots per key, which are 24 bytes with the floors. When it is full, 84 keys in a hundred are in
    /// their first line and 15 in their second. With seven lines to choose from, three insertions in a million then
    /// find no room although the table has some; with four lines it would be 250 in a million.
    pub(super) fn new(keys: usize, now: Timestamp) -> Self {
        Self::with_lines(lines_for(keys, SLOTS_PER_HUNDRED_KEYS), now)
    }

    /// Creates a table of a snapshot for this many live keys, if such a table has or had that number of lines.
    pub(super) fn of_snapshot(keys: usize, lines: u64, now: Timestamp) -> Option<Self> {
        let sizes =
            [SLOTS_PER_HUNDRED_KEYS, FORMER_SLOTS_PER_HUNDRED_KEYS].map(|slots| lines_for(keys, slots));
        sizes.into_iter().find(|&size| size as u64 == lines).map(|lines| Self::with_lines(lines, now))
    }

    /// Creates a table of the former size, as earlier versions did.
    #[cfg(all(test, not(loom)))]
    pub(super) fn former(keys: usize, now: Timestamp) -> Self {
        Self::with_lines(lines_for(keys, FORMER_SLOTS_PER_HUNDRED_KEYS), now)
    }

    fn with_lines(lines: usize, now: Timestamp) -> Self {
        let base = whole_second(now.before(Span::from_days(1_461)));
        Self {
            lines: zeroed(lines),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            base,
            earliest: base + Span::from_micros(1),
            latest: base + Span::from_micros(1 << 49),
            floors: FloorMap::new(lines),
            ahead: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// Sets how many microseconds the wall clock is ahead of the times that are passed here.
    pub(super) fn set_wall_ahead(&self, ahead: i64) {
        // Relaxed: it orders nothing. Written only when it changes, since all threads read it.
        if self.wall_ahead() != ahead {
            self.ahead.store(ahead.cast_unsigned(), Ordering::Relaxed);
        }
    }

    pub(super) fn wall_ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed).cast_signed()
    }

    /// Returns the time in the clock of an algorithm's states.
    pub(super) fn time_of<A: PackedState>(&self, now: Timestamp) -> Timestamp {
        match A::CLOCK {
            ClockKind::Monotonic => now,
            ClockKind::Wall => self.clamp_time(now.shifted(self.wall_ahead())),
        }
    }

    /// Returns an instant on both clocks.
    pub(super) fn instant(&self, now: Timestamp) -> Instant {
        Instant { now, wall_ahead: self.wall_ahead() }
    }

    /// Returns the number of keys that were evicted while they still counted.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Sets that number, when a store continues from a snapshot.
    pub(super) fn set_evictions(&self, evictions: u64) {
        self.evictions.store(evictions, Ordering::Relaxed);
    }

    /// Iterates over the line, tag and word of each state that counts or may count again.
    pub(super) fn saved(&self, now: Timestamp) -> impl Iterator<Item = (usize, u64, u64)> {
        let at = self.instant(now);
        self.lines.iter().enumerate().flat_map(move |(index, line)| {
            line.tags.iter().zip(&line.words).filter_map(move |(slot, state)| {
                let tag = slot.load(Ordering::Acquire);
                let word = state.load(Ordering::Acquire);
                // A slot that is being taken over has another generation.
                let is_whole = word::belongs(word, tag) && slot.load(Ordering::Acquire) == tag;
                (is_whole && self.usage(tag, word, at).is_some()).then_some((index, tag, word))
            })
        })
    }

    /// Stores a word of a table with another base in a line. Returns `None` if the line is full or does not
    /// exist. A time that this table cannot represent is left out.
    pub(super) fn restore(&self, line: usize, tag: u64, word: u64, base: Timestamp) -> Option<()> {
        let line = self.lines.get(line)?;
        if !word::belongs(word, tag) || tag & 0xf >= word::GENERATIONS {
            return None;
        }
        let Some(word) = word::Class::of_tag(tag).rebased(word, base, self.base) else { return Some(()) };
        let way = line.tags.iter().position(|slot| slot.load(Ordering::Relaxed) == 0)?;
        line.tags[way].store(tag, Ordering::Release);
        line.words[way].store(word, Ordering::Release);
        Some(())
    }

    /// Returns the memory in bytes. Only evictions add to it, temporarily.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.stripes) + self.floors.bytes()
    }

    /// Returns the number of slots with a state that counts at `now`. Scans the table.
    pub(super) fn live(&self, now: Timestamp) -> usize {
        let slots = self.lines.iter().flat_map(|line| line.tags.iter().zip(&line.words));
        let usage = |(tag, word): (&AtomicU64, &AtomicU64)| {
            self.usage(tag.load(Ordering::Relaxed), word.load(Ordering::Relaxed), self.instant(now))
        };
        slots.filter_map(usage).filter(KeyUsage::is_live).count()
    }

    /// Clamps the time to the range of words: after "never", and early enough that the longest debt
    /// still fits.
    #[inline(always)]
    pub(super) fn clamp_time(&self, now: Timestamp) -> Timestamp {
        now.clamp(self.earliest, self.latest)
    }

    /// Prefetches the most likely line of a key.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.lines[self.first(hash)]);
    }

    /// Runs `action` on the state of a key, atomically. An unchanged state is not written.
    pub(super) fn run<A: PackedState, P: PriorUsage>(
        &self,
        hash: u64,
        algorithm: &A,
        act: Action,
        now: Timestamp,
        past: &P,
    ) -> Outcome {
        if P::EXISTS {
            return self.run_after_change(hash, algorithm, act, now, past);
        }
        let time = self.time_of::<A>(now);
        let mut op = |state: &mut A::State| act.on(algorithm, state, time);
        for line in [self.first(hash), self.second(hash)] {
            if let Some((state, verdict)) = self.update_in(&self.lines[line], hash, algorithm, &mut op) {
                return algorithm.describe(&state, verdict, time);
            }
        }
        let found = if act.can_insert() {
            None
        } else {
            let mut lines = self.overflow(hash).into_iter();
            lines.find_map(|line| self.update_in(&self.lines[line], hash, algorithm, &mut op))
        };
        let (state, verdict) = found.unwrap_or_else(|| {
            let start = self.start::<A>(hash, time);
            let above_floor = matches!(act, Action::Adjust(_)) && start != Start::Fresh;
            if act.can_insert() || above_floor {
                return self.insert(hash, algorithm, now, op);
            }
            let mut state = state_at(start, algorithm, time);
            let verdict = op(&mut state);
            (state, verdict)
        });
        algorithm.describe(&state, verdict, time)
    }

    /// Runs `action` for a rule that has replaced another. A key without a live state here may have
    /// usage under the other rule. It then starts from that usage, which is stored also if the
    /// request is refused or is a read.
    #[cold]
    fn run_after_change<A: PackedState>(
        &self,
        hash: u64,
        algorithm: &A,
        act: Action,
        now: Timestamp,
        past: &impl PriorUsage,
    ) -> Outcome {
        let time = self.time_of::<A>(now);
        let inserting = lock(self.stripe(hash));
        let known = self.read(hash, algorithm).is_some_and(|state| algorithm.expires_at(&state) > time);
        let carried = if known { None } else { past.state().and_then(A::from_state) };
        let Some(carried) = carried else {
            drop(inserting);
            if let Some(bound) = past.bound().and_then(A::from_state) {
                self.relieve(hash, algorithm, bound);
            }
            return self.run(hash, algorithm, act, now, &NoPriorUsage);
        };
        // The carried-over times are of the clock that never steps.
        let carried = algorithm.in_own_time(carried, now, time);
        let start = self.start::<A>(hash, time);
        let mut state = match start {
            Start::Fresh => carried,
            start => {
                let units = algorithm.used(&carried, time);
                let floor = Floor::new(kind_of(hash), units, algorithm.expires_at(&carried));
                state_at(start.above(floor, time), algorithm, time)
            }
        };
        let verdict = act.on(algorithm, &mut state, time);
        // A closed floor hides the usage of this key, which is carried over after the floor has ended.
        if start == Start::Closed && !matches!(act, Action::Adjust(_)) {
            return algorithm.describe(&state, verdict, time);
        }
        // A state that equals a fresh one is not stored.
        if algorithm.expires_at(&state) > time {
            self.put(hash, algorithm, state, now);
        }
        past.carried();
        algorithm.describe(&state, verdict, time)
    }

    /// The hot path: a known key pays out of a bucket of whole ticks. Returns the arrival time
    /// after that and whether it was paid, or `None` for a key that is in neither of its usual
    /// lines.
    ///
    /// Between reading a word and swapping it, another core may take the line away, so everything
    /// possible is computed before ([`Charge`]).
    #[inline(always)]
    pub(super) fn pay(
        &self,
        hash: u64,
        bucket: &TickBucket,
        price: u64,
        now: Timestamp,
    ) -> Option<(Timestamp, bool)> {
        let charge = Charge {
            price: word::shifted(price),
            now: word::shifted(now.since(self.base).as_micros()),
            full: word::shifted(bucket.full()),
        };
        let paid = match self.lines[self.first(hash)].pay(hash, charge) {
            None => self.pay_second(hash, charge),
            paid => paid,
        };
        paid.map(|(tat, paid)| (word::tat(tat, self.base), paid))
    }

    /// One key in ten lives in its second line, or one in seven in a full table.
    #[inline(never)]
    fn pay_second(&self, hash: u64, charge: Charge) -> Option<(u64, bool)> {
        self.lines[self.second(hash)].pay(hash, charge)
    }

    /// Returns the arrival time of a known key's bucket of whole ticks, as [`pay`](Self::pay) would
    /// find it.
    #[inline(always)]
    pub(super) fn tat(&self, hash: u64) -> Option<Timestamp> {
        self.tat_in(self.first(hash), hash).or_else(|| self.tat_in(self.second(hash), hash))
    }

    /// Returns the arrival time of a hash that is in this line.
    #[inline(always)]
    pub(super) fn tat_in(&self, line: usize, hash: u64) -> Option<Timestamp> {
        self.lines[line].find(hash, |slot, tag| {
            let word = slot.load(Ordering::Acquire);
            word::belongs(word, tag).then(|| word::tat(word, self.base))
        })
    }

    /// Returns the state of a key, if it has one.
    pub(super) fn read<A: PackedState>(&self, hash: u64, algorithm: &A) -> Option<A::State> {
        let look = |_: &mut A::State| Verdict::admitted(0);
        let mut lines = self.lines_of(hash).into_iter();
        lines.find_map(|line| Some(self.update_in(&self.lines[line], hash, algorithm, look)?.0))
    }

    /// Returns the start of a key that is in none of its lines, at `time` of its clock.
    pub(super) fn start<A: PackedState>(&self, hash: u64, time: Timestamp) -> Start {
        self.floors.start(self.lines_of(hash), kind_of(hash), A::CLOCK, time)
    }

    /// Runs `op` on the state of a key if it is in this line. `op` may run several times; the last
    /// run counts.
    #[inline]
    fn update_in<A: PackedState>(
        &self,
        line: &Line,
        hash: u64,
        algorithm: &A,
        mut op: impl FnMut(&mut A::State) -> Verdict,
    ) -> Option<(A::State, Verdict)> {
        line.find(hash, |slot, tag| {
            // Acquire: as in `pay`.
            let mut word = slot.load(Ordering::Acquire);
            while word::belongs(word, tag) {
                let mut state = algorithm.unpack(word, self.base);
                let verdict = op(&mut state);
                match swap(slot, word, algorithm.pack(state, tag, self.base)) {
                    Ok(()) => return Some((state, verdict)),
                    Err(newer) => word = newer,
                }
            }
            None
        })
    }

    /// Changes a key's state if it still counts; the state of an evicted key starts from its
    /// floor. Returns the new state.
    pub(super) fn amend<A: PackedState>(
        &self,
        hash: u64,
        algorithm: &A,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<A::State> {
        let time = self.time_of::<A>(now);
        let amend = |state: &mut A::State| {
            if algorithm.expires_at(state) > time {
                algorithm.adjust(state, adjustment, time);
            }
            Verdict::admitted(0)
        };
        let mut lines = self.lines_of(hash).into_iter();
        let found = lines.find_map(|line| self.update_in(&self.lines[line], hash, algorithm, amend));
        let found = found.or_else(|| {
            let evicted = self.start::<A>(hash, time) != Start::Fresh;
            evicted.then(|| self.insert(hash, algorithm, now, amend))
        });
        let found = found.map(|(state, _)| state).filter(|state| algorithm.expires_at(state) > time);
        found.map(|state| A::shifted(state, now.ahead_of(time)))
    }

    /// Returns the state of a key in monotonic time; if the key may have been evicted, returns the
    /// floor.
    pub(super) fn read_steady<A: PackedState>(
        &self,
        hash: u64,
        algorithm: &A,
        now: Timestamp,
    ) -> Option<A::State> {
        self.read_stored(hash, algorithm, now).or_else(|| {
            let time = self.time_of::<A>(now);
            match self.start::<A>(hash, time) {
                Start::Fresh => None,
                start => Some(A::shifted(state_at(start, algorithm, time), now.ahead_of(time))),
            }
        })
    }

    /// Returns a key's state only if the table holds it, in the time of the clock that never steps.
    pub(super) fn read_stored<A: PackedState>(
        &self,
        hash: u64,
        algorithm: &A,
        now: Timestamp,
    ) -> Option<A::State> {
        let time = self.time_of::<A>(now);
        Some(A::shifted(self.read(hash, algorithm)?, now.ahead_of(time)))
    }

    /// Replaces a key's state by one that is forgotten sooner.
    fn relieve<A: PackedState>(&self, hash: u64, algorithm: &A, bound: A::State) {
        let relieve = |state: &mut A::State| {
            if algorithm.expires_at(state) > algorithm.expires_at(&bound) {
                *state = bound;
            }
            Verdict::admitted(0)
        };
        let mut lines = self.lines_of(hash).into_iter();
        lines.any(|line| self.update_in(&self.lines[line], hash, algorithm, relieve).is_some());
    }

    /// Runs `op` on a key that was not found a moment ago.
    #[cold]
    fn insert<A: PackedState>(
        &self,
        hash: u64,
        algorithm: &A,
        now: Timestamp,
        mut op: impl FnMut(&mut A::State) -> Verdict,
    ) -> (A::State, Verdict) {
        // All at once, while the lock is taken: they are searched one after the other.
        self.overflow(hash).into_iter().for_each(|line| prefetch(&self.lines[line]));
        let _inserting = lock(self.stripe(hash));
        loop {
            let mut lines = self.lines_of(hash).into_iter();
            let found = lines.find_map(|line| self.update_in(&self.lines[line], hash, algorithm, &mut op));
            if let Some(done) = found {
                return done;
            }
            let Some(vacancy) = self.vacancy(hash, now) else {
                pause(); // every slot is being taken over
                continue;
            };
            let start = self.start_in(&vacancy, hash, algorithm, now);
            let mut state = start;
            let verdict = op(&mut state);
            // A key that was reset evicts no other.
            let needs_room = algorithm.expires_at(&state) > self.time_of::<A>(now) || vacancy.is_free();
            if state == start || !needs_room || self.claim_for(&vacancy, hash, algorithm, state, now) {
                return (state, verdict);
            }
            pause(); // another thread was faster
        }
    }

    /// Stores a state regardless of the present one. The caller holds the stripe of the key.
    fn put<A: PackedState>(&self, hash: u64, algorithm: &A, state: A::State, now: Timestamp) {
        let set = |slot: &mut A::State| {
            *slot = state;
            Verdict::admitted(0)
        };
        loop {
            let mut lines = self.lines_of(hash).into_iter();
            if lines.any(|line| self.update_in(&self.lines[line], hash, algorithm, set).is_some()) {
                return;
            }
            if self.vacancy(hash, now).is_some_and(|it| self.claim_for(&it, hash, algorithm, state, now)) {
                return;
            }
            pause();
        }
    }

    /// Returns the lock that serializes the insertion of this key.
    pub(super) fn stripe(&self, hash: u64) -> &Mutex<()> {
        &self.stripes[hash as usize % self.stripes.len()]
    }

    pub(super) fn lines_of(&self, hash: u64) -> [usize; LINES_PER_KEY] {
        let [third, fourth, fifth, sixth, seventh] = self.overflow(hash);
        [self.first(hash), self.second(hash), third, fourth, fifth, sixth, seventh]
    }

    #[inline]
    pub(super) fn first(&self, hash: u64) -> usize {
        self.index(hash)
    }

    #[inline]
    pub(super) fn second(&self, hash: u64) -> usize {
        self.index(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the lines for the few keys that found the first two full.
    pub(super) fn overflow(&self, hash: u64) -> [usize; OVERFLOW_MULTIPLIERS.len()] {
        OVERFLOW_MULTIPLIERS.map(|odd| self.index(hash.wrapping_mul(odd)))
    }

    /// Spreads a hash over the lines by its high bits; the tag uses the low bits.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }
}

/// Returns the number of lines for this many keys.
fn lines_for(keys: usize, slots_per_hundred: usize) -> usize {
    (keys.min(MAX_KEYS) * slots_per_hundred / 100).div_ceil(WAYS).max(1)
}

/// Returns the state of a key with this start, at `time` of its clock.
pub(super) fn state_at<A: PackedState>(start: Start, algorithm: &A, time: Timestamp) -> A::State {
    let (units, until) = start.spent(algorithm.capacity(), algorithm.period(), time);
    algorithm.spent_until(units, until, time)
}

const fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.as_micros() / 1_000_000)
}
