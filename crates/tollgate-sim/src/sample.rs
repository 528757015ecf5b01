//! Values per key in bounded memory: of all keys while they fit, then of a sample of them.
//!
//! Keys are identified by a hash. When memory is full, every other key is dropped by a bit of its hash and ignored
//! from then on; when it is full again, every other of the remaining keys, and so on (Wegman's adaptive sampling). A
//! key in the sample was in it from its first request on, so its values are exact, and every key is equally likely to
//! be in the sample.
//!
//! Not here: the values.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState as Placed;
use foldhash::quality::FixedState;

/// Fixed seed: a key has the same hash in every run, so that reports are reproducible.
const SEED: u64 = 0x746f_6c6c_6761_7465;
/// The sparsest sample keeps one key in 2^this.
const MAX_SAMPLE_SHIFT: u32 = 30;
/// First of the hash bits that decide about the sample; hash tables use other bits.
const SAMPLE_BIT_OFFSET: u32 = 24;

/// Returns the hash that identifies a key.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    FixedState::with_seed(SEED).hash_one(key)
}

/// A value with a size.
pub(crate) trait Weighs {
    /// Returns the size, in units of the caller's choice.
    fn weight(&self) -> usize;
}

/// Values per key, of all keys or of a sample of them.
#[derive(Debug)]
pub(crate) struct Sample<T> {
    kept: HashMap<u64, T, Placed>,
    /// One key in 2^this is kept.
    rarity: u32,
    weight: usize,
    most: usize,
}

impl<T: Weighs> Sample<T> {
    /// Creates a sample that holds values up to this total weight.
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: HashMap::with_hasher(Placed::with_seed(SEED)), rarity: 0, weight: 0, most }
    }

    /// Applies a function to the value of a key. Returns `None` if the key is not in the sample.
    pub(crate) fn with<R>(
        &mut self,
        key_hash: u64,
        new: impl FnOnce() -> T,
        act: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        if !is_in(key_hash, self.rarity) {
            return None;
        }
        let mut before = 0;
        let kept = self.kept.entry(key_hash).and_modify(|known| before = known.weight()).or_insert_with(new);
        let result = act(kept);
        self.weight = self.weight + kept.weight() - before;
        while self.weight > self.most && self.rarity < MAX_SAMPLE_SHIFT {
            self.thin();
        }
        Some(result)
    }

    fn thin(&mut self) {
        self.rarity += 1;
        self.kept.retain(|&key_hash, _| is_in(key_hash, self.rarity));
        self.weight = self.kept.values().map(Weighs::weight).sum();
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key_hash: u64) -> Option<&T> {
        self.kept.get(&key_hash)
    }

    /// Returns the values of all keys in the sample.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.kept.values()
    }

    /// Whether some keys were dropped.
    pub(crate) const fn is_thinned(&self) -> bool {
        self.rarity > 0
    }

    /// Scales a number of sampled keys to an estimate for all keys.
    pub(crate) const fn scaled(&self, keys: u64) -> u64 {
        keys.saturating_mul(1 << self.rarity)
    }
}

const fn is_in(key_hash: u64, rarity: u32) -> bool {
    (key_hash >> SAMPLE_BIT_OFFSET) & ((1 << rarity) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Times(u64);

    impl Weighs for Times {
        fn weight(&self) -> usize {
            1
        }
    }

    fn fill(keys: u64, most: usize) -> Sample<Times> {
        let mut sample = Sample::new(most);
        for _ in 0..2 {
            for key in 0..keys {
                sample.with(key_hash(&key.to_le_bytes()), || Times(0), |times| times.0 += 1);
            }
        }
        sample
    }

    #[test]
    fn every_key_is_kept_while_there_is_room() {
        let sample = fill(1_000, 1_000);
        assert!(!sample.is_thinned() && sample.scaled(sample.values().count() as u64) == 1_000);
    }

    #[test]
    fn a_sample_is_bounded_fair_and_exact_for_its_keys() {
        let sample = fill(200_000, 4_096);
        let held = sample.values().count();
        assert!(sample.is_thinned() && held <= 4_096, "{held}");
        let estimate = sample.scaled(held as u64);
        assert!((185_000..215_000).contains(&estimate), "{estimate}");
        assert!(sample.values().all(|times| times.0 == 2));
    }
}
