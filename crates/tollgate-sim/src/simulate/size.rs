//! How large the state of a key gets.
//!
//! A store does not show its states, so those of some keys are stepped along here, by the same arithmetic and the same demands. The size is
//! that of a state as it is written (`State::encode`), without what a store adds to file it under its key.

use std::collections::HashMap;

use tollgate::{Amount, Quota, State, Timestamp};

/// So many keys are watched: the first.
const MAX_WATCHED_KEYS: usize = 256;

/// States of some keys.
#[derive(Default)]
pub(super) struct Sizes {
    states: HashMap<u64, State>,
    largest: usize,
}

impl Sizes {
    /// A key asks.
    pub(super) fn request(&mut self, quota: &Quota, key: u64, cost: u64, at: Timestamp) {
        if self.states.len() >= MAX_WATCHED_KEYS && !self.states.contains_key(&key) {
            return;
        }
        let state = self.states.entry(key).or_insert_with(|| quota.fresh());
        if quota.acquire(state, Amount::Exactly(cost), at).is_admitted() {
            self.largest = self.largest.max(state.encode().len());
        }
    }

    /// The most bytes that any of them took.
    pub(super) const fn largest(&self) -> usize {
        self.largest
    }
}
