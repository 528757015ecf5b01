//! The table of states that do not fit a word: logs, sliding windows, leases, and rates with an
//! unusually fine grain.
//!
//! Keys are distributed over sets; a set is a short list behind a lock, held for one step. It is
//! bounded like the table of words, and as strict when full: the evicted key is the one with the
//! smallest spent share of its quota for the shortest time. Its usage raises the floor of the set,
//! from which every key starts that is not in the set. Leases are never evicted: if they fill a
//! set, a new key waits.

use std::sync::OnceLock;

use tollgate_core::{
    Adjustment, Amount, FixedWindowState, Outcome, Quota, RuleId, Span, State, Timestamp, Verdict,
};

use super::action::Action;
use super::floor::{ClockFloors, Floor, SavedFloors, Start};
use super::instant::{ClockKind, Instant};
use super::prior_usage::PriorUsage;
use super::sync::{AtomicU64, Mutex, Ordering, lock};

/// The largest number of keys in a set. With half of that on average, one key in some three hundred
/// finds its set full while the table as a whole is not.
const WAYS: usize = 16;

/// The largest number of keys that sets are created for.
const MAX_KEYS: usize = 1 << 28;

/// The unit of shares: a whole quota. Sixteen of them fit.
const WHOLE_SHARE: u64 = 1 << 12;

/// The number of entries by which a set grows. Sets are short and there are many: doubling would
/// leave a third of all entries empty.
const GROWTH_ENTRIES: usize = 2;

/// States by hash.
pub(super) struct WideTable {
    /// Created with the first key: a store without such rules allocates nothing.
    sets: OnceLock<Box<[Set]>>,
    count: usize,
    evictions: AtomicU64,
}

type Set = Mutex<Members>;

/// The keys of one set.
#[derive(Default)]
struct Members {
    entries: Vec<Entry>,
    floors: ClockFloors,
}

/// A key under a rule.
#[derive(Clone, Copy)]
pub(super) struct WideKey {
    /// Both hashes of the key: the key itself is not kept.
    pub(super) hashes: [u64; 2],
    pub(super) rule: RuleId,
}

struct Entry {
    hashes: [u64; 2],
    state: State,
    /// The time at which the state expires, on its clock.
    forgettable: Timestamp,
    /// The units spent at the last write: an upper bound until the next one.
    units: u32,
    /// The same as a share of the quota, in `WHOLE_SHARE`ths, rounded up.
    share: u16,
    /// The kind whose floor it raises when it is evicted.
    kind: u16,
}

/// An entry, for a snapshot.
pub(super) struct SavedEntry {
    pub(super) hashes: [u64; 2],
    pub(super) state: State,
    /// In microseconds.
    pub(super) forgettable: u64,
    pub(super) units: u32,
    pub(super) share: u16,
    pub(super) kind: u16,
}

