//! Whose requests they are: names in an order that nobody can guess, and the same in every run.

use std::sync::Arc;

/// The names that ask, cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys(Arc<[String]>);

impl Keys {
    /// So many different ones, all of one length.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|number| format!("user-{number:05}")).collect())
    }

    /// All of them.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// Whose turn it is: each is as likely as any other.
    pub fn pick(&self, task: usize, turn: u64) -> &str {
        let number = mixed(turn.wrapping_mul(0x1_0000_0001).wrapping_add(task as u64));
        // The high half of the product: no division, and no bias worth a thought.
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
    fn every_key_has_about_as_many_turns() {
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
