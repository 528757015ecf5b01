//! The table of states that do not fit a word: logs, sliding windows, leases, and
//! rates with an unusually fine grain.
//!
//! Keys fall into sets; a set is a short list behind a lock, held for one step.
//! Bounded like the table of words, and as strict when full: the key gives way
//! whose forgetting gives away the least, and the newcomer starts from its share.
//! Leases are never given away: where they fill a set, a newcomer waits.

use std::sync::OnceLock;

use tollgate_core::{
    Adjustment, Demand, FixedWindowState, Outcome, Overdraft, Quota, Span, State, Timestamp, Verdict,
};

use super::act::Act;
use super::past::Past;
use super::sync::{AtomicU64, Mutex, Ordering, lock};

/// Most keys a set may hold. With half of that on average, one key in some
/// three hundred finds its set full while the table as a whole is not.
const WAYS: usize = 16;

/// Sets for more keys than this are not made.
const MOST_KEYS: usize = 1 << 28;

/// A whole quota, as shares of it are counted.
const WHOLE: u64 = 1 << 16;

/// How finely a share fades, in microseconds: with a life of nine years in 32 bits, an entry
/// takes no more than a cache line.
const MOMENT: u64 = 1 << 16;

/// So many places a set gets at a time. Sets are short and there are many: doubling would
/// leave a third of all places empty.
const ROOM: usize = 2;

/// States by hash.
pub(super) struct WideTable {
    /// Made when the first key comes: a store without such rules pays nothing.
    sets: OnceLock<Box<[Set]>>,
    count: usize,
    evictions: AtomicU64,
}

/// An instant of the clock that never steps, and how far the wall clock is ahead of the
/// states in question: not at all, unless those follow it.
#[derive(Clone, Copy)]
pub(super) struct Instant {
    pub(super) now: Timestamp,
    pub(super) ahead: i64,
}

impl Instant {
    /// The time that the states are in.
    fn time(self) -> Timestamp {
        self.now.shifted(self.ahead)
    }
}

type Set = Mutex<Vec<Entry>>;

struct Entry {
    /// Both hashes of the key: the key itself is not kept.
    key: [u64; 2],
    state: State,
    forgettable: Timestamp,
    /// How much of the quota was spent when last written, in `WHOLE`ths, rounded up.
    spent: u32,
    /// How long before it is forgotten that was, in `MOMENT`s, rounded up.
    life: u32,
}

impl WideTable {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            sets: OnceLock::new(),
            count: keys.min(MOST_KEYS).div_ceil(WAYS / 2).max(1),
            evictions: AtomicU64::new(0),
        }
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// How many keys are kept that count at `now`. Walks the table.
    pub(super) fn live(&self, now: Timestamp) -> usize {
        self.made().iter().map(|set| lock(set).iter().filter(|it| it.forgettable > now).count()).sum()
    }

    /// What the table occupies, with what its states hold on the side.
    pub(super) fn bytes(&self) -> usize {
        let held = self.made().iter().map(|set| {
            let set = lock(set);
            let aside: usize = set.iter().map(|entry| entry.state.bytes_aside()).sum();
            set.capacity() * size_of::<Entry>() + aside
        });
        size_of_val(self.made()) + held.sum::<usize>()
    }

    fn made(&self) -> &[Set] {
        self.sets.get().map_or(&[], |sets| sets)
    }

    fn set(&self, key: [u64; 2]) -> &Set {
        let sets = self.sets.get_or_init(|| (0..self.count).map(|_| Mutex::new(Vec::new())).collect());
        &sets[((u128::from(key[0]) * sets.len() as u128) >> 64) as usize]
    }

    /// A key's state, if it has one.
    pub(super) fn read(&self, key: [u64; 2]) -> Option<State> {
        lock(self.set(key)).iter().find(|entry| entry.key == key).map(|entry| entry.state.clone())
    }

    /// Changes a key's state if it still counts. Returns when it will not.
    pub(super) fn amend(
        &self,
        key: [u64; 2],
        quota: &Quota,
        adjustment: Adjustment,
        at: Instant,
    ) -> Option<Timestamp> {
        let mut set = lock(self.set(key));
        let entry = set.iter_mut().find(|entry| entry.key == key && entry.forgettable > at.now)?;
        quota.adjust(&mut entry.state, adjustment, at.time());
        entry.note(quota, at);
        Some(entry.forgettable)
    }

    /// Does `act` to a key's state, atomically.
    pub(super) fn run<P: Past>(
        &self,
        key: [u64; 2],
        quota: &Quota,
        act: Act,
        at: Instant,
        past: &P,
    ) -> Outcome {
        if P::EXISTS
            && let Some(outcome) = self.carry(key, quota, act, at, past)
        {
            return outcome;
        }
        let (bound, now, time) = (past.bound(), at.now, at.time());
        let mut set = lock(self.set(key));
        let found = set.iter().position(|entry| entry.key == key);
        if let Some(index) = found {
            let entry = &mut set[index];
            if let Some(bound) = bound.filter(|it| quota.forgettable_at(it) < entry.forgettable) {
                entry.state = bound;
            }
            let verdict = act.on_any(quota, &mut entry.state, time);
            if !matches!(act, Act::Look(_)) {
                entry.note(quota, at);
            }
            return quota.describe(&entry.state, verdict, time);
        }
        let place = place(&set, now);
        let start = match place {
            Place::Of(index) if act.can_insert() => share(quota, set[index].spent_at(now), time),
            Place::Full(wait) if act.can_insert() => return full(quota, wait, time),
            _ => quota.fresh(),
        };
        let mut state = start.clone();
        let verdict = act.on_any(quota, &mut state, time);
        let outcome = quota.describe(&state, verdict, time);
        if state == start {
            return outcome;
        }
        match self.file(&mut set, place, Entry::new(key, state, quota, at)) {
            Ok(()) => outcome,
            Err(wait) => full(quota, wait, time),
        }
    }

    /// The same for a key that has spent under a rule which the present one has
    /// replaced, and not yet under this one: it starts from that, and that is kept also
    /// if the request is refused or only looks. `None`: there is nothing to carry over.
    #[cold]
    fn carry(
        &self,
        key: [u64; 2],
        quota: &Quota,
        act: Act,
        at: Instant,
        past: &impl Past,
    ) -> Option<Outcome> {
        let (now, time) = (at.now, at.time());
        let counts = |entry: &Entry| entry.key == key && entry.forgettable > now;
        if lock(self.set(key)).iter().any(counts) {
            return None;
        }
        // Read before the set is locked: the past may lie in the same set.
        let start = shifted(past.state()?, at.ahead);
        let mut set = lock(self.set(key));
        let found = set.iter().position(|entry| entry.key == key);
        if found.is_some_and(|index| set[index].forgettable > now) {
            return None;
        }
        let mut state = start.clone();
        let verdict = act.on_any(quota, &mut state, time);
        let outcome = quota.describe(&state, verdict, time);
        let has_changed = state != start;
        let entry = Entry::new(key, state, quota, at);
        // One that says nothing needs no room.
        if entry.forgettable > now {
            let place = found.map_or_else(|| place(&set, now), Place::Forgotten);
            if let Err(wait) = self.file(&mut set, place, entry) {
                // It is not marked as carried over.
                return Some(if has_changed { full(quota, wait, time) } else { outcome });
            }
        }
        drop(set);
        past.carried();
        Some(outcome)
    }

    /// Puts a newcomer into its place; how long to wait if it has none.
    fn file(&self, set: &mut Vec<Entry>, place: Place, entry: Entry) -> Result<(), Span> {
        match place {
            Place::New => {
                if set.len() == set.capacity() {
                    set.reserve_exact(ROOM);
                }
                set.push(entry);
            }
            Place::Forgotten(index) => set[index] = entry,
            Place::Of(index) => {
                set[index] = entry;
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            Place::Full(wait) => return Err(wait),
        }
        Ok(())
    }
}

