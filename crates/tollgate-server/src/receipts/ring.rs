//! The last values in the order of their arrival, found by their id.
//!
//! Values are numbered, and number `n` is at place `n % capacity`, so the newest value replaces the oldest one where it is.
//! An index has the numbers of the ids in buckets of one cache line. It is not cleared: a number that was replaced is out
//! of range. Adding a value therefore touches one line of the index and the place of the value. A hash table touched two
//! lines to remove the oldest id and two to add the newest, at random places of three times the memory.
//!
//! Not here: the meaning of values (`receipts`).
//!
//! Invariant: the last `capacity` values are found, and no others.
//! Tested by `the_last_values_are_found_and_no_others`.

use std::collections::HashMap;

use tollgate::DecisionId;

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
    /// The low bits of the numbers, in buckets by id. Empty before the first value.
    index: Vec<[u32; BUCKET_SLOTS]>,
    /// Numbers whose buckets were full.
    overflow: HashMap<DecisionId, u64>,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two();
        Self { values: Vec::new(), capacity, next: 1, index: Vec::new(), overflow: HashMap::new() }
    }

    /// Returns the newest value of an id.
    pub(super) fn get_mut(&mut self, id: DecisionId) -> Option<&mut T> {
        let place = self.place(self.find(id)?);
        self.values.get_mut(place).map(|(_, value)| value)
    }

    /// Adds a value. If there are too many, it replaces the oldest one that `is_kept` does not make the newest.
    pub(super) fn insert(&mut self, id: DecisionId, value: T, mut is_kept: impl FnMut(&mut T) -> bool) {
        if self.values.len() < self.capacity {
            self.note(id);
            self.values.push((id, value));
            self.next += 1;
            return;
        }
        loop {
            let (place, number) = (self.place(self.next), self.next - self.capacity as u64);
            let (oldest, old) = &mut self.values[place];
            let oldest = *oldest;
            // A value whose id was added again is not the newest one of its id.
            let stays = is_kept(old) && self.find(oldest) == Some(number);
            if !self.overflow.is_empty() && self.overflow.get(&oldest) == Some(&number) {
                self.overflow.remove(&oldest);
            }
            if !stays {
                self.note(id);
                self.values[place] = (id, value);
                self.next += 1;
                return;
            }
            self.note(oldest);
            self.next += 1;
        }
    }

    /// Returns the place of a number.
    #[allow(clippy::cast_possible_truncation, reason = "less than the capacity")]
    fn place(&self, number: u64) -> usize {
        ((number - 1) & (self.capacity as u64 - 1)) as usize
    }

    /// Returns the number of the newest value of an id.
    fn find(&self, id: DecisionId) -> Option<u64> {
        let in_overflow = if self.overflow.is_empty() { None } else { self.overflow.get(&id).copied() };
        let slots = self.index.get(self.bucket(id)?)?;
        let in_bucket = slots.iter().filter_map(|low| self.number(*low));
        let is_same = |number: &u64| self.values.get(self.place(*number)).is_some_and(|it| it.0 == id);
        in_bucket.chain(in_overflow).filter(is_same).max()
    }

    /// Adds the next number to the bucket of its id.
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    fn note(&mut self, id: DecisionId) {
        if self.index.is_empty() {
            self.index = vec![[0; BUCKET_SLOTS]; (self.capacity / IDS_PER_BUCKET).max(1)];
        }
        let (number, oldest) = (self.next, self.next - self.values.len() as u64);
        // At capacity, the oldest number is replaced by this one.
        let oldest = if self.values.len() < self.capacity { oldest } else { oldest + 1 };
        let range = (oldest as u32, (number - oldest) as u32);
        let Some(bucket) = self.bucket(id) else { return };
        let is_free = |low: &&mut u32| low.wrapping_sub(range.0) >= range.1;
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
        let oldest = self.next - self.values.len() as u64;
        let after = low.wrapping_sub(oldest as u32);
        (u64::from(after) < self.values.len() as u64).then(|| oldest + u64::from(after))
    }

    /// Returns the number of values that are found by their ids.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        let numbered = self.values.iter().enumerate();
        numbered.filter(|(place, (id, _))| self.find(*id).map(|it| self.place(it)) == Some(*place)).count()
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
    fn full_buckets_lose_no_value() {
        let mut ring = Ring::new(1_024);
        // All in one bucket.
        let same = |number: u64| DecisionId(number << 32);
        for number in 0..3_000 {
            ring.insert(same(number), number, |_| false);
        }
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
