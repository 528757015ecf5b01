//! The table of one-word states: bounded, self-cleaning, lock-free for known keys.
//!
//! A cache line holds four slots. A slot is a tag word (48 bits of the key's hash, the class of its
//! quota, a generation) and a state word. A key has four possible lines, and is nearly always in
//! the first. The hot path loads a tag, loads a state, computes the step, and swaps it in. It takes
//! no lock, and a refusal writes nothing.
//!
//! *Self-cleaning.* An expired state is free space. There is no sweep.
//!
//! *Bounded, and strict when full.* If all sixteen slots are live, the key is
//! evicted that has the least to gain from it (the share it has spent, times how
//! long that still counts). What it had spent raises a floor, from which every key
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
use super::floor::{Floor, Floors, Start};
use super::line::{Charge, Line, WAYS, hash_of, prefetch, swap, tag_of, zeroed};
use super::prior_usage::{NoPriorUsage, PriorUsage};
use super::sync::{AtomicU64, Mutex, Ordering, lock, pause};
use super::word::{self, CLAIMED, Class, GENERATIONS, KeyUsage, PackedState, kind_of};

const STRIPES: usize = if cfg!(loom) { 2 } else { 256 };

/// The number of lines per floor: few enough that a floor affects few keys, enough that floors take
/// less than a byte per key.
const LINES_PER_FLOOR: usize = 64;

/// The largest capacity, which takes thirty gigabytes. Larger requests are reduced to it.
const MAX_KEYS: usize = 1_000_000_000;

/// States by hash.
pub(super) struct Table {
    lines: Box<[Line]>,
    /// Serialize the insertion of one key.
    stripes: Box<[Mutex<()>]>,
    /// The origin of times in words. Far enough back that no step of the clock reaches it, and a
    /// whole second: ends of windows are kept in milliseconds.
    base: Timestamp,
    /// The range of times that words can represent.
    earliest: Timestamp,
    latest: Timestamp,
    floors: Box<[Mutex<Floors>]>,
    /// The time in microseconds from which no floor counts.
    floors_until: AtomicU64,
    /// How far the wall clock was last known to be ahead, in two's complement: words of windows use
    /// its time.
    ahead: AtomicU64,
    evictions: AtomicU64,
}

/// A slot for a new key.
struct Vacancy<'t> {
    line: &'t Line,
    line_index: usize,
    way: usize,
    seen: u64,
    /// The usage of the present key, if it is still live.
    occupant: Option<KeyUsage>,
}

