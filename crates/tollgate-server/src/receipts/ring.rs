//! The last values in the order of their arrival, found by their id.
//!
//! Values are numbered, and number `n` is at place `n % capacity`, so the newest value replaces the oldest one where it is.
//! An index has the numbers of the ids in buckets of one cache line. It is not cleared: a number that was replaced is out
//! of range.
//!
//! Values are added far more often than they are looked up, so a lookup indexes the values that were added since the one
//! before. Adding a value touches its place only, and places follow each other in memory; each line of the index would be a
//! cache miss. A lookup after a long time indexes at most `capacity` values, which takes half a millisecond.
//!
//! Not here: the meaning of values (`receipts`).
//!
//! Invariant: the last `capacity` values are found, and no others.
//! Tested by `the_last_values_are_found_and_no_others`.

use std::collections::HashMap;

use tollgate::DecisionId;
use tollgate::store::prefetch;

/// The number of ids in a bucket: a cache line.
const BUCKET_SLOTS: usize = 16;

/// The average number of ids in a bucket of a full ring.
const IDS_PER_BUCKET: usize = 4;

/// The last values by id. Ids are uniformly distributed, and chosen by this process.
pub(super) struct Ring<T> {
    values: Vec<(DecisionId, T)>,
    /// The maximum number of values: a power of two.
    capacity: usize,
    /// The number of the next value. The first is one, so that an empty slot of the index is out of range.
    next: u64,
    /// The low bits of the numbers, in buckets by id. Empty before the first lookup.
    index: Vec<[u32; BUCKET_SLOTS]>,
    /// The first number that is not in the index.
    unindexed: u64,
    /// Numbers whose buckets were full.
    overflow: HashMap<DecisionId, u64>,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two();
        Self {
            values: Vec::new(),
            capacity,
            next: 1,
            index: Vec::new(),
            unindexed: 1,
            overflow: HashMap::new(),
        }
    }

    /// Returns the newest value of an id.
    pub(super) fn get_mut(&mut self, id: DecisionId) -> Option<&mut T> {
        let number = self.find(id)?;
        let place = self.place(number);
        self.values.get_mut(place).map(|(_, value)| value)
    }

    /// Adds a value. If there are too many, it replaces the oldest one that `is_kept` does not make the newest.
    pub(super) fn insert(&mut self, id: DecisionId, value: T, mut is_kept: impl FnMut(&mut T) -> bool) {
        if self.values.len() < self.capacity {
            self.values.push((id, value));
            self.next += 1;
            return;
        }
        loop {
            let (place, number) = (self.place(self.next), self.oldest());
            let (oldest, old) = &mut self.values[place];
            let oldest = *oldest;
            // A value whose id was added again is not the newest one of its id.
            let stays = is_kept(old) && self.find(oldest) == Some(number);
            if !self.overflow.is_empty() && self.overflow.get(&oldest) == Some(&number) {
                self.overflow.remove(&oldest);
            }
            self.next += 1;
            if !stays {
                self.values[place] = (id, value);
                // The next value replaces the one after, which was written long ago.
                if let Some(next) = self.values.get(self.place(self.next)) {
                    prefetch(next);
                }
                return;
            }
        }
    }

    /// Returns the number of the oldest value, or the next number if there is none.
    const fn oldest(&self) -> u64 {
        self.next - self.values.len() as u64
    }

    /// Returns the place of a number.
    #[allow(clippy::cast_possible_truncation, reason = "less than the capacity")]
    fn place(&self, number: u64) -> usize {
        ((number - 1) & (self.capacity as u64 - 1)) as usize
    }

    /// Returns the number of the newest value of an id.
    fn find(&mut self, id: DecisionId) -> Option<u64> {
        self.index_new_values();
        let in_overflow = if self.overflow.is_empty() { None } else { self.overflow.get(&id).copied() };
        let slots = self.index.get(self.bucket(id)?)?;
        let in_bucket = slots.iter().filter_map(|low| self.number(*low));
        let is_same = |number: &u64| self.values.get(self.place(*number)).is_some_and(|it| it.0 == id);
        in_bucket.chain(in_overflow).filter(is_same).max()
    }

    /// Indexes the values that were added since the last lookup.
    fn index_new_values(&mut self) {
        if self.unindexed == self.next {
            return;
        }
        if self.index.is_empty() {
            self.index = vec![[0; BUCKET_SLOTS]; (self.capacity / IDS_PER_BUCKET).max(1)];
        }
        for number in self.oldest().max(self.unindexed)..self.next {
            self.index_value(number);
        }
        self.unindexed = self.next;
    }

    /// Adds a number to the bucket of its id.
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    fn index_value(&mut self, number: u64) {
        let Some((id, _)) = self.values.get(self.place(number)) else { return };
        let (id, oldest) = (*id, self.oldest());
        let Some(bucket) = self.bucket(id) else { return };
        let is_free = |low: &&mut u32| low.wrapping_sub(oldest as u32) >= (number - oldest) as u32;
        match self.index[bucket].iter_mut().find(is_free) {
            Some(slot) => *slot = number as u32,
            None => drop(self.overflow.insert(id, number)),
        }
    }

    fn bucket(&self, id: DecisionId) -> Option<usize> {
        let mask = self.index.len().checked_sub(1)? as u64;
        usize::try_from(id.0 & mask).ok()
    }

    /// Returns the number with these low bits, if it is in the ring.
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    fn number(&self, low: u32) -> Option<u64> {
        let oldest = self.oldest();
        let after = low.wrapping_sub(oldest as u32);
        (u64::from(after) < self.values.len() as u64).then(|| oldest + u64::from(after))
    }

    /// Returns the number of values that are found by their ids.
    #[cfg(test)]
    pub(super) fn known(&mut self) -> usize {
        let ids: Vec<_> = self.values.iter().map(|(id, _)| *id).collect();
        let is_newest =
            |(place, id): (usize, DecisionId)| self.find(id).map(|it| self.place(it)) == Some(place);
        ids.into_iter().enumerate().map(is_newest).filter(|it| *it).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bijection with uniformly distributed results.
    const fn id(number: u64) -> DecisionId {
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        DecisionId((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb))
    }

    #[test]
    fn the_last_values_are_found_and_no_others() {
        for capacity in [1, 2, 64, 4_096] {
            // Also where the low bits of numbers wrap around.
            for start in [1, u64::from(u32::MAX) - 3 * capacity as u64] {
                let mut ring = Ring::new(capacity);
                // A multiple of the capacity later, places are the same.
                ring.next = start / capacity as u64 * capacity as u64 + 1;
                ring.unindexed = ring.next;
                for number in 0..5 * capacity as u64 {
                    ring.insert(id(number), number, |_| false);
                    for known in number.saturating_sub(capacity as u64 + 2)..=number + 1 {
                        let is_known = known <= number && known + capacity as u64 > number;
                        let expected = is_known.then_some(known);
                        if capacity <= 64 || known % 61 == 0 {
                            assert_eq!(ring.get_mut(id(known)).copied(), expected, "{known} after {number}");
                        }
                    }
                }
                assert_eq!(ring.known(), capacity);
            }
        }
    }

    #[test]
    fn values_are_found_however_many_were_added_since_the_last_lookup() {
        let mut ring = Ring::new(64);
        let mut added = 0;
        for count in [1, 5, 63, 64, 65, 1_000, 1, 130, 0, 64] {
            (added..added + count).for_each(|number| ring.insert(id(number), number, |_| false));
            added += count;
            let known = (0..added).filter(|number| ring.get_mut(id(*number)) == Some(&mut number.clone()));
            assert!(known.eq(added.saturating_sub(64)..added), "after {count} of {added}");
        }
    }

    #[test]
    fn full_buckets_lose_no_value() {
        let mut ring = Ring::new(1_024);
        // All in one bucket.
        let same = |number: u64| DecisionId(number << 32);
        for number in 0..3_000 {
            ring.insert(same(number), number, |_| false);
        }
        assert_eq!(ring.get_mut(same(2_999)), Some(&mut 2_999));
        assert!(ring.overflow.len() >= 1_024 - BUCKET_SLOTS);
        for number in 0..3_000 {
            let expected = (number >= 3_000 - 1_024).then_some(number);
            assert_eq!(ring.get_mut(same(number)).copied(), expected, "{number}");
        }
        for number in 3_000..5_000 {
            ring.insert(id(number), number, |_| false);
        }
        assert!(ring.overflow.is_empty(), "{} remain", ring.overflow.len());
    }

    #[test]
    fn a_value_that_is_kept_becomes_the_newest() {
        let mut ring = Ring::new(4);
        (0..4).for_each(|number| ring.insert(id(number), number, |_| false));
        ring.insert(id(4), 4, |value| *value < 2);
        let known: Vec<_> = (0..5).filter(|number| ring.get_mut(id(*number)).is_some()).collect();
        assert_eq!(known, [0, 1, 3, 4]);
        // The id was added again, so its first value does not come back.
        ring.insert(id(3), 30, |value| *value == 3);
        assert_eq!(ring.get_mut(id(3)), Some(&mut 30));
    }
}
