//! Stores the last records in bounded memory.
//!
//! Three rings share one sequence: the last refusals; the first refusal of each key within a minute, so
//! that a flood from one key does not evict the records of other keys; and a sample of admitted
//! requests. A record is packed before the lock is taken, and copied into its slot under the lock: neither allocates
//! memory. Readers take the lock for a bounded number of slots at a time, and build records after it is released.
//!
//! A slot has [`MAX_PACKED_BYTES`] and some bytes for searching. A record that cannot be packed is stored on the heap.
//!
//! Invariant: sequence numbers are assigned in the order of storage, without gaps, so a reader that
//! asks for records after a number misses none. `tests/remembering.rs` checks this.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::store::prefetch;
use tollgate::{DecisionId, Span, Timestamp};

use crate::packed_record::MAX_PACKED_BYTES;
use crate::record::{Record, RecordHead};

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

/// A record to store.
pub(crate) enum Content<'r> {
    /// The number of the policy and the packed record.
    Packed(u32, &'r [u8]),
    /// A record without other references.
    Built(Arc<Record>),
}

/// A stored record, as a reader receives it.
pub(crate) struct StoredRecord {
    pub(crate) seq: u64,
    pub(crate) content: StoredContent,
}

pub(crate) enum StoredContent {
    /// The number of the policy and the packed record.
    Packed(u32, Box<[u8]>),
    Built(Arc<Record>),
}

/// The selected records after a sequence number.
pub(crate) struct StoredPage {
    pub(crate) records: Vec<StoredRecord>,
    pub(crate) read: usize,
    pub(crate) last: Option<u64>,
    pub(crate) missed: u64,
}

/// A position in the rings, for a reader that visits all slots.
#[derive(Clone, Copy, Default)]
pub(crate) struct RingCursor {
    ring: usize,
    slot: usize,
}

/// The rings of records.
pub(crate) struct Ring(Mutex<Rings>);

struct Rings {
    last: u64,
    /// The last refusals, the first refusals of keys, and admitted requests.
    slots: [SlotRing; 3],
    /// The hashes of keys that were refused recently, with the time of the first refusal.
    known: Box<[(u64, Timestamp)]>,
}

const REFUSED: usize = 0;
const FIRST: usize = 1;
const ADMITTED: usize = 2;

