//! The source of random numbers of a limiter: the operating system, or a seed.
//!
//! Ids, owners of slots, the jitter of probes and the order of the ledger are random. With a seed, two limiters that
//! get the same calls and the same times do the same, which a simulation of faults needs to repeat a run.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// The source of random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Randomness {
    /// Numbers that another process cannot guess.
    #[default]
    System,
    /// Numbers that follow from this one.
    #[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only limiters are seeded"))]
    Seed(u64),
}

impl Randomness {
    /// Returns hash keys for one purpose. Two purposes have different keys.
    pub(crate) fn hash_keys(self, purpose: u64) -> HashKeys {
        match self {
            Self::System => HashKeys::System(RandomState::new()),
            Self::Seed(seed) => HashKeys::Seeded([seed, purpose]),
        }
    }
}

/// The keys of a hash function.
#[derive(Clone, Debug)]
pub(crate) enum HashKeys {
    System(RandomState),
    Seeded([u64; 2]),
}

impl BuildHasher for HashKeys {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match self {
            Self::System(state) => state.build_hasher(),
            Self::Seeded([seed, purpose]) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*seed);
                hasher.write_u64(*purpose);
                hasher
            }
        }
    }
}
