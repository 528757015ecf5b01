//! Usage admitted during an outage, until it is charged to the store.
//!
//! For each rule and key the ledger holds a state under the rule of the policy, not under this
//! node's share. Usage that has come back by the end of the outage is therefore not charged.
//!
//! Only usage that the store does not have is recorded: requests that were not sent, were rejected,
//! or timed out, since the store compensates those. A request with a broken connection may have
//! been charged: charging it again could take units that the key never spent, and a limit that
//! refuses too much is worse than one that forgets a call in doubt. Such a call counts as lost.
//!
//! For the same reason an entry is removed before it is charged, not after: a process or a future
//! that ends in between has lost it, and never charges twice. A charge with an unknown result becomes a
//! correction with an id (`corrections`).
//!
//! Slots are not recorded: they are held, and their leases expire.
//!
//! Charging is done by `Limiter::reconcile`.
//!
//! A pass over the entries tries each once: one that fails is put back, and the pass continues with
//! the others. Each pass begins at another place, so that entries that always fail do not block the
//! rest.
//!
//! Invariant: the number of entries is bounded; usage that finds no room is counted as lost.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::{Adjustment, ChargeTimes, Overdraft, Quota, RuleId, Span, State, Timestamp};
use tollgate_policy::Key;

use super::share::Share;
use crate::randomness::{HashKeys, Randomness};

/// The number of locks, so that requests rarely contend.
const SHARDS: usize = 16;
/// The minimum time between two searches of a full shard for expired entries.
const SWEEP_INTERVAL: Span = Span::from_secs(1);

/// The purpose of the hash keys of a ledger.
const LEDGER_KEYS: u64 = 2;

/// The rule and key of an entry.
pub(crate) type Name = (RuleId, Key);

/// Usage admitted while the store gave no answers.
#[derive(Debug)]
pub(crate) struct Ledger {
    shards: Vec<Mutex<Shard>>,
    hasher: HashKeys,
    /// The largest number of entries per shard.
    max_shard_entries: usize,
    keys: AtomicUsize,
    /// Numbers records, to distinguish those before the removal of an entry from later ones.
    next_record_id: AtomicU64,
    passes: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    entries: HashMap<Name, Entry, HashKeys>,
    swept: Timestamp,
}

/// The usage of one key that the store does not have.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) share: Arc<Share>,
    state: State,
    /// The number of its first record.
    first_record_id: u64,
    /// The last pass that tried to charge it; zero if there was none.
    last_pass: u64,
}

/// One pass over all entries. The first is number 1.
#[derive(Debug)]
pub(crate) struct Pass {
    number: u64,
    shards_left: usize,
}

impl Entry {
    /// Returns the units that still count.
    pub(crate) fn used(&self, now: Timestamp) -> u64 {
        self.share.whole.quota.used(&self.state, now)
    }

    /// Adjusts by the numbers of the given share: rules that share states may have different
    /// numbers.
    fn adjust(&mut self, share: &Share, adjustment: Adjustment, now: Timestamp) {
        let adjustment = match (adjustment, &share.whole.quota) {
            // The end of a charge is that of the share. No request waits for a place in a ledger.
            (Adjustment::Refund { units, .. }, Quota::Bucket(it)) if it.queue().is_some() => {
                Adjustment::Grant { units }
            }
            (Adjustment::Refund { units, charge }, _) => {
                Adjustment::Refund { units, charge: ChargeTimes::without_end(charge.at) }
            }
            (other, _) => other,
        };
        share.whole.quota.adjust(&mut self.state, adjustment, now);
    }
}