impl Ring {
    /// Creates rings with room for `records` refusals.
    pub(crate) fn new(records: usize) -> Self {
        let records = records.max(1);
        Self(Mutex::new(Rings {
            last: 0,
            slots: [records, records.div_ceil(4), MAX_ADMITTED].map(SlotRing::new),
            known: vec![(0, Timestamp::EPOCH); MAX_KNOWN_KEYS].into(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        // The rings are consistent between any two statements, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a record. `key_hash` identifies the allowance that refused, or else the caller. A record on the heap that
    /// is replaced, which is rare, is dropped after the lock is released.
    #[inline]
    pub(crate) fn keep(&self, head: RecordHead, mut content: Content<'_>, key_hash: u64) {
        let mut rings = self.lock();
        rings.last += 1;
        let head = RecordHead { seq: rings.last, ..head };
        if let Content::Built(record) = &mut content
            && let Some(record) = Arc::get_mut(record)
        {
            record.seq = head.seq;
        }
        let evicted = rings.push(head, key_hash, &content);
        drop(rings);
        drop(evicted);
    }

    /// Returns the record of a decision.
    pub(crate) fn find(&self, id: DecisionId) -> Option<StoredRecord> {
        [REFUSED, FIRST, ADMITTED].into_iter().find_map(|ring| {
            let mut from = 0;
            loop {
                let all = self.lock();
                let slots = &all.slots[ring];
                let stretch = slots.slots.get(from..).filter(|rest| !rest.is_empty())?;
                if let Some(at) = stretch.iter().take(SLOTS_PER_LOCK).position(|slot| slot.head.id == id) {
                    return slots.read(from + at);
                }
                from += SLOTS_PER_LOCK;
            }
        })
    }

    /// Returns those of the oldest records after `seq` that `is_wanted` selects. At most `most` are read. A number that
    /// was not assigned yet belongs to an earlier process: all records are after it.
    pub(crate) fn after(
        &self,
        seq: u64,
        most: usize,
        mut is_wanted: impl FnMut(&RecordHead) -> bool,
    ) -> StoredPage {
        let all = self.lock();
        let seq = if seq > all.last { 0 } else { seq };
        let (mut records, mut read, mut last) = (Vec::new(), 0, None);
        let starts = all.slots.each_ref().map(|ring| ring.place_after(seq));
        for (ring, index) in all.merged(starts).take(most) {
            let Some(slot) = ring.slots.get(index) else { continue };
            (read, last) = (read + 1, Some(slot.head.seq));
            if is_wanted(&slot.head) {
                records.extend(ring.read(index));
            }
        }
        drop(all);
        let missed = last.map_or(0, |last| last - seq - read as u64);
        StoredPage { records, read, last, missed }
    }

    /// Returns the latest records, at most `most`, the newest last.
    pub(crate) fn latest(&self, most: usize, refused_only: bool) -> Vec<StoredRecord> {
        let all = self.lock();
        let mut starts = all.slots.each_ref().map(|ring| ring.slots.len().saturating_sub(most));
        if refused_only {
            starts[ADMITTED] = all.slots[ADMITTED].slots.len();
        }
        let found: Vec<_> = all.merged(starts).collect();
        let latest = found.iter().skip(found.len().saturating_sub(most));
        latest.filter_map(|(ring, index)| ring.read(*index)).collect()
    }

    /// Returns the packed records of a policy among the next slots, at most `most`, and advances the cursor. `None` at
    /// the end. The records that are stored meanwhile belong to other policies.
    pub(crate) fn packed_by(
        &self,
        policy: u32,
        cursor: &mut RingCursor,
        most: usize,
    ) -> Option<Vec<StoredRecord>> {
        let all = self.lock();
        let ring = all.slots.get(cursor.ring)?;
        let mut found = Vec::new();
        let end = ring.slots.len().min(cursor.slot + SLOTS_PER_LOCK);
        while cursor.slot < end && found.len() < most {
            if ring.slots.get(cursor.slot).is_some_and(|slot| slot.built.is_none() && slot.policy == policy) {
                found.extend(ring.read(cursor.slot));
            }
            cursor.slot += 1;
        }
        // The ring may have been cleared meanwhile.
        if cursor.slot >= ring.slots.len() {
            *cursor = RingCursor { ring: cursor.ring + 1, slot: 0 };
        }
        Some(found)
    }

    /// Replaces packed records by records that were built from them, unless they were evicted.
    pub(crate) fn replace(&self, built: Vec<Arc<Record>>) {
        let mut all = self.lock();
        for record in built {
            for ring in &mut all.slots {
                let place = ring.place_after(record.seq - 1);
                if let Some(index) = ring.index(place)
                    && let Some(slot) = ring.slots.get_mut(index).filter(|slot| slot.head.seq == record.seq)
                {
                    slot.built = Some(Arc::clone(&record));
                }
            }
        }
    }

    /// Drops all records and keeps the sequence number.
    pub(crate) fn clear(&self) {
        let mut all = self.lock();
        let Rings { slots, known, .. } = &mut *all;
        for ring in slots {
            ring.slots.clear();
            ring.oldest = 0;
        }
        known.fill((0, Timestamp::EPOCH));
    }

    /// Returns the number and age of the stored refusals.
    pub(crate) fn kept(&self) -> RetentionCounts {
        let all = self.lock();
        let [refused, first, _] = &all.slots;
        let oldest = refused.index(0).and_then(|index| refused.slots.get(index)).map(|slot| slot.head);
        // First refusals that the large ring has evicted.
        let before = oldest.map_or(0, |oldest| first.place_after(oldest.seq.saturating_sub(1)));
        RetentionCounts {
            refusals: refused.slots.len() + before,
            most: refused.most + first.most,
            records: refused.most,
            since: oldest.map(|oldest| oldest.at),
            last: all.last,
        }
    }
}

impl Rings {
    /// Stores a record, and returns the records on the heap that it replaced.
    #[inline]
    fn push(&mut self, head: RecordHead, key_hash: u64, content: &Content<'_>) -> [Option<Arc<Record>>; 2] {
        if head.allowed {
            [self.slots[ADMITTED].push(head, content), None]
        } else if self.is_first(key_hash, head.at) {
            [self.slots[FIRST].push(head, content), self.slots[REFUSED].push(head, content)]
        } else {
            [self.slots[REFUSED].push(head, content), None]
        }
    }

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

    /// Iterates over the records of all rings in the order of their numbers, each once. `places` has the number of
    /// records to skip in each ring.
    fn merged(&self, mut places: [usize; 3]) -> impl Iterator<Item = (&SlotRing, usize)> {
        std::iter::from_fn(move || {
            let next = |at: usize| {
                let ring = &self.slots[at];
                let index = ring.index(places[at])?;
                Some((ring.slots.get(index)?.head.seq, ring, index))
            };
            let heads = [next(REFUSED), next(FIRST), next(ADMITTED)];
            let (least, ring, index) = heads.into_iter().flatten().min_by_key(|(seq, ..)| *seq)?;
            for (place, head) in places.iter_mut().zip(heads) {
                *place += usize::from(head.is_some_and(|(seq, ..)| seq == least));
            }
            Some((ring, index))
        })
    }
}

/// A ring of records that replaces the oldest one.
struct SlotRing {
    slots: Vec<Slot>,
    /// The packed records, each at the index of its slot. The memory is not touched before it is used.
    bytes: Box<[u8]>,
    most: usize,
    /// The index of the oldest record, once the ring is full.
    oldest: usize,
}

/// The fields of a search are here, so that a search does not read the packed record.
struct Slot {
    head: RecordHead,
    /// The number of the policy of a packed record.
    policy: u32,
    /// The length of a packed record.
    length: u16,
    /// The record, if it is not packed.
    built: Option<Arc<Record>>,
}

impl SlotRing {
    fn new(most: usize) -> Self {
        let bytes = vec![0; most.saturating_mul(MAX_PACKED_BYTES)].into();
        Self { slots: Vec::with_capacity(most), bytes, most, oldest: 0 }
    }

    /// Stores a record, and returns the record on the heap that it replaced.
    #[inline]
    fn push(&mut self, head: RecordHead, content: &Content<'_>) -> Option<Arc<Record>> {
        let is_full = self.slots.len() >= self.most;
        let index = if is_full { self.oldest } else { self.slots.len() };
        let length = if let Content::Packed(_, bytes) = content { bytes.len() } else { 0 };
        let slot = match content {
            Content::Packed(policy, bytes) => {
                let start = index * MAX_PACKED_BYTES;
                self.bytes.get_mut(start..start + length)?.copy_from_slice(bytes);
                // A packed record has at most `MAX_PACKED_BYTES`.
                Slot { head, policy: *policy, length: u16::try_from(length).unwrap_or(0), built: None }
            }
            Content::Built(record) => Slot { head, policy: 0, length: 0, built: Some(Arc::clone(record)) },
        };
        if !is_full {
            self.slots.push(slot);
            self.prefetch(index + 1, length);
            return None;
        }
        self.oldest = if index + 1 == self.most { 0 } else { index + 1 };
        self.prefetch(self.oldest, length);
        std::mem::replace(self.slots.get_mut(index)?, slot).built
    }

    /// Loads the memory of the next record, which is probably as long as this one: it was used long ago, and the lock
    /// can only be released once all of the record has been written.
    #[inline]
    fn prefetch(&self, index: usize, length: usize) {
        let start = index * MAX_PACKED_BYTES;
        if let Some(bytes) = self.bytes.get(start..start + length) {
            prefetch(bytes);
        }
        if let Some(slot) = self.slots.get(index) {
            prefetch(slot);
        }
    }

    /// Returns a copy of the record in a slot.
    fn read(&self, index: usize) -> Option<StoredRecord> {
        let slot = self.slots.get(index)?;
        let content = if let Some(record) = &slot.built {
            StoredContent::Built(Arc::clone(record))
        } else {
            let start = index * MAX_PACKED_BYTES;
            let bytes = self.bytes.get(start..start + usize::from(slot.length))?;
            StoredContent::Packed(slot.policy, bytes.into())
        };
        Some(StoredRecord { seq: slot.head.seq, content })
    }

    /// Returns the index of the slot at a place, counted from the oldest record.
    fn index(&self, place: usize) -> Option<usize> {
        let index = self.oldest + place;
        let length = self.slots.len();
        (place < length).then(|| if index < length { index } else { index - length })
    }

    /// Returns how many records have at most this sequence number. The numbers ascend.
    fn place_after(&self, seq: u64) -> usize {
        let (newer, older) = self.slots.split_at(self.oldest);
        match older.partition_point(|slot| slot.head.seq <= seq) {
            all if all == older.len() => all + newer.partition_point(|slot| slot.head.seq <= seq),
            some => some,
        }
    }
}
