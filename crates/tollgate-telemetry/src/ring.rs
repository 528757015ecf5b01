//! Stores the last records in bounded memory.
//!
//! Three rings share one sequence: the last refusals; the first refusal of each key within a minute, so
//! that a flood from one key does not evict the records of other keys; and a sample of admitted
//! requests. A record is built before the lock is taken and dropped after it is released. Readers take
//! the lock for a bounded number of slots at a time.
//!
//! Invariant: sequence numbers are assigned in the order of storage, without gaps, so a reader that
//! asks for records after a number misses none. The tests below check this.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{DecisionId, Span, Timestamp};

use crate::record::Record;

/// The number of admitted requests that are kept.
const MAX_ADMITTED: usize = 1_024;
/// The time after which a refusal of a key counts as its first again.
const FIRST_REFUSAL_INTERVAL: Span = Span::from_secs(60);
/// The number of recently refused keys that are remembered.
const MAX_KNOWN_KEYS: usize = 4_096;
/// The number of slots that are read under one lock.
const SLOTS_PER_LOCK: usize = 4_096;

/// The number and age of the refusals that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionCounts {
    /// The number of refusals that can be explained now.
    pub refusals: usize,
    /// The capacity.
    pub most: usize,
    /// The part of the capacity that holds the last refusals of all keys, as configured.
    pub records: usize,
    /// The time since which every refusal is stored; `None` before the first.
    pub since: Option<Timestamp>,
    /// The sequence number of the last record of any kind; zero before the first.
    pub last: u64,
}

/// The rings of records.
pub(crate) struct Ring(Mutex<Rings>);

struct Rings {
    last: u64,
    refused: Slots,
    first: Slots,
    admitted: Slots,
    /// The hashes of keys that were refused recently, with the time of the first refusal.
    known: Box<[(u64, Timestamp)]>,
}