impl Ledger {
    pub(crate) fn new(max_entries: usize, randomness: Randomness) -> Self {
        let hasher = randomness.hash_keys(LEDGER_KEYS);
        let shard = || Shard { entries: HashMap::with_hasher(hasher.clone()), swept: Timestamp::EPOCH };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            hasher,
            max_shard_entries: max_entries.div_ceil(SHARDS).max(1),
            keys: AtomicUsize::new(0),
            next_record_id: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of lost charges: no room, or an unknown result.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Records admitted usage. Returns the number of the record, for corrections, or `None` if
    /// there was no room.
    pub(crate) fn write(&self, share: &Arc<Share>, key: &Key, units: u64, now: Timestamp) -> Option<u64> {
        let name = (share.whole.id, key.clone());
        let mut shard = self.shard(&name);
        if shard.entries.len() >= self.max_shard_entries && !shard.entries.contains_key(&name) {
            self.sweep(&mut shard, now);
            if shard.entries.len() >= self.max_shard_entries {
                drop(shard);
                self.count_lost();
                return None;
            }
        }
        // Under the lock, so that a removed entry holds only earlier records.
        let record_id = self.next_record_id.fetch_add(1, Ordering::Relaxed);
        let entry = match shard.entries.entry(name) {
            Place::Occupied(place) => {
                let entry = place.into_mut();
                // Of rules that share states, keep the one with the largest debt bound.
                if share.whole.quota.period() > entry.share.whole.quota.period() {
                    entry.share = Arc::clone(share);
                }
                entry
            }
            Place::Vacant(place) => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                let state = share.whole.quota.fresh();
                place.insert(Entry {
                    share: Arc::clone(share),
                    state,
                    first_record_id: record_id,
                    last_pass: 0,
                })
            }
        };
        entry.adjust(share, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
        Some(record_id)
    }

    /// Whether a record is still here.
    pub(crate) fn has(&self, share: &Share, key: &Key, record_id: u64) -> bool {
        let name = (share.whole.id, key.clone());
        let shard = self.shard(&name);
        shard.entries.get(&name).is_some_and(|entry| entry.first_record_id <= record_id)
    }

    /// Corrects a record if it is still here. Returns whether it is.
    pub(crate) fn correct(
        &self,
        share: &Share,
        key: &Key,
        record_id: u64,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> bool {
        let name = (share.whole.id, key.clone());
        let mut shard = self.shard(&name);
        match shard.entries.get_mut(&name).filter(|entry| entry.first_record_id <= record_id) {
            Some(entry) => {
                entry.adjust(share, adjustment, now);
                true
            }
            None => false,
        }
    }

    /// Starts a pass.
    pub(crate) fn pass(&self) -> Pass {
        Pass { number: self.passes.fetch_add(1, Ordering::Relaxed) + 1, shards_left: SHARDS }
    }

    /// Returns names that the pass has not tried yet; an empty list at its end.
    pub(crate) fn next(&self, pass: &mut Pass, max_names: usize) -> Vec<Name> {
        while pass.shards_left > 0 {
            let at = usize::try_from(pass.number % SHARDS as u64).unwrap_or(0) + pass.shards_left;
            let shard = self.shards[at % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
            let untried = shard.entries.iter().filter(|(_, entry)| entry.last_pass < pass.number);
            let names: Vec<_> = untried.map(|(name, _)| name.clone()).take(max_names).collect();
            if !names.is_empty() {
                return names;
            }
            pass.shards_left -= 1;
        }
        Vec::new()
    }

    /// Removes an entry. The caller then has to charge it to the store.
    pub(crate) fn take(&self, name: &Name) -> Option<Entry> {
        let taken = self.shard(name).entries.remove(name)?;
        self.keys.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// Puts back an entry that the pass could not charge and that the store does not have.
    pub(crate) fn put_back(&self, name: &Name, mut entry: Entry, pass: &Pass, now: Timestamp) {
        entry.last_pass = entry.last_pass.max(pass.number);
        let mut shard = self.shard(name);
        match shard.entries.entry(name.clone()) {
            // Other requests have recorded usage meanwhile.
            Place::Occupied(place) => {
                let units = entry.used(now);
                let place = place.into_mut();
                place.adjust(&entry.share, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
                place.first_record_id = place.first_record_id.min(entry.first_record_id);
                place.last_pass = place.last_pass.max(entry.last_pass);
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
        // A thread that panicked while holding the lock left a readable state.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