impl Table {
    /// Creates a table for this many live keys, starting at `now`.
    ///
    /// It has 1.9 slots per key: with four lines to choose from, one insertion in some hundred
    /// thousand then finds no room although the table has some.
    pub(super) fn new(keys: usize, now: Timestamp) -> Self {
        let lines = (keys.min(MAX_KEYS) * 19 / 10).div_ceil(WAYS).max(1);
        let base = whole_second(now.before(Span::from_days(1_461)));
        Self {
            lines: zeroed(lines),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            base,
            earliest: base + Span::from_micros(1),
            latest: base + Span::from_micros(1 << 49),
            floors: (0..lines.div_ceil(LINES_PER_FLOOR)).map(|_| Mutex::default()).collect(),
            floors_until: AtomicU64::new(0),
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
    fn time_of<A: PackedState>(&self, now: Timestamp) -> Timestamp {
        if A::FOLLOWS_WALL { self.clamp_time(now.shifted(self.wall_ahead())) } else { now }
    }

    /// Returns the number of keys that were evicted while they still counted.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Returns the memory in bytes. Only evictions add to it, temporarily.
    pub(super) fn bytes(&self) -> usize {
        let floors: usize = self.floors.iter().map(|it| lock(it).heap_bytes()).sum();
        size_of_val(&*self.lines) + size_of_val(&*self.stripes) + size_of_val(&*self.floors) + floors
    }

    /// Returns the number of slots with a state that counts at `now`. Scans the table.
    pub(super) fn live(&self, now: Timestamp) -> usize {
        let slots = self.lines.iter().flat_map(|line| line.tags.iter().zip(&line.words));
        let spent = |(tag, word): (&AtomicU64, &AtomicU64)| {
            self.spent(tag.load(Ordering::Relaxed), word.load(Ordering::Relaxed), now)
        };
        slots.filter_map(spent).count()
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
            let start = self.start(hash, now);
            let above_floor = matches!(act, Action::Adjust(_)) && start != Start::Fresh;
            if act.can_insert() || above_floor {
                return self.insert(hash, algorithm, now, op);
            }
            let mut state = state_at(start, algorithm, now, time);
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
        // What is carried over was expressed by the clock that never steps.
        let carried = algorithm.in_own_time(carried, now, time);
        let start = self.start(hash, now);
        let mut state = match start {
            Start::Fresh => carried,
            start => {
                let units = algorithm.used(&carried, time);
                let until = algorithm.expires_at(&carried).shifted(now.ahead_of(time));
                let floor = Floor::new(kind_of(hash), units, until);
                state_at(start.above(floor, now), algorithm, now, time)
            }
        };
        let verdict = act.on(algorithm, &mut state, time);
        // A closed floor says nothing of this key: its usage is carried over when that has ended.
        if start == Start::Closed && !matches!(act, Action::Adjust(_)) {
            return algorithm.describe(&state, verdict, time);
        }
        // One that says nothing needs no room.
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

    /// One key in ten lives in its second line.
    #[inline(never)]
    fn pay_second(&self, hash: u64, charge: Charge) -> Option<(u64, bool)> {
        self.lines[self.second(hash)].pay(hash, charge)
    }

    /// Returns the arrival time of a known key's bucket of whole ticks, as [`pay`](Self::pay) would
    /// find it.
    #[inline(always)]
    pub(super) fn tat(&self, hash: u64) -> Option<Timestamp> {
        let tat_in = |line: usize| {
            self.lines[line].find(hash, |slot, tag| {
                let word = slot.load(Ordering::Acquire);
                word::belongs(word, tag).then(|| word::tat(word, self.base))
            })
        };
        tat_in(self.first(hash)).or_else(|| tat_in(self.second(hash)))
    }

    /// Returns the state of a key, if it has one.
    pub(super) fn read<A: PackedState>(&self, hash: u64, algorithm: &A) -> Option<A::State> {
        let look = |_: &mut A::State| Verdict::admitted(0);
        let mut lines = self.lines_of(hash).into_iter();
        lines.find_map(|line| Some(self.update_in(&self.lines[line], hash, algorithm, look)?.0))
    }

    /// Where a key starts that is in none of its lines.
    fn start(&self, hash: u64, now: Timestamp) -> Start {
        // Acquire: as for the slot that the key was not found in.
        if self.floors_until.load(Ordering::Acquire) <= now.as_micros() {
            return Start::Fresh;
        }
        let kind = kind_of(hash);
        self.lines_of(hash).into_iter().fold(Start::Fresh, |start, line| {
            start.or(lock(&self.floors[line / LINES_PER_FLOOR]).start(kind, now), now)
        })
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
            let evicted = self.start(hash, now) != Start::Fresh;
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
        let time = self.time_of::<A>(now);
        let state = self.read(hash, algorithm).or_else(|| match self.start(hash, now) {
            Start::Fresh => None,
            start => Some(state_at(start, algorithm, now, time)),
        })?;
        Some(A::shifted(state, now.ahead_of(time)))
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

    /// Stores a state for a key, in place of its present one.
    pub(super) fn file<A: PackedState>(&self, hash: u64, algorithm: &A, state: A::State, now: Timestamp) {
        let _inserting = lock(self.stripe(hash));
        self.put(hash, algorithm, state, now);
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
            let needs_room =
                algorithm.expires_at(&state) > self.time_of::<A>(now) || vacancy.occupant.is_none();
            if state == start || !needs_room || self.claim(&vacancy, hash, algorithm, state, now) {
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
            if self.vacancy(hash, now).is_some_and(|it| self.claim(&it, hash, algorithm, state, now)) {
                return;
            }
            pause();
        }
    }

    /// Takes a slot over. Returns false if another thread was faster.
    fn claim<A: PackedState>(
        &self,
        vacancy: &Vacancy<'_>,
        hash: u64,
        algorithm: &A,
        state: A::State,
        now: Timestamp,
    ) -> bool {
        if let Some(occupant) = vacancy.occupant {
            // Before the key can be missed. If the key stays, the floor is higher than necessary.
            lock(&self.floors[vacancy.line_index / LINES_PER_FLOOR]).raise(occupant.floor, now);
            self.floors_until.fetch_max(occupant.floor.until().as_micros(), Ordering::AcqRel);
        }
        let (slot, word) = (&vacancy.line.tags[vacancy.way], &vacancy.line.words[vacancy.way]);
        if swap(word, vacancy.seen, CLAIMED).is_err() {
            return false;
        }
        let generation = ((slot.load(Ordering::Relaxed) & 0xf) + 1) % GENERATIONS;
        let tag = tag_of(hash) << 16 | algorithm.class().in_tag() | generation;
        // Release, both: a thread that sees the tag sees the slot claimed, and a thread that sees
        // the state sees the tag.
        slot.store(tag, Ordering::Release);
        word.store(algorithm.pack(state, tag, self.base), Ordering::Release);
        if vacancy.occupant.is_some() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Returns the lock that serializes the insertion of this key.
    fn stripe(&self, hash: u64) -> &Mutex<()> {
        &self.stripes[hash as usize % self.stripes.len()]
    }

    /// The state that a newcomer starts from in this slot: at the floor, and not below a
    /// occupant of its own rule.
    fn start_in<A: PackedState>(
        &self,
        vacancy: &Vacancy<'_>,
        hash: u64,
        algorithm: &A,
        now: Timestamp,
    ) -> A::State {
        let start = self.start(hash, now);
        let occupant = vacancy.occupant.filter(|it| it.floor.kind() == kind_of(hash));
        let start = occupant.map_or(start, |it| start.above(it.floor, now));
        state_at(start, algorithm, now, self.time_of::<A>(now))
    }

    /// Returns the best slot for a new key: a free slot in the first line while that has room to
    /// spare, else in the emptier of the first two, else in the others; if no slot is free, the
    /// slot whose key has the smallest worth.
    fn vacancy(&self, hash: u64, now: Timestamp) -> Option<Vacancy<'_>> {
        let [first, second, third, fourth] = self.lines_of(hash).map(|line| self.scan_line(line, now));
        if first.free >= 2 || (first.free > 0 && first.free >= second.free) {
            return first.vacancy;
        }
        if second.free > 0 {
            return second.vacancy;
        }
        let all = [third.vacancy, fourth.vacancy, first.vacancy, second.vacancy];
        all.into_iter().flatten().min_by_key(|vacancy| worth(vacancy.occupant))
    }

    fn scan_line(&self, line_index: usize, now: Timestamp) -> LineScan<'_> {
        let line = &self.lines[line_index];
        let mut scan = LineScan { free: 0, vacancy: None };
        for way in 0..WAYS {
            let seen = line.words[way].load(Ordering::Acquire);
            if seen == CLAIMED {
                continue;
            }
            let occupant = self.spent(line.tags[way].load(Ordering::Relaxed), seen, now);
            scan.free += usize::from(occupant.is_none());
            let better = scan.vacancy.as_ref().is_none_or(|best| worth(occupant) < worth(best.occupant));
            if better {
                scan.vacancy = Some(Vacancy { line, line_index, way, seen, occupant });
            }
        }
        scan
    }

    /// What the key of a slot has spent, if that still counts.
    fn spent(&self, tag: u64, word: u64, now: Timestamp) -> Option<KeyUsage> {
        Class::of_tag(tag).spent(kind_of(hash_of(tag)), word, self.base, now, self.wall_ahead())
    }

    fn lines_of(&self, hash: u64) -> [usize; 4] {
        let [third, fourth] = self.overflow(hash);
        [self.first(hash), self.second(hash), third, fourth]
    }

    #[inline]
    fn first(&self, hash: u64) -> usize {
        self.index(hash)
    }

    #[inline]
    fn second(&self, hash: u64) -> usize {
        self.index(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the lines for the few keys that found the first two full.
    fn overflow(&self, hash: u64) -> [usize; 2] {
        [0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f].map(|odd| self.index(hash.wrapping_mul(odd)))
    }

    /// Spreads a hash over the lines by its high bits; the tag uses the low bits.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }
}

struct LineScan<'t> {
    free: usize,
    vacancy: Option<Vacancy<'t>>,
}

/// The sort key of present keys: empty slots first.
fn worth(occupant: Option<KeyUsage>) -> Option<u64> {
    occupant.map(|spent| spent.worth)
}

/// Returns the state of a key with this start. Floors are in monotonic time, the state is in
/// `time`.
fn state_at<A: PackedState>(start: Start, algorithm: &A, now: Timestamp, time: Timestamp) -> A::State {
    let (units, until) = start.spent(algorithm.capacity(), algorithm.period(), now);
    algorithm.spent_until(units, until.shifted(time.ahead_of(now)), time)
}

const fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.as_micros() / 1_000_000)
}
