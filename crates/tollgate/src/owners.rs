//! Owners of slots.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Owner;

use crate::randomness::{HashKeys, Randomness};

/// Generates owners of slots: a counter, hashed with keys of this process. A caller that knows the
/// owners of its own slots cannot guess others and release their slots.
pub(crate) struct Owners {
    hashers: [HashKeys; 2],
    next: AtomicU64,
}

impl Default for Owners {
    fn default() -> Self {
        Self::new(Randomness::System)
    }
}

impl Owners {
    pub(crate) fn new(randomness: Randomness) -> Self {
        Self { hashers: [0, 1].map(|half| randomness.hash_keys(half)), next: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> Owner {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let [high, low] = &self.hashers;
        // `RandomState::new` increments its keys, so the two halves also hash different values.
        Owner(u128::from(high.hash_one(count)) << 64 | u128::from(low.hash_one((1u8, count))))
    }
}
