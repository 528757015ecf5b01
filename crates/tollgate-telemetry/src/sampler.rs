//! So many in a second and no more, told from one atomic number.
//!
//! What is remembered of requests that pass is a sample, so losing a race costs nothing:
//! nobody tries again.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Timestamp;

const SECOND: u64 = 1_000_000;

/// So many in a second, and as many at once.
pub(crate) struct RateSampler {
    /// Microseconds between two.
    apart: u64,
    /// From when on a second's worth is there again.
    full: AtomicU64,
}

impl RateSampler {
    pub(crate) fn per_second(count: u64) -> Self {
        Self { apart: SECOND / count.max(1), full: AtomicU64::new(0) }
    }

    /// Whether one more may go. Nothing is taken.
    #[inline]
    pub(crate) fn has_room(&self, at: Timestamp) -> bool {
        self.full.load(Ordering::Relaxed) <= at.as_micros().saturating_add(SECOND - self.apart)
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&self, at: Timestamp) -> bool {
        let full = self.full.load(Ordering::Relaxed);
        let now = at.as_micros();
        // A clock that stepped back by more than a second must not stop it until then.
        let base = if full > now.saturating_add(2 * SECOND) { now } else { full.max(now) };
        let next = base.saturating_add(self.apart);
        next <= now.saturating_add(SECOND)
            // Only the number itself is told.
            && self.full.compare_exchange(full, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_pass_than_said_and_time_brings_them_back() {
        let pace = RateSampler::per_second(20);
        let takes = |at: Timestamp| (0..100).filter(|_| pace.has_room(at) && pace.take(at)).count();
        assert_eq!(takes(Timestamp::from_secs(1_000)), 20);
        assert_eq!(takes(Timestamp::from_micros(1_000_100_000)), 2);
        assert_eq!(takes(Timestamp::from_secs(2_000)), 20);
    }
}
