//! Measures the size of the state of a key.
//!
//! A store does not expose its states, so the states of some keys are computed here with the same algorithm and
//! amounts. The size is that of the encoded state (`State::encode`), without the overhead of a store.

use std::collections::HashMap;

use tollgate::{Amount, Quota, State, Timestamp};

/// The most keys that are measured: the first ones.
const MAX_WATCHED_KEYS: usize = 256;

/// States of some keys.
#[derive(Default)]
pub(super) struct Sizes {
    states: HashMap<u64, State>,
    largest: usize,
}

impl Sizes {
    /// Applies a request to the state of a key.
    pub(super) fn request(&mut self, quota: &Quota, key: u64, cost: u64, at: Timestamp) {
        if self.states.len() >= MAX_WATCHED_KEYS && !self.states.contains_key(&key) {
            return;
        }
        let state = self.states.entry(key).or_insert_with(|| quota.fresh());
        if quota.acquire(state, Amount::Exactly(cost), at).is_admitted() {
            self.largest = self.largest.max(state.encode().len());
        }
    }

    /// Returns the largest size, in bytes.
    pub(super) const fn largest(&self) -> usize {
        self.largest
    }
}
