//! Random tests with a fixed seed, so that a failure is reproducible on every machine.

use proptest::test_runner::{Config, RngSeed};

pub(crate) fn seeded(seed: u64, cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}