impl Entry {
    fn new(key: [u64; 2], state: State, quota: &Quota, at: Instant) -> Self {
        let mut entry = Self { key, state, forgettable: at.now, spent: 0, life: 0 };
        entry.note(quota, at);
        entry
    }

    fn note(&mut self, quota: &Quota, at: Instant) {
        self.forgettable = quota.forgettable_at(&self.state).shifted(at.ahead.saturating_neg());
        self.life = self.moments_left(at.now);
        let spent =
            quota.used(&self.state, at.time()).saturating_mul(WHOLE).div_ceil(quota.capacity().max(1));
        self.spent = u32::try_from(spent).unwrap_or(u32::MAX);
    }

    fn moments_left(&self, now: Timestamp) -> u32 {
        let left = self.forgettable.since(now).as_micros().div_ceil(MOMENT);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The share spent, fading evenly from when it was written to when it is forgotten.
    fn spent_at(&self, now: Timestamp) -> u64 {
        let life = self.life.max(1);
        u64::from(self.spent) * u64::from(self.moments_left(now).min(life)) / u64::from(life)
    }
}

impl Entry {
    /// What forgetting it would give away: its share, times how long that counts.
    fn worth(&self, now: Timestamp) -> u64 {
        self.spent_at(now).saturating_mul(self.forgettable.since(now).as_micros())
    }
}

/// Where a newcomer goes.
#[derive(Clone, Copy)]
enum Place {
    New,
    Forgotten(usize),
    /// Instead of a live key.
    Of(usize),
    /// Nowhere, for this long.
    Full(Span),
}

fn place(set: &[Entry], now: Timestamp) -> Place {
    if let Some(index) = set.iter().position(|entry| entry.forgettable <= now) {
        return Place::Forgotten(index);
    }
    if set.len() < WAYS {
        return Place::New;
    }
    let movable = set.iter().enumerate().filter(|(_, entry)| !matches!(entry.state, State::Concurrency(_)));
    match movable.min_by_key(|(_, entry)| entry.worth(now)) {
        Some((index, _)) => Place::Of(index),
        None => Place::Full(set.iter().map(|entry| entry.forgettable.since(now)).min().unwrap_or(Span::ZERO)),
    }
}

/// A state of a window that follows the wall clock, on a clock that is so far ahead.
pub(super) fn shifted(state: State, by: i64) -> State {
    match state {
        State::FixedWindow(it) => State::FixedWindow(FixedWindowState { end: it.end.shifted(by), ..it }),
        other => other,
    }
}

/// A state that has spent this many `WHOLE`ths of its quota.
fn share(quota: &Quota, spent: u64, now: Timestamp) -> State {
    let mut state = quota.fresh();
    let units = quota.capacity().saturating_mul(spent.min(WHOLE)) / WHOLE;
    quota.adjust(&mut state, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
    state
}

/// What a newcomer hears when leases fill its set.
fn full(quota: &Quota, wait: Span, now: Timestamp) -> Outcome {
    let fresh = quota.step(&mut quota.fresh(), Demand::Exactly(0), now);
    Outcome { verdict: Verdict::Refused { retry_after: wait }, remaining: 0, ..fresh }
}
