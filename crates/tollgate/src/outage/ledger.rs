//! What was admitted while the store gave no answers, until the store knows.
//!
//! For each rule and key it holds a state under the rule as the policy has it,
//! not under this node's share. So what time has given back by the end of the
//! outage is not charged: an entry is worth what it would still count.
//!
//! Only what the store does not keep is written down: what was not sent, what was
//! turned down, and what timed out, for that is taken back should it have landed. A
//! request whose own call broke off may have been charged for good: charging it again
//! could take from a key what it never spent, and a limit that refuses too much is worse
//! than one that forgets a call in doubt. Such a call counts as lost.
//!
//! For the same reason an entry is taken out before it is charged, not after: a
//! process or a future that ends in between has lost it, and never charges twice.
//!
//! Slots are not kept: they are held, and end by themselves.
//!
//! Not here: charging (`Limiter::reconcile`).
//!
//! A pass over the entries tries each once: one that fails is put back, and the pass goes
//! on with the others. Each pass begins elsewhere, so that some which always fail do not
//! stand in the way of the rest.
//!
//! Invariant: at most so many entries; what finds no room is counted as lost.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::{Adjustment, Overdraft, RuleId, Span, State, Timestamp};
use tollgate_policy::Key;

use super::share::Share;

/// Locks that requests share: so that they seldom meet.
const SHARDS: usize = 16;
/// A full shard is searched for entries that count no more this often at most.
const SWEEP_INTERVAL: Span = Span::from_secs(1);

/// Whose entry.
pub(crate) type Name = (RuleId, Key);

/// What was admitted while the store gave no answers.
#[derive(Debug)]
pub(crate) struct Ledger {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// In each shard.
    most: usize,
    keys: AtomicUsize,
    /// Tells what was written before an entry was taken out from what came after.
    writings: AtomicU64,
    passes: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Name, Entry>,
    swept: Timestamp,
}

/// What one key is owed to the store.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) share: Arc<Share>,
    state: State,
    /// Its first writing.
    born: u64,
    /// The last pass that tried to charge it, if one has.
    tried: u64,
}

/// One walk over all entries. The first is 1.
#[derive(Debug)]
pub(crate) struct Pass {
    number: u64,
    shards_left: usize,
}

impl Entry {
    /// What still counts.
    pub(crate) fn used(&self, now: Timestamp) -> u64 {
        self.share.whole.quota.used(&self.state, now)
    }

    /// By the numbers of who adjusts: rules that share their states may have different ones.
    fn adjust(&mut self, share: &Share, adjustment: Adjustment, now: Timestamp) {
        share.whole.quota.adjust(&mut self.state, adjustment, now);
    }
}

impl Ledger {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            most: most.div_ceil(SHARDS).max(1),
            keys: AtomicUsize::new(0),
            writings: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// How many keys are in it.
    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// How many charges were lost: no room, or an unknown end.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes down what was admitted. The number of the writing, to correct it by;
    /// `None` if there was no room.
    pub(crate) fn write(&self, share: &Arc<Share>, key: &Key, units: u64, now: Timestamp) -> Option<u64> {
        let name = (share.whole.id, key.clone());
        let mut shard = self.shard(&name);
        if shard.entries.len() >= self.most && !shard.entries.contains_key(&name) {
            self.sweep(&mut shard, now);
            if shard.entries.len() >= self.most {
                drop(shard);
                self.count_lost();
                return None;
            }
        }
        // Under the lock, so that an entry taken out has only earlier writings in it.
        let writing = self.writings.fetch_add(1, Ordering::Relaxed);
        let entry = match shard.entries.entry(name) {
            Place::Occupied(place) => {
                let entry = place.into_mut();
                // Of rules that share their states, the one that has the most room for debts.
                if share.whole.quota.period() > entry.share.whole.quota.period() {
                    entry.share = Arc::clone(share);
                }
                entry
            }
            Place::Vacant(place) => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                let state = share.whole.quota.fresh();
                place.insert(Entry { share: Arc::clone(share), state, born: writing, tried: 0 })
            }
        };
        entry.adjust(share, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
        Some(writing)
    }

    /// Corrects a writing, if it is still here. Whether it is.
    pub(crate) fn correct(
        &self,
        share: &Share,
        key: &Key,
        writing: u64,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> bool {
        let name = (share.whole.id, key.clone());
        let mut shard = self.shard(&name);
        match shard.entries.get_mut(&name).filter(|entry| entry.born <= writing) {
            Some(entry) => {
                entry.adjust(share, adjustment, now);
                true
            }
            None => false,
        }
    }

    /// Begins a pass.
    pub(crate) fn pass(&self) -> Pass {
        Pass { number: self.passes.fetch_add(1, Ordering::Relaxed) + 1, shards_left: SHARDS }
    }

    /// Names that the pass has not tried yet; none when it has been everywhere.
    pub(crate) fn next(&self, pass: &mut Pass, most: usize) -> Vec<Name> {
        while pass.shards_left > 0 {
            let at = usize::try_from(pass.number % SHARDS as u64).unwrap_or(0) + pass.shards_left;
            let shard = self.shards[at % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
            let untried = shard.entries.iter().filter(|(_, entry)| entry.tried < pass.number);
            let names: Vec<_> = untried.map(|(name, _)| name.clone()).take(most).collect();
            if !names.is_empty() {
                return names;
            }
            pass.shards_left -= 1;
        }
        Vec::new()
    }

    /// Takes an entry out: whoever does owes it to the store.
    pub(crate) fn take(&self, name: &Name) -> Option<Entry> {
        let taken = self.shard(name).entries.remove(name)?;
        self.keys.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// Puts back what the pass could not charge and the store does not keep.
    pub(crate) fn put_back(&self, name: &Name, mut entry: Entry, pass: &Pass, now: Timestamp) {
        entry.tried = entry.tried.max(pass.number);
        let mut shard = self.shard(name);
        match shard.entries.entry(name.clone()) {
            // Others have written meanwhile.
            Place::Occupied(place) => {
                let units = entry.used(now);
                let place = place.into_mut();
                place.adjust(&entry.share, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
                place.born = place.born.min(entry.born);
                place.tried = place.tried.max(entry.tried);
            }
            Place::Vacant(place) => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                place.insert(entry);
            }
        }
    }

    fn sweep(&self, shard: &mut Shard, now: Timestamp) {
        if now.since(shard.swept) < SWEEP_INTERVAL {
            return;
        }
        shard.swept = now;
        let before = shard.entries.len();
        shard.entries.retain(|_, entry| entry.used(now) > 0);
        self.keys.fetch_sub(before - shard.entries.len(), Ordering::Relaxed);
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or(0);
        // A thread that panicked in between left a state that can be read.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
