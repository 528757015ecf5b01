//! The table of one-word states: bounded, self-cleaning, lock-free for known keys.
//!
//! A cache line holds four slots. A slot is a tag word (48 bits of the key's
//! hash, its quota's size class, a generation) and a state word. A key has four
//! lines it may live in, nearly always the first. The hot path loads a tag,
//! loads a state, steps it, and swaps it in; nothing is locked and a refusal
//! writes nothing.
//!
//! *Self-cleaning.* A state that says no more than "never seen" is free space;
//! nobody sweeps.
//!
//! *Bounded, and strict when full.* If all sixteen slots are live, the key gives
//! way whose forgetting would give away the least (the share it has spent, times
//! how long that still counts), and the newcomer starts from that share. So a
//! flood of new keys makes the table stricter to new keys, and a key that has
//! much to gain from being forgotten gives way last.
//!
//! *Who owns a slot.* A slot changes hands in three steps: its state word is
//! swapped for `CLAIMED`, the tag is written with a new generation, the state is
//! written with the same. Whoever read the old tag finds a word of another
//! generation, or its swap fails; either way it looks again. Two threads that
//! insert the same key would give it two allowances, so insertion (and only
//! that) holds one of a few locks, chosen by the key.
//!
//! Held by `interleavings` (every order of events in small cases),
//! `tests/threads.rs` and `tests/hostile.rs` (ten million keys).

use tollgate_core::{Adjustment, Outcome, Overdraft, Span, TickBucket, Timestamp, Verdict};

use super::act::Act;
use super::line::{Charge, Line, WAYS, prefetch, swap, tag_of, zeroed};
use super::past::{NoPast, Past};
use super::sync::{AtomicU64, Mutex, Ordering, lock, pause};
use super::word::{self, CLAIMED, Class, GENERATIONS, Packed, Spent};

const STRIPES: usize = if cfg!(loom) { 2 } else { 256 };

/// Thirty gigabytes of them. Whoever asks for more gets this.
const MOST_KEYS: usize = 1_000_000_000;

/// States by hash.
pub(super) struct Table {
    lines: Box<[Line]>,
    /// Serialise the insertion of one key.
    stripes: Box<[Mutex<()>]>,
    /// Words count time from here. Far enough back that no step of the clock
    /// reaches it, and a whole second: ends of windows are kept in milliseconds.
    base: Timestamp,
    /// What words can tell.
    earliest: Timestamp,
    latest: Timestamp,
    /// How far the wall clock was last known to be ahead, in two's complement: words of
    /// windows are in its time.
    ahead: AtomicU64,
    evictions: AtomicU64,
}

/// A slot to put a newcomer into.
struct Vacancy<'t> {
    line: &'t Line,
    way: usize,
    seen: u64,
    /// What the present tenant has spent, if it is still live.
    tenant: Option<Spent>,
}

impl Table {
    /// Room for this many live keys, starting at `now`.
    ///
    /// 1.9 slots a key: with four lines to choose from, one insertion in some
    /// hundred thousand then finds no room although the table has some.
    pub(super) fn new(keys: usize, now: Timestamp) -> Self {
        let lines = (keys.min(MOST_KEYS) * 19 / 10).div_ceil(WAYS).max(1);
        let base = whole_second(now.before(Span::from_days(1_461)));
        Self {
            lines: zeroed(lines),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            base,
            earliest: base + Span::from_micros(1),
            latest: base + Span::from_micros(1 << 49),
            ahead: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The wall clock is so many microseconds ahead of the times that are passed here.
    pub(super) fn set_wall_ahead(&self, ahead: i64) {
        // Relaxed: it orders nothing. Written only when it changes, since all read it.
        if self.wall_ahead() != ahead {
            self.ahead.store(ahead.cast_unsigned(), Ordering::Relaxed);
        }
    }

    pub(super) fn wall_ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed).cast_signed()
    }

    /// The time that the states of an algorithm are in.
    fn time_of<A: Packed>(&self, now: Timestamp) -> Timestamp {
        if A::FOLLOWS_WALL { self.tell(now.shifted(self.wall_ahead())) } else { now }
    }

