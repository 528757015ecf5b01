//! Runs a property on many random, reproducible inputs.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// The result of a property for one input.
pub(crate) type Holds = Result<(), TestCaseError>;

#[allow(clippy::disallowed_methods, reason = "a test is the binary here: it reads its seed once, at start")]
fn seed() -> u64 {
    std::env::var("TOLLGATE_SEED").map_or(2026, |seed| seed.parse().expect("TOLLGATE_SEED is a whole number"))
}

/// Checks `property` on `cases` inputs. A failure prints the seed and the smallest failing input.
#[track_caller]
pub(crate) fn check<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value) -> Holds) {
    let seed = seed();
    let rng_seed = RngSeed::Fixed(seed);
    let mut runner =
        TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() });
    let failure = runner.run(&inputs, property).err();
    assert!(failure.is_none(), "with TOLLGATE_SEED={seed}: {}", failure.expect("checked above"));
}