impl WideTable {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            sets: OnceLock::new(),
            count: keys.min(MAX_KEYS).div_ceil(WAYS / 2).max(1),
            evictions: AtomicU64::new(0),
        }
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Returns the number of keys that count at this instant. Scans the table.
    pub(super) fn live(&self, at: Instant) -> usize {
        let live = |set: &Set| lock(set).entries.iter().filter(|it| it.counts(at)).count();
        self.made().iter().map(live).sum()
    }

    /// Returns the memory in bytes, including the heap memory of states.
    pub(super) fn bytes(&self) -> usize {
        let held = self.made().iter().map(|set| {
            let set = lock(set);
            let aside: usize = set.entries.iter().map(|entry| entry.state.heap_bytes()).sum();
            set.entries.capacity() * size_of::<Entry>() + aside + set.floors.heap_bytes()
        });
        size_of_val(self.made()) + held.sum::<usize>()
    }

    /// Returns the number of sets.
    pub(super) const fn set_count(&self) -> usize {
        self.count
    }

    /// Sets the number of evictions, when a store continues from a snapshot.
    pub(super) fn set_evictions(&self, evictions: u64) {
        self.evictions.store(evictions, Ordering::Relaxed);
    }

    /// Returns the states and the floors of a set, without slots. `None` if the table has no keys.
    pub(super) fn saved(&self, set: usize) -> Option<(Vec<SavedEntry>, Vec<SavedFloors>)> {
        let set = lock(self.made().get(set)?);
        let kept = set.entries.iter().filter(|it| !matches!(it.state, State::Concurrency(_)));
        let save = |it: &Entry| SavedEntry {
            hashes: it.hashes,
            state: it.state.clone(),
            forgettable: it.forgettable.as_micros(),
            units: it.units,
            share: it.share,
            kind: it.kind,
        };
        Some((kept.map(save).collect(), set.floors.saved()))
    }

    /// Adds an entry of a snapshot to a set. Returns `None` if the set is full or does not exist.
    pub(super) fn restore(&self, set: usize, entry: SavedEntry) -> Option<()> {
        let SavedEntry { hashes, state, forgettable, units, share, kind } = entry;
        let mut set = lock(self.all().get(set)?);
        if set.entries.len() >= WAYS {
            return None;
        }
        let forgettable = Timestamp::from_micros(forgettable);
        set.entries.push(Entry { hashes, state, forgettable, units, share, kind });
        Some(())
    }

    /// Sets floors of a set from a snapshot. Returns `None` if there is no such set or list.
    pub(super) fn restore_floors(&self, set: usize, floors: &SavedFloors) -> Option<()> {
        lock(self.all().get(set)?).floors.restore(floors).map(drop)
    }

    fn all(&self) -> &[Set] {
        self.sets.get_or_init(|| (0..self.count).map(|_| Set::default()).collect())
    }

    fn made(&self) -> &[Set] {
        self.sets.get().map_or(&[], |sets| sets)
    }

    fn set(&self, key: WideKey) -> &Set {
        let sets = self.all();
        &sets[((u128::from(key.hashes[0]) * sets.len() as u128) >> 64) as usize]
    }

    /// Returns the state of a key in monotonic time; if the key may have been evicted, returns the
    /// floor.
    pub(super) fn read_steady(&self, key: WideKey, quota: &Quota, at: Instant) -> Option<State> {
        let set = lock(self.set(key));
        let state = match set.position(key) {
            Some(index) => set.entries[index].state.clone(),
            None => match set.floor(key.rule, quota, at) {
                Start::Fresh => return None,
                start => state_at(start, quota, at),
            },
        };
        Some(shifted(state, at.ahead(ClockKind::of(quota)).saturating_neg()))
    }

    /// Returns a key's state only if the table holds it, in the time of the clock that never steps.
    pub(super) fn read_stored(&self, key: WideKey, at: Instant) -> Option<State> {
        let set = lock(self.set(key));
        let entry = &set.entries[set.position(key)?];
        Some(shifted(entry.state.clone(), at.ahead(entry.clock()).saturating_neg()))
    }

    /// Changes a key's state if it still counts; the state of an evicted key starts from its
    /// floor. Returns when it will not count.
    pub(super) fn amend(
        &self,
        key: WideKey,
        quota: &Quota,
        adjustment: Adjustment,
        at: Instant,
    ) -> Option<Timestamp> {
        let mut set = lock(self.set(key));
        let Some(index) = set.position(key) else {
            return self.amend_evicted(&mut set, key, quota, adjustment, at);
        };
        let entry = &mut set.entries[index];
        if !entry.counts(at) {
            return None;
        }
        let time = at.on(entry.clock());
        quota.adjust(&mut entry.state, adjustment, time);
        entry.note(quota, at);
        Some(entry.expires_steady(at))
    }

    /// The same for a key that is not in its set. `None` if the set has no floor for the key, or
    /// no place.
    fn amend_evicted(
        &self,
        set: &mut Members,
        key: WideKey,
        quota: &Quota,
        adjustment: Adjustment,
        at: Instant,
    ) -> Option<Timestamp> {
        if set.floor(key.rule, quota, at) == Start::Fresh {
            return None;
        }
        let place = set.place(at);
        let mut state = state_at(set.start(key.rule, quota, place, at), quota, at);
        quota.adjust(&mut state, adjustment, at.on(ClockKind::of(quota)));
        let entry = Entry::new(key, state, quota, at);
        let ends = entry.expires_steady(at);
        self.file(set, place, entry, at).ok().map(|()| ends)
    }

    /// Does `action` to a key's state, atomically.
    pub(super) fn run<P: PriorUsage>(
        &self,
        key: WideKey,
        quota: &Quota,
        act: Action,
        at: Instant,
        past: &P,
    ) -> Outcome {
        if P::EXISTS
            && let Some(outcome) = self.carry(key, quota, act, at, past)
        {
            return outcome;
        }
        let (bound, time) = (past.bound(), at.on(ClockKind::of(quota)));
        let mut set = lock(self.set(key));
        if let Some(index) = set.position(key) {
            let entry = &mut set.entries[index];
            if let Some(bound) = bound.filter(|it| quota.expires_at(it) < entry.forgettable) {
                entry.state = bound;
            }
            let verdict = act.on_any(quota, &mut entry.state, time);
            if !matches!(act, Action::Peek(_)) {
                entry.note(quota, at);
            }
            return quota.describe(&entry.state, verdict, time);
        }
        let place = set.place(at);
        let start = match place {
            Placement::Full(wait) if act.can_insert() => return full(quota, wait, time),
            _ => state_at(set.start(key.rule, quota, place, at), quota, at),
        };
        let mut state = start.clone();
        let verdict = act.on_any(quota, &mut state, time);
        let outcome = quota.describe(&state, verdict, time);
        if state == start {
            return outcome;
        }
        let entry = Entry::new(key, state, quota, at);
        // A key that was reset needs no room. It is stored only where it evicts no other.
        if !entry.counts(at) && matches!(place, Placement::Of(_) | Placement::Full(_)) {
            return outcome;
        }
        match self.file(&mut set, place, entry, at) {
            Ok(()) => outcome,
            Err(wait) => full(quota, wait, time),
        }
    }

    /// Runs `action` on a key that has usage under a replaced rule and none under the present one.
    /// It starts from that usage, which is stored also if the request is refused or is a read.
    /// Returns `None` if there is nothing to carry over.
    #[cold]
    fn carry(
        &self,
        key: WideKey,
        quota: &Quota,
        act: Action,
        at: Instant,
        past: &impl PriorUsage,
    ) -> Option<Outcome> {
        let (now, time) = (at.now, at.on(ClockKind::of(quota)));
        if lock(self.set(key)).counts(key, at) {
            return None;
        }
        // Read before the set is locked: the past may lie in the same set.
        let carried = match (quota, past.state()?) {
            (Quota::FixedWindow(window), State::FixedWindow(state)) => {
                State::FixedWindow(window.realigned(state, now, time))
            }
            (_, other) => other,
        };
        let mut set = lock(self.set(key));
        if set.counts(key, at) {
            return None;
        }
        let found = set.position(key);
        let start = set.above_floor(key, carried, quota, at);
        let mut state = start.clone();
        let verdict = act.on_any(quota, &mut state, time);
        let outcome = quota.describe(&state, verdict, time);
        // A closed floor hides the usage of this key, which is carried over after the floor has ended.
        let is_closed = set.floor(key.rule, quota, at) == Start::Closed;
        if is_closed && !matches!(act, Action::Adjust(_)) {
            return Some(outcome);
        }
        let has_changed = state != start;
        let entry = Entry::new(key, state, quota, at);
        // An expired state needs no room.
        if entry.counts(at) {
            let place = found.map_or_else(|| set.place(at), Placement::Forgotten);
            if let Err(wait) = self.file(&mut set, place, entry, at) {
                // It is not marked as carried over.
                return Some(if has_changed { full(quota, wait, time) } else { outcome });
            }
        }
        drop(set);
        past.carried();
        Some(outcome)
    }

    /// Stores a new key in its place. Returns the time to wait if there is no room.
    fn file(&self, set: &mut Members, place: Placement, entry: Entry, at: Instant) -> Result<(), Span> {
        match place {
            Placement::New => {
                if set.entries.len() == set.entries.capacity() {
                    set.entries.reserve_exact(GROWTH_ENTRIES);
                }
                set.entries.push(entry);
            }
            Placement::Forgotten(index) => set.replace(index, entry, at),
            Placement::Of(index) => {
                set.replace(index, entry, at);
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            Placement::Full(wait) => return Err(wait),
        }
        Ok(())
    }
}

