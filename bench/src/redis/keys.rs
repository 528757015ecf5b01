//! Keys in a pseudo-random order that is the same in every run.

use std::sync::Arc;

/// The keys, cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys(Arc<[String]>);

impl Keys {
    /// Creates this many different keys of the same length.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|number| format!("user-{number:05}")).collect())
    }

    /// Returns all keys.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// Returns the key of a request, uniformly distributed.
    pub fn pick(&self, task: usize, turn: u64) -> &str {
        let number = mixed(turn.wrapping_mul(0x1_0000_0001).wrapping_add(task as u64));
        // The high half of the product: no division, and a negligible bias.
        let at = (u128::from(number) * self.0.len() as u128) >> 64;
        &self.0[usize::try_from(at).unwrap_or_default()]
    }
}

/// The finalizer of `SplitMix64`.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Keys;

    #[test]
    fn keys_are_uniformly_distributed() {
        let keys = Keys::new(100);
        let mut turns = BTreeMap::new();
        for task in 0..256 {
            for turn in 0..400 {
                *turns.entry(keys.pick(task, turn)).or_insert(0) += 1;
            }
        }
        assert_eq!(turns.len(), 100);
        assert!(turns.values().all(|count| (900..1_150).contains(count)), "{turns:?}");
    }
}