impl Ring {
    /// Creates rings with room for `records` refusals.
    pub(crate) fn new(records: usize) -> Self {
        let records = records.max(1);
        Self(Mutex::new(Rings {
            last: 0,
            refused: Slots::new(records),
            first: Slots::new(records.div_ceil(4)),
            admitted: Slots::new(MAX_ADMITTED),
            known: vec![(0, Timestamp::EPOCH); MAX_KNOWN_KEYS].into(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        // The rings are consistent between any two statements, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a record. `key_hash` identifies the allowance that refused, or else the caller.
    pub(crate) fn keep(&self, record: Record, key_hash: u64) {
        let (allowed, at) = (record.allowed, record.at);
        let mut record = Arc::new(record);
        let mut rings = self.lock();
        rings.last += 1;
        let seq = rings.last;
        // No other reference exists yet.
        if let Some(record) = Arc::get_mut(&mut record) {
            record.seq = seq;
        }
        let gone = if allowed {
            [rings.admitted.push(record), None]
        } else if rings.is_first(key_hash, at) {
            [rings.first.push(Arc::clone(&record)), rings.refused.push(record)]
        } else {
            [rings.refused.push(record), None]
        };
        drop(rings);
        drop(gone);
    }

    /// Returns the record of a decision.
    pub(crate) fn find(&self, id: DecisionId) -> Option<Arc<Record>> {
        let rings: [fn(&Rings) -> &Slots; 3] = [|all| &all.refused, |all| &all.first, |all| &all.admitted];
        rings.iter().find_map(|ring| {
            let mut from = 0;
            loop {
                let all = self.lock();
                let stretch = ring(&all).records.get(from..).filter(|rest| !rest.is_empty())?;
                if let Some(slot) = stretch.iter().take(SLOTS_PER_LOCK).find(|slot| slot.id == id) {
                    return Some(Arc::clone(&slot.record));
                }
                from += SLOTS_PER_LOCK;
            }
        })
    }

    /// Returns the oldest records after `seq`, at most `most`, and the number of records in between
    /// that were evicted. A number that was not assigned yet belongs to an earlier process: all records
    /// are after it.
    pub(crate) fn after(&self, seq: u64, most: usize) -> (Vec<Arc<Record>>, u64) {
        let all = self.lock();
        let seq = if seq > all.last { 0 } else { seq };
        let mut found = Vec::new();
        for ring in [&all.refused, &all.first, &all.admitted] {
            let from = ring.place_after(seq);
            found.extend(ring.iter(from).take(most).map(|slot| Arc::clone(&slot.record)));
        }
        drop(all);
        in_order(&mut found);
        found.truncate(most);
        let given = found.last().map_or(0, |last| last.seq - seq);
        let missed = given - found.len() as u64;
        (found, missed)
    }

    /// Returns the latest records, at most `most`, the newest last.
    pub(crate) fn latest(&self, most: usize, refused_only: bool) -> Vec<Arc<Record>> {
        let all = self.lock();
        let mut found = Vec::new();
        let rings = [&all.refused, &all.first, &all.admitted];
        for ring in &rings[..if refused_only { 2 } else { 3 }] {
            let from = ring.records.len().saturating_sub(most);
            found.extend(ring.iter(from).map(|slot| Arc::clone(&slot.record)));
        }
        drop(all);
        in_order(&mut found);
        found.drain(..found.len().saturating_sub(most));
        found
    }

    /// Drops all records and keeps the sequence number.
    pub(crate) fn clear(&self) {
        let mut all = self.lock();
        let Rings { refused, first, admitted, known, .. } = &mut *all;
        for ring in [refused, first, admitted] {
            ring.records.clear();
            ring.oldest = 0;
        }
        known.fill((0, Timestamp::EPOCH));
    }

    /// Returns the number and age of the stored refusals.
    pub(crate) fn kept(&self) -> RetentionCounts {
        let all = self.lock();
        let oldest = all.refused.iter(0).next();
        // First refusals that the large ring has evicted.
        let before = oldest.map_or(0, |oldest| all.first.place_after(oldest.seq.saturating_sub(1)));
        RetentionCounts {
            refusals: all.refused.records.len() + before,
            most: all.refused.most + all.first.most,
            records: all.refused.most,
            since: oldest.map(|slot| slot.record.at),
            last: all.last,
        }
    }
}

impl Rings {
    /// Whether a key has not been refused within [`FIRST_REFUSAL_INTERVAL`].
    fn is_first(&mut self, key_hash: u64, at: Timestamp) -> bool {
        // The remainder is smaller than the table.
        let place = usize::try_from(key_hash % MAX_KNOWN_KEYS as u64).unwrap_or(0);
        let Some(known) = self.known.get_mut(place) else { return true };
        let is_known = known.0 == key_hash
            && at.since(known.1) < FIRST_REFUSAL_INTERVAL
            && known.1.since(at) < FIRST_REFUSAL_INTERVAL;
        if !is_known {
            *known = (key_hash, at);
        }
        !is_known
    }
}

/// Sorts by sequence number and removes duplicates.
fn in_order(records: &mut Vec<Arc<Record>>) {
    records.sort_unstable_by_key(|record| record.seq);
    records.dedup_by_key(|record| record.seq);
}

/// A ring of records that replaces the oldest one.
struct Slots {
    records: Vec<Slot>,
    most: usize,
    /// The index of the oldest record, once the ring is full.
    oldest: usize,
}

/// The fields of a search are copied here, so that a search does not load the record.
struct Slot {
    id: DecisionId,
    seq: u64,
    record: Arc<Record>,
}

impl Slots {
    fn new(most: usize) -> Self {
        Self { records: Vec::with_capacity(most), most, oldest: 0 }
    }

    /// Stores a record, and returns the record that it replaced.
    fn push(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        let slot = Slot { id: record.id, seq: record.seq, record };
        if self.records.len() < self.most {
            self.records.push(slot);
            return None;
        }
        let oldest = self.records.get_mut(self.oldest)?;
        self.oldest = (self.oldest + 1) % self.most;
        Some(std::mem::replace(oldest, slot).record)
    }

    /// Iterates from the oldest record on, after skipping `skip`.
    fn iter(&self, skip: usize) -> impl Iterator<Item = &Slot> {
        let (newer, older) = self.records.split_at(self.oldest);
        let (older, newer) = match older.get(skip..) {
            Some(rest) => (rest, newer),
            None => (&[][..], newer.get(skip - older.len()..).unwrap_or(&[])),
        };
        older.iter().chain(newer)
    }

    /// Returns how many records have at most this sequence number. The numbers ascend.
    fn place_after(&self, seq: u64) -> usize {
        let (newer, older) = self.records.split_at(self.oldest);
        match older.partition_point(|slot| slot.seq <= seq) {
            all if all == older.len() => all + newer.partition_point(|slot| slot.seq <= seq),
            some => some,
        }
    }
}
