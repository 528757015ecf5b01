//! The most frequent of a stream, from fixed memory (Space-Saving).
//!
//! Metwally, Agrawal, El Abbadi: *Efficient Computation of Frequent and Top-k Elements in
//! Data Streams* (2005). `m` entries count; who is not among them takes over the smallest
//! one, count and all, and notes that count as its error. Hence, with `N` the weight of
//! the stream:
//!
//! ```text
//! count - error <= true <= count        for who has an entry
//! true <= smallest                      for who has none
//! smallest <= N / m                     so whoever weighs more than N/m has an entry
//! ```
//!
//! The last line: the counts of all entries add up to `N`. A heap finds the smallest, so
//! an update takes `O(log m)`. Keys are known by a keyed hash of 64 bits; what they are
//! called is asked only when an entry is taken over.
//!
//! Not here: time (`windowed_topk`).
//!
//! Invariant: the three lines above, for any stream. Held by `tests`, against exact counts.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::{BuildHasherDefault, Hasher};

/// The most frequent of a stream, from fixed memory.
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
    /// A heap by count, the smallest first.
    heap: Vec<Entry<P>>,
    /// Where in the heap a key is.
    places: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    most: usize,
    /// The weight of all.
    total: u64,
}

/// One of the frequent ones.
#[derive(Clone, Debug)]
pub struct Entry<P> {
    /// A keyed hash of it.
    pub key_hash: u64,
    /// Its weight, at most.
    pub count: u64,
    /// By how much that may be too high.
    pub error: u64,
    /// Of its weight, what was marked since it has the entry.
    pub marked: u64,
    /// What it is called.
    pub payload: P,
}

/// Spots are hashes already.
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
    /// Counts with so many entries.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, 1 << 24);
        Self {
            heap: Vec::with_capacity(most),
            // One more, so that a take-over never grows it.
            places: HashMap::with_capacity_and_hasher(most + 1, BuildHasherDefault::new()),
            most,
            total: 0,
        }
    }

    /// Counts `weight` more of a key, marked or not. `name` is asked when it is new here.
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

    /// The weight of all that was added.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// What a key without an entry weighs at most.
    pub(crate) fn smallest(&self) -> u64 {
        if self.heap.len() < self.most { 0 } else { self.heap.first().map_or(0, |entry| entry.count) }
    }

    /// All entries, in no order.
    pub fn entries(&self) -> &[Entry<P>] {
        &self.heap
    }

    /// Forgets everything, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.places.clear();
        self.total = 0;
    }

    fn count(&self, at: usize) -> Option<u64> {
        self.heap.get(at).map(|entry| entry.count)
    }

    /// Moves an entry that has grown down to where it belongs.
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

    /// Moves an entry that came last up to where it belongs.
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
