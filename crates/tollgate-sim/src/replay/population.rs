//! Who: how many different keys came, how many of them were refused, and the ones that were refused most.
//!
//! Not here: what keys are called (`tollgate::policy`), which requests are theirs.

use tollgate_telemetry::Sketch;

use super::report::{Keys, TopKey};
use crate::sample::{Sample, Weighs};

/// How many keys compete for the list of the worst. Whoever has more than one in so many of the refusals is on it.
const MAX_RANKED_KEYS: usize = 1_024;

/// The keys of a limit, or the clients of a log.
#[derive(Debug)]
pub(super) struct Population {
    keys: Sample<KeyHistory>,
    /// Of all keys.
    all: KeyHistory,
    /// Made when the first one is refused: most limits of most policies refuse nobody.
    worst: Option<Sketch<String>>,
}

/// What one key did.
#[derive(Clone, Copy, Debug, Default)]
struct KeyHistory {
    requests: u64,
    refused: u64,
}

impl KeyHistory {
    fn note(&mut self, refused: bool) {
        self.requests += 1;
        self.refused += u64::from(refused);
    }
}

impl Weighs for KeyHistory {
    fn weight(&self) -> usize {
        1
    }
}

impl Population {
    /// Room for so many keys before they are estimated.
    pub(super) fn new(most: usize) -> Self {
        Self { keys: Sample::new(most), all: KeyHistory::default(), worst: None }
    }

    /// A request of a key. `name` is asked for when it comes onto the list of the worst.
    pub(super) fn met(&mut self, key_hash: u64, refused: bool, name: impl FnOnce() -> String) {
        self.all.note(refused);
        self.keys.with(key_hash, KeyHistory::default, |met| met.note(refused));
        if refused {
            self.worst.get_or_insert_with(|| Sketch::new(MAX_RANKED_KEYS)).add(key_hash, 1, false, name);
        }
    }

    pub(super) fn keys(&self) -> Keys {
        let (mut seen, mut refused) = (0, 0);
        for met in self.keys.values() {
            seen += 1;
            refused += u64::from(met.refused > 0);
        }
        // There are never more keys than requests, however they are estimated.
        let scaled = |keys, most| self.keys.scaled(keys).min(most);
        let (seen, refused) = (scaled(seen, self.all.requests), scaled(refused, self.all.refused));
        Keys { seen, refused, estimated: self.keys.is_thinned() }
    }

    /// The keys with the most refusals, the worst first; of equals, in the order of their names.
    pub(super) fn top(&self, most: usize) -> Vec<TopKey> {
        let Some(worst) = &self.worst else { return Vec::new() };
        let mut top: Vec<_> = worst
            .entries()
            .iter()
            .map(|entry| {
                let key = entry.payload.clone();
                match self.keys.get(entry.key_hash) {
                    Some(&KeyHistory { requests, refused }) => {
                        TopKey { key, requests, refused, estimated: false }
                    }
                    None => TopKey { key, requests: 0, refused: entry.count - entry.error, estimated: true },
                }
            })
            .collect();
        top.sort_by(|a, b| b.refused.cmp(&a.refused).then_with(|| a.key.cmp(&b.key)));
        top.truncate(most);
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::key_hash;

    #[test]
    fn who_is_refused_most_is_named_with_all_that_it_asked() {
        let mut population = Population::new(100);
        for request in 0_u64..90 {
            let key = request % 3;
            population.met(key_hash(&key.to_le_bytes()), request % 9 == 1, || format!("key {key}"));
        }
        let keys = population.keys();
        assert_eq!((keys.seen, keys.refused, keys.estimated), (3, 1, false));
        let top = population.top(5);
        assert_eq!(top.len(), 1);
        assert_eq!((&*top[0].key, top[0].requests, top[0].refused), ("key 1", 30, 10));
    }

    #[test]
    fn estimates_are_never_more_than_came_or_were_refused() {
        for keys in 65_u64..400 {
            let mut population = Population::new(64);
            (0..keys)
                .for_each(|key| population.met(key_hash(&key.to_le_bytes()), key < 5, || key.to_string()));
            let told = population.keys();
            assert!(told.estimated && told.seen <= keys && told.refused <= 5, "{keys}: {told:?}");
        }
    }

    #[test]
    fn the_worst_is_found_among_more_keys_than_are_remembered() {
        let mut population = Population::new(64);
        for request in 0_u64..40_000 {
            let key = if request % 10 == 0 { u64::MAX } else { request };
            population.met(key_hash(&key.to_le_bytes()), true, || key.to_string());
        }
        let top = population.top(1);
        assert_eq!(top[0].key, u64::MAX.to_string());
        assert!(population.keys().estimated && (3_900..=4_000).contains(&top[0].refused));
    }
}
