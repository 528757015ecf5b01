//! The most frequent elements of a stream in fixed memory (Space-Saving).
//!
//! Metwally, Agrawal, El Abbadi: *Efficient Computation of Frequent and Top-k Elements in
//! Data Streams* (2005). The sketch has `m` entries. A key without an entry takes over the smallest
//! entry with its count, and records that count as its error. With `N` the weight of the stream:
//!
//! ```text
//! count - error <= true <= count        for a key with an entry
//! true <= smallest                      for a key without an entry
//! smallest <= N / m                     so a key that weighs more than N/m has an entry
//! ```
//!
//! The last line holds because the counts of all entries add up to `N`. A heap finds the smallest
//! entry, so an update takes `O(log m)`. Keys are identified by a keyed hash of 64 bits; the name of a
//! key is computed only when it takes over an entry.
//!
//! `windowed_topk` adds time windows.
//!
//! Invariant: the three lines above, for any stream. `tests` compares with exact counts.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::{BuildHasherDefault, Hasher};

/// The most frequent elements of a stream in fixed memory.
///
/// ```
/// # use tollgate_telemetry::Sketch;
/// let mut sketch = Sketch::new(2);
/// for key_hash in [7, 7, 7, 8, 9] {
///     sketch.add(key_hash, 1, false, || key_hash.to_string());
/// }
/// let most = sketch.entries().iter().max_by_key(|entry| entry.count).expect("it has two entries");
/// assert_eq!((&*most.payload, most.count, most.error), ("7", 3, 0));
/// ```
#[derive(Debug)]
pub struct Sketch<P> {
    /// A heap by count, the smallest entry first.
    heap: Vec<Entry<P>>,
    /// The index in the heap of each key.
    places: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    most: usize,
    /// The weight of the stream.
    total: u64,
}

/// An entry of a [`Sketch`]: a frequent key.
#[derive(Clone, Debug)]
pub struct Entry<P> {
    /// A keyed hash of the key.
    pub key_hash: u64,
    /// The upper bound of the key's weight.
    pub count: u64,
    /// The most by which `count` may be too high.
    pub error: u64,
    /// The marked part of the weight since the key has the entry.
    pub marked: u64,
    /// The name of the key.
    pub payload: P,
}

/// Key hashes need no further hashing.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, key_hash: u64) {
        self.0 = key_hash;
    }
}

impl<P> Sketch<P> {
    /// Creates a sketch with `most` entries.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, 1 << 24);
        Self {
            heap: Vec::with_capacity(most),
            // One more, so that taking over an entry does not grow the map.
            places: HashMap::with_capacity_and_hasher(most + 1, BuildHasherDefault::new()),
            most,
            total: 0,
        }
    }

    /// Adds `weight` to a key, marked or not. `name` is called when the key gets an entry.
    pub fn add(&mut self, key_hash: u64, weight: u64, marked: bool, name: impl FnOnce() -> P) {
        self.total = self.total.saturating_add(weight);
        let marked = if marked { weight } else { 0 };
        let at = match self.places.entry(key_hash) {
            Place::Occupied(known) => {
                let at = *known.get() as usize;
                let Some(entry) = self.heap.get_mut(at) else { return };
                entry.count = entry.count.saturating_add(weight);
                entry.marked = entry.marked.saturating_add(marked);
                at
            }
            Place::Vacant(new) if self.heap.len() < self.most => {
                let at = self.heap.len();
                // At most 2^24, see above.
                new.insert(u32::try_from(at).unwrap_or(0));
                self.heap.push(Entry { key_hash, count: weight, error: 0, marked, payload: name() });
                return self.rise(at);
            }
            Place::Vacant(new) => {
                let Some(smallest) = self.heap.first_mut() else { return };
                new.insert(0);
                let (error, gone) = (smallest.count, smallest.key_hash);
                let count = error.saturating_add(weight);
                *smallest = Entry { key_hash, count, error, marked, payload: name() };
                self.places.remove(&gone);
                0
            }
        };
        self.sink(at);
    }

    /// Returns the weight of the stream.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the maximum weight of a key without an entry.
    pub(crate) fn smallest(&self) -> u64 {
        if self.heap.len() < self.most { 0 } else { self.heap.first().map_or(0, |entry| entry.count) }
    }

    /// Returns all entries, in no order.
    pub fn entries(&self) -> &[Entry<P>] {
        &self.heap
    }

    /// Removes all entries and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.places.clear();
        self.total = 0;
    }

    fn count(&self, at: usize) -> Option<u64> {
        self.heap.get(at).map(|entry| entry.count)
    }

    /// Moves an entry whose count grew down the heap.
    fn sink(&mut self, mut at: usize) {
        let Some(count) = self.count(at) else { return };
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(mut least) = self.count(left) else { return };
            let mut child = left;
            if let Some(other) = self.count(right).filter(|&other| other < least) {
                (child, least) = (right, other);
            }
            if count <= least {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }

    /// Moves a new last entry up the heap.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.count(at) < self.count((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            let key_hash = self.heap[at].key_hash;
            self.places.insert(key_hash, u32::try_from(at).unwrap_or(0));
        }
    }
}
