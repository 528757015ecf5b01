//! A rate limit for samples in one atomic number.
//!
//! Records of admitted requests are a sample, so a lost race is not retried.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Timestamp;

const SECOND: u64 = 1_000_000;

/// Admits a number of samples per second, with a burst of one second.
pub(crate) struct RateSampler {
    /// The interval between two samples in microseconds.
    apart: u64,
    /// The time at which the full burst is available again, in microseconds.
    full: AtomicU64,
}

impl RateSampler {
    pub(crate) fn per_second(count: u64) -> Self {
        Self { apart: SECOND / count.max(1), full: AtomicU64::new(0) }
    }

    /// Whether a sample is available. Takes nothing.
    #[inline]
    pub(crate) fn has_room(&self, at: Timestamp) -> bool {
        self.full.load(Ordering::Relaxed) <= at.as_micros().saturating_add(SECOND - self.apart)
    }

    /// Takes a sample if one is available.
    pub(crate) fn take(&self, at: Timestamp) -> bool {
        let full = self.full.load(Ordering::Relaxed);
        let now = at.as_micros();
        // A clock that stepped back by more than a second must not stop the sampler until it catches
        // up.
        let base = if full > now.saturating_add(2 * SECOND) { now } else { full.max(now) };
        let next = base.saturating_add(self.apart);
        next <= now.saturating_add(SECOND)
            // Relaxed, because only this number is shared.
            && self.full.compare_exchange(full, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampler_admits_its_rate_and_refills_over_time() {
        let pace = RateSampler::per_second(20);
        let takes = |at: Timestamp| (0..100).filter(|_| pace.has_room(at) && pace.take(at)).count();
        assert_eq!(takes(Timestamp::from_secs(1_000)), 20);
        assert_eq!(takes(Timestamp::from_micros(1_000_100_000)), 2);
        assert_eq!(takes(Timestamp::from_secs(2_000)), 20);
    }
}
