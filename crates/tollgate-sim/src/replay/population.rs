//! Counts distinct keys, refused keys, and ranks the keys with the most refusals.
//!
//! Not here: names of keys (`tollgate::policy`), mapping requests to keys.

use tollgate_telemetry::Sketch;

use super::report::{Keys, TopKey};
use crate::sample::{Sample, Weighs};

/// The most keys that the ranking tracks. A key with more than one in this many refusals is always ranked.
const MAX_RANKED_KEYS: usize = 1_024;

/// The keys of a limit, or the clients of a log.
#[derive(Debug)]
pub(super) struct Population {
    keys: Sample<KeyHistory>,
    /// Totals over all keys.
    all: KeyHistory,
    /// Created at the first refusal, because most limits never refuse.
    worst: Option<Sketch<String>>,
}

/// Counts of one key.
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
    /// Creates counts that are exact up to this many keys and estimated beyond.
    pub(super) fn new(most: usize) -> Self {
        Self { keys: Sample::new(most), all: KeyHistory::default(), worst: None }
    }

    /// Counts a request of a key. `name` is called when the key enters the ranking.
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
        // An estimate never exceeds the number of requests.
        let scaled = |keys, most| self.keys.scaled(keys).min(most);
        let (seen, refused) = (scaled(seen, self.all.requests), scaled(refused, self.all.refused));
        Keys { seen, refused, estimated: self.keys.is_thinned() }
    }

    /// Returns the keys with the most refusals in descending order, ties by name.
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
    fn the_key_with_the_most_refusals_is_ranked_with_all_of_its_requests() {
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
    fn estimates_never_exceed_requests_or_refusals() {
        for keys in 65_u64..400 {
            let mut population = Population::new(64);
            (0..keys)
                .for_each(|key| population.met(key_hash(&key.to_le_bytes()), key < 5, || key.to_string()));
            let counted = population.keys();
            assert!(counted.estimated && counted.seen <= keys && counted.refused <= 5, "{keys}: {counted:?}");
        }
    }

    #[test]
    fn the_key_with_the_most_refusals_is_found_among_more_keys_than_fit() {
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