impl Members {
    fn position(&self, key: WideKey) -> Option<usize> {
        self.entries.iter().position(|entry| entry.hashes == key.hashes)
    }

    /// Returns whether the key has a state that still counts.
    fn counts(&self, key: WideKey, at: Instant) -> bool {
        self.position(key).is_some_and(|index| self.entries[index].counts(at))
    }

    /// Replaces an entry. The state of another key raises the floor.
    fn replace(&mut self, index: usize, entry: Entry, at: Instant) {
        let replaced = std::mem::replace(&mut self.entries[index], entry);
        if replaced.hashes != self.entries[index].hashes {
            self.floors.raise(replaced.floor(), replaced.clock(), at.on(replaced.clock()));
        }
    }

    fn place(&self, at: Instant) -> Placement {
        if let Some(index) = self.entries.iter().position(|entry| !entry.counts(at)) {
            return Placement::Forgotten(index);
        }
        if self.entries.len() < WAYS {
            return Placement::New;
        }
        let all = self.entries.iter().enumerate();
        let movable = all.filter(|(_, entry)| !matches!(entry.state, State::Concurrency(_)));
        if let Some((index, _)) = movable.min_by_key(|(_, entry)| entry.worth(at)) {
            return Placement::Of(index);
        }
        let waits = self.entries.iter().map(|entry| entry.left(at));
        Placement::Full(waits.min().unwrap_or(Span::ZERO))
    }

