//! The last records, in memory that does not grow.
//!
//! Three rings share one count: the last refusals; the first refusal of each key in a
//! while, so that one key's flood does not push everybody else out; and a sample of
//! requests that passed. They share their records, and a record is made before the lock
//! is taken and dropped after it: what is done under it is to write a few words. Reading
//! takes it for a bounded stretch at a time.
//!
//! Invariant: numbers are given in the order of keeping, without gaps, so who asks for
//! what came after a number misses nothing. Held by the tests below.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{DecisionId, Span, Timestamp};

use crate::record::Record;

/// How many admitted requests are kept.
const MAX_ADMITTED: usize = 1_024;
/// A key's refusal is its first again after so long.
const FIRST_REFUSAL_INTERVAL: Span = Span::from_secs(60);
/// How many keys are told from new ones.
const MAX_KNOWN_KEYS: usize = 4_096;
/// How many slots are looked through under one lock.
const SLOTS_PER_LOCK: usize = 4_096;

/// What is remembered of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionCounts {
    /// How many refusals can be explained now.
    pub refusals: usize,
    /// How many at most.
    pub most: usize,
    /// How many of these are the last ones, whoever was refused, as the settings say.
    pub records: usize,
    /// Since when every refusal is there; `None` before the first.
    pub since: Option<Timestamp>,
    /// The number of the last record, refused or not; zero before the first.
    pub last: u64,
}

/// The last records.
pub(crate) struct Ring(Mutex<Rings>);

struct Rings {
    last: u64,
    refused: Slots,
    first: Slots,
    admitted: Slots,
    /// Allowances that refused lately and when that was first, by their hash.
    known: Box<[(u64, Timestamp)]>,
}

impl Ring {
    /// Room for so many refusals.
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
        // A ring is whole between any two steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a record; `spot` is the allowance that refused, or else whatever stands for
    /// the caller.
    pub(crate) fn keep(&self, record: Record, key_hash: u64) {
        let (allowed, at) = (record.allowed, record.at);
        let mut record = Arc::new(record);
        let mut rings = self.lock();
        rings.last += 1;
        let seq = rings.last;
        // Nobody else has it yet.
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

    /// The record of a decision.
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

    /// The oldest records after `seq`, at most so many, and how many between are gone
    /// already. A number that was not given yet is of another life: all are after it.
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

    /// The latest records, at most so many, the newest last.
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

    /// Forgets all records, and counts on.
    pub(crate) fn clear(&self) {
        let mut all = self.lock();
        let Rings { refused, first, admitted, known, .. } = &mut *all;
        for ring in [refused, first, admitted] {
            ring.records.clear();
            ring.oldest = 0;
        }
        known.fill((0, Timestamp::EPOCH));
    }

    /// What is remembered of refusals.
    pub(crate) fn kept(&self) -> RetentionCounts {
        let all = self.lock();
        let oldest = all.refused.iter(0).next();
        // Firsts that the large ring has forgotten.
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
    /// Whether an allowance has not refused for a while.
    fn is_first(&mut self, key_hash: u64, at: Timestamp) -> bool {
        // The remainder fits wherever the table does.
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

/// By number, and each once.
fn in_order(records: &mut Vec<Arc<Record>>) {
    records.sort_unstable_by_key(|record| record.seq);
    records.dedup_by_key(|record| record.seq);
}

/// So many records, of which the oldest gives way.
struct Slots {
    records: Vec<Slot>,
    most: usize,
    /// The oldest, once there are as many as may be.
    oldest: usize,
}

/// What is looked for stands beside the record, which would have to be fetched.
struct Slot {
    id: DecisionId,
    seq: u64,
    record: Arc<Record>,
}

impl Slots {
    fn new(most: usize) -> Self {
        Self { records: Vec::with_capacity(most), most, oldest: 0 }
    }

    /// Keeps a record, and gives back the one that gives way.
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

    /// From the oldest on, without so many.
    fn iter(&self, skip: usize) -> impl Iterator<Item = &Slot> {
        let (newer, older) = self.records.split_at(self.oldest);
        let (older, newer) = match older.get(skip..) {
            Some(rest) => (rest, newer),
            None => (&[][..], newer.get(skip - older.len()..).unwrap_or(&[])),
        };
        older.iter().chain(newer)
    }

    /// How many are of this number or before it. Numbers rise.
    fn place_after(&self, seq: u64) -> usize {
        let (newer, older) = self.records.split_at(self.oldest);
        match older.partition_point(|slot| slot.seq <= seq) {
            all if all == older.len() => all + newer.partition_point(|slot| slot.seq <= seq),
            some => some,
        }
    }
}