    /// How many keys gave way to others while they still counted.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// What the table occupies, whatever is in it.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.stripes)
    }

    /// How many slots hold a state that counts at `now`. Walks the table.
    pub(super) fn live(&self, now: Timestamp) -> usize {
        let slots = self.lines.iter().flat_map(|line| line.tags.iter().zip(&line.words));
        let spent = |(tag, word): (&AtomicU64, &AtomicU64)| {
            let class = Class::of_tag(tag.load(Ordering::Relaxed));
            class.spent(word.load(Ordering::Relaxed), self.base, now, self.wall_ahead())
        };
        slots.filter_map(spent).count()
    }

    /// The time, within what words can tell: after "never", and early enough that
    /// the longest debt still fits.
    #[inline(always)]
    pub(super) fn tell(&self, now: Timestamp) -> Timestamp {
        now.clamp(self.earliest, self.latest)
    }

    /// Asks the processor to fetch the line a key most likely lives in.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.lines[self.first(hash)]);
    }

    /// Does `act` to a key's state, atomically. What it leaves unchanged is not written.
    pub(super) fn run<A: Packed, P: Past>(
        &self,
        hash: u64,
        algorithm: &A,
        act: Act,
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
        let (state, verdict) = if act.can_insert() {
            self.insert(hash, algorithm, now, op)
        } else {
            let mut lines = self.overflow(hash).into_iter();
            let found = lines.find_map(|line| self.update_in(&self.lines[line], hash, algorithm, &mut op));
            found.unwrap_or_else(|| {
                let mut state = algorithm.fresh();
                let verdict = op(&mut state);
                (state, verdict)
            })
        };
        algorithm.describe(&state, verdict, time)
    }

    /// The same for a rule that has replaced another. A key whose state here says
    /// nothing may have spent under the other: then it starts from that, and that is
    /// kept also if the request is refused or only looks.
    #[cold]
    fn run_after_change<A: Packed>(
        &self,
        hash: u64,
        algorithm: &A,
        act: Act,
        now: Timestamp,
        past: &impl Past,
    ) -> Outcome {
        let time = self.time_of::<A>(now);
        let inserting = lock(self.stripe(hash));
        let known = self.read(hash, algorithm).is_some_and(|state| algorithm.forgettable_at(&state) > time);
        let carried = if known { None } else { past.state().and_then(A::from_state) };
        let Some(mut state) = carried else {
            drop(inserting);
            if let Some(bound) = past.bound().and_then(A::from_state) {
                self.relieve(hash, algorithm, bound);
            }
            return self.run(hash, algorithm, act, now, &NoPast);
        };
        // What is carried over was expressed by the clock that never steps.
        state = A::shifted(state, time.ahead_of(now));
        let verdict = act.on(algorithm, &mut state, time);
        // One that says nothing needs no room.
        if algorithm.forgettable_at(&state) > time {
            self.put(hash, algorithm, state, now);
        }
        past.carried();
        algorithm.describe(&state, verdict, time)
    }

    /// The hot path: a known key pays out of a bucket of whole ticks. Answers
    /// the arrival time after that and whether it was paid; `None` for a key
    /// that is not in either of its usual lines.
    ///
    /// Between reading a word and swapping it, another core may take the line
    /// away, so all that can be computed is computed before ([`Charge`]).
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

    /// The arrival time of a known key's bucket of whole ticks: what
    /// [`pay`](Self::pay) would find.
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

    /// A key's state, if it has one.
    pub(super) fn read<A: Packed>(&self, hash: u64, algorithm: &A) -> Option<A::State> {
        let look = |_: &mut A::State| Verdict::admitted(0);
        let mut lines = self.lines_of(hash).into_iter();
        lines.find_map(|line| Some(self.update_in(&self.lines[line], hash, algorithm, look)?.0))
    }

    /// Runs `op` on a key's state if the key is in this line. `op` may run
    /// several times; the last run counts.
    #[inline]
    fn update_in<A: Packed>(
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

    /// Changes a key's state if it still counts. Returns the new state.
    pub(super) fn amend<A: Packed>(
        &self,
        hash: u64,
        algorithm: &A,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<A::State> {
        let time = self.time_of::<A>(now);
        let amend = |state: &mut A::State| {
            if algorithm.forgettable_at(state) > time {
                algorithm.adjust(state, adjustment, time);
            }
            Verdict::admitted(0)
        };
        let mut lines = self.lines_of(hash).into_iter();
        let found = lines.find_map(|line| self.update_in(&self.lines[line], hash, algorithm, amend));
        let found = found.map(|(state, _)| state).filter(|state| algorithm.forgettable_at(state) > time);
        found.map(|state| A::shifted(state, now.ahead_of(time)))
    }

    /// A key's state, as the clock that never steps would have it.
    pub(super) fn read_steady<A: Packed>(
        &self,
        hash: u64,
        algorithm: &A,
        now: Timestamp,
    ) -> Option<A::State> {
        let state = self.read(hash, algorithm)?;
        Some(A::shifted(state, now.ahead_of(self.time_of::<A>(now))))
    }

    /// Replaces a key's state by one that is forgotten sooner.
    fn relieve<A: Packed>(&self, hash: u64, algorithm: &A, bound: A::State) {
        let relieve = |state: &mut A::State| {
            if algorithm.forgettable_at(state) > algorithm.forgettable_at(&bound) {
                *state = bound;
            }
            Verdict::admitted(0)
        };
        let mut lines = self.lines_of(hash).into_iter();
        lines.any(|line| self.update_in(&self.lines[line], hash, algorithm, relieve).is_some());
    }

    /// Files a state for a key, in place of the one it has.
    pub(super) fn file<A: Packed>(&self, hash: u64, algorithm: &A, state: A::State, now: Timestamp) {
        let _inserting = lock(self.stripe(hash));
        self.put(hash, algorithm, state, now);
    }

    /// Runs `op` on a key that was not found a moment ago.
    #[cold]
    fn insert<A: Packed>(
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
                pause(); // every slot is changing hands
                continue;
            };
            let start = self.inherit(algorithm, &vacancy, now);
            let mut state = start;
            let verdict = op(&mut state);
            if state == start || self.claim(&vacancy, hash, algorithm, state) {
                return (state, verdict);
            }
            pause(); // somebody else was faster
        }
    }

    /// Files a state, whatever was there. The caller holds the key's stripe.
    fn put<A: Packed>(&self, hash: u64, algorithm: &A, state: A::State, now: Timestamp) {
        let set = |slot: &mut A::State| {
            *slot = state;
            Verdict::admitted(0)
        };
        loop {
            let mut lines = self.lines_of(hash).into_iter();
            if lines.any(|line| self.update_in(&self.lines[line], hash, algorithm, set).is_some()) {
                return;
            }
            if self.vacancy(hash, now).is_some_and(|it| self.claim(&it, hash, algorithm, state)) {
                return;
            }
            pause();
        }
    }

    /// Takes a slot over; false if somebody else was faster.
    fn claim<A: Packed>(&self, vacancy: &Vacancy<'_>, hash: u64, algorithm: &A, state: A::State) -> bool {
        let (slot, word) = (&vacancy.line.tags[vacancy.way], &vacancy.line.words[vacancy.way]);
        if swap(word, vacancy.seen, CLAIMED).is_err() {
            return false;
        }
        let generation = ((slot.load(Ordering::Relaxed) & 0xf) + 1) % GENERATIONS;
        let tag = tag_of(hash) << 16 | algorithm.class().in_tag() | generation;
        // Release, both: whoever sees the tag sees the slot claimed, and
        // whoever sees the state sees the tag.
        slot.store(tag, Ordering::Release);
        word.store(algorithm.pack(state, tag, self.base), Ordering::Release);
        if vacancy.tenant.is_some() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// What serialises the insertion of this key.
    fn stripe(&self, hash: u64) -> &Mutex<()> {
        &self.stripes[hash as usize % self.stripes.len()]
    }

    /// Where a newcomer starts: fresh, or from the share of whom it displaces.
    fn inherit<A: Packed>(&self, algorithm: &A, vacancy: &Vacancy<'_>, now: Timestamp) -> A::State {
        match vacancy.tenant {
            None => algorithm.fresh(),
            // Of the same kind and size: the very state, to the microsecond.
            Some(spent) if spent.class == algorithm.class() => algorithm.unpack(vacancy.seen, self.base),
            Some(spent) => {
                let units = algorithm.capacity().saturating_mul(spent.share.min(64)) / 64;
                let mut state = algorithm.fresh();
                let charge = Adjustment::Charge { units, overdraft: Overdraft::None };
                algorithm.adjust(&mut state, charge, self.time_of::<A>(now));
                state
            }
        }
    }

    /// The best slot for a newcomer: free, in the first line while that has
    /// room to spare, else in the emptier of the first two, else in the others;
    /// if none is free, the one whose tenant is worth the least.
    fn vacancy(&self, hash: u64, now: Timestamp) -> Option<Vacancy<'_>> {
        let [first, second, third, fourth] =
            self.lines_of(hash).map(|line| self.survey(&self.lines[line], now));
        if first.free >= 2 || (first.free > 0 && first.free >= second.free) {
            return first.vacancy;
        }
        if second.free > 0 {
            return second.vacancy;
        }
        let all = [third.vacancy, fourth.vacancy, first.vacancy, second.vacancy];
        all.into_iter().flatten().min_by_key(|vacancy| worth(vacancy.tenant))
    }

    fn survey<'t>(&self, line: &'t Line, now: Timestamp) -> Survey<'t> {
        let mut survey = Survey { free: 0, vacancy: None };
        for way in 0..WAYS {
            let seen = line.words[way].load(Ordering::Acquire);
            if seen == CLAIMED {
                continue;
            }
            let class = Class::of_tag(line.tags[way].load(Ordering::Relaxed));
            let tenant = class.spent(seen, self.base, now, self.wall_ahead());
            survey.free += usize::from(tenant.is_none());
            let better = survey.vacancy.as_ref().is_none_or(|best| worth(tenant) < worth(best.tenant));
            if better {
                survey.vacancy = Some(Vacancy { line, way, seen, tenant });
            }
        }
        survey
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

    /// Lines for the few keys that found the first two full.
    fn overflow(&self, hash: u64) -> [usize; 2] {
        [0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f].map(|odd| self.index(hash.wrapping_mul(odd)))
    }

    /// Spreads a hash over the lines by its high bits; the tag uses the low ones.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }
}

struct Survey<'t> {
    free: usize,
    vacancy: Option<Vacancy<'t>>,
}

/// Orders tenants: none before any.
fn worth(tenant: Option<Spent>) -> Option<u64> {
    tenant.map(|spent| spent.worth)
}

const fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.as_micros() / 1_000_000)
}