    /// Returns the floor of a rule's keys.
    fn floor(&self, rule: RuleId, quota: &Quota, at: Instant) -> Start {
        let clock = ClockKind::of(quota);
        self.floors.start(kind(rule, clock), clock, at.on(clock))
    }

    /// Returns the start of a key that is not in the set: at the floor, and not below the key of
    /// the same rule whose place it takes. Otherwise each new key would get one unit more than the
    /// floor that the previous one has raised.
    fn start(&self, rule: RuleId, quota: &Quota, place: Placement, at: Instant) -> Start {
        let (start, clock) = (self.floor(rule, quota, at), ClockKind::of(quota));
        match place {
            Placement::Of(index) if self.entries[index].kind == kind(rule, clock) => {
                start.above(self.entries[index].floor(), at.on(clock))
            }
            _ => start,
        }
    }

    /// Returns the prior usage of a key that is not in the set if it is above the floor; else both
    /// combined.
    fn above_floor(&self, key: WideKey, carried: State, quota: &Quota, at: Instant) -> State {
        match self.floor(key.rule, quota, at) {
            Start::Fresh => carried,
            floor => {
                let entry = Entry::new(key, carried, quota, at);
                state_at(floor.above(entry.floor(), at.on(entry.clock())), quota, at)
            }
        }
    }
}

impl Entry {
    fn new(key: WideKey, state: State, quota: &Quota, at: Instant) -> Self {
        let kind = kind(key.rule, ClockKind::of(quota));
        let mut entry = Self { hashes: key.hashes, state, forgettable: at.now, units: 0, share: 0, kind };
        entry.note(quota, at);
        entry
    }

    fn note(&mut self, quota: &Quota, at: Instant) {
        self.forgettable = quota.expires_at(&self.state);
        let used = match &self.state {
            // A window that has closed is open again if the wall clock steps back.
            State::FixedWindow(window) => window.count,
            state => quota.used(state, at.on(self.clock())),
        };
        self.units = u32::try_from(used).unwrap_or(u32::MAX);
        let share = used.saturating_mul(WHOLE_SHARE).div_ceil(quota.capacity().max(1));
        self.share = u16::try_from(share).unwrap_or(u16::MAX);
    }

    /// Returns the clock of the state.
    const fn clock(&self) -> ClockKind {
        if self.kind & 1 == 0 { ClockKind::Monotonic } else { ClockKind::Wall }
    }

    /// Returns whether the state has not expired.
    fn counts(&self, at: Instant) -> bool {
        self.forgettable > at.on(self.clock())
    }

    /// Returns how long the state counts.
    fn left(&self, at: Instant) -> Span {
        self.forgettable.since(at.on(self.clock()))
    }

    /// Returns the time at which the state expires, in monotonic time.
    fn expires_steady(&self, at: Instant) -> Timestamp {
        self.forgettable.shifted(at.ahead(self.clock()).saturating_neg())
    }

    /// Returns the bound that represents the state after its eviction.
    fn floor(&self) -> Floor {
        Floor::new(self.kind, self.units.into(), self.forgettable)
    }

    /// Returns how much stricter its eviction makes the set: its share, times how long that counts.
    fn worth(&self, at: Instant) -> u64 {
        u64::from(self.share).saturating_mul(self.left(at).as_micros())
    }
}

/// Returns the kind of a rule's keys: bits of its id, and the clock of its states.
const fn kind(rule: RuleId, clock: ClockKind) -> u16 {
    (rule.0 as u16) << 1 | clock as u16
}

/// Returns the state of a key with this start.
fn state_at(start: Start, quota: &Quota, at: Instant) -> State {
    let time = at.on(ClockKind::of(quota));
    let (units, until) = start.spent(quota.capacity(), quota.period(), time);
    quota.spent_until(units, until, time)
}

/// The place for a new key.
#[derive(Clone, Copy)]
enum Placement {
    New,
    Forgotten(usize),
    /// In place of a live key.
    Of(usize),
    /// No place for this long.
    Full(Span),
}

/// Shifts a state of a window that follows the wall clock by `by` microseconds.
fn shifted(state: State, by: i64) -> State {
    match state {
        State::FixedWindow(it) => State::FixedWindow(FixedWindowState { end: it.end.shifted(by), ..it }),
        other => other,
    }
}

/// Returns the refusal of a new key whose set is full of leases.
fn full(quota: &Quota, wait: Span, now: Timestamp) -> Outcome {
    let fresh = quota.step(&mut quota.fresh(), Amount::Exactly(0), now);
    Outcome { verdict: Verdict::Refused { retry_after: wait }, remaining: 0, ..fresh }
}
