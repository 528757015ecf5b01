//! Delays between attempts: doubled after each failure, with jitter.

use std::time::Duration;

const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The delay before the next attempt.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    rng: u64,
}

impl Backoff {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { failures: 0, rng: seed }
    }

    /// The last attempt worked, so the next delay is short.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns a delay between the half and the whole of the present one, and doubles it. Servers that
    /// restart are not called by all clients at once.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let whole = MIN_DELAY.saturating_mul(1 << self.failures.min(16)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        let half = whole / 2;
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        half + Duration::from_micros(self.next_random() % micros)
    }

    /// Returns the next number of `SplitMix64`.
    const fn next_random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.rng ^ (self.rng >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_differ_by_seed() {
        let delays = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..12).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        let (one, other) = (delays(1), delays(2));
        assert_ne!(one, other);
        for (at, delay) in one.iter().chain(&other).enumerate() {
            let whole = (MIN_DELAY * (1 << (at % 12))).min(MAX_DELAY);
            assert!((whole / 2..=whole).contains(delay), "{at}: {delay:?}");
        }
        let mut backoff = Backoff::new(7);
        (0..20).for_each(|_| _ = backoff.next_delay());
        backoff.reset();
        assert!(backoff.next_delay() <= MIN_DELAY);
    }
}
