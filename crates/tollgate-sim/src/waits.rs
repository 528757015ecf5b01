//! The distribution of waits in the queue of a limit, in bounded memory.
//!
//! Waits are counted in buckets that grow with the wait: a quantile is at most one part in 128 too large.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate::Span;

/// The bits of a wait that a bucket distinguishes.
const PRECISION: u32 = 7;
/// The number of buckets for each power of two.
const PER_POWER: u64 = 1 << PRECISION;

/// The waits of admitted requests in the queue of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Waits {
    /// Requests that had to wait.
    pub delayed: u64,
    /// Half of these waited for at most this long, in milliseconds, rounded up.
    pub p50_ms: u64,
    /// 90 of 100 of these waited for at most this long, in milliseconds, rounded up.
    pub p90_ms: u64,
    /// 99 of 100 of these waited for at most this long, in milliseconds, rounded up.
    pub p99_ms: u64,
    /// The longest wait in milliseconds, rounded up.
    pub max_ms: u64,
}

/// Counts waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitCounter {
    /// By bucket; only as many as the longest wait needs.
    counts: Vec<u64>,
    delayed: u64,
    max: u64,
}

impl WaitCounter {
    /// Counts a wait, unless the request started immediately.
    pub(crate) fn put(&mut self, wait: Span) {
        if wait.is_zero() {
            return;
        }
        let micros = wait.as_micros();
        let bucket = bucket(micros);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.delayed += 1;
        self.max = self.max.max(micros);
    }

    /// Returns the distribution.
    pub(crate) fn waits(&self) -> Waits {
        let millis = |micros: u64| micros.div_ceil(1_000);
        let quantile = |percent| millis(self.quantile(percent));
        Waits {
            delayed: self.delayed,
            p50_ms: quantile(50),
            p90_ms: quantile(90),
            p99_ms: quantile(99),
            max_ms: millis(self.max),
        }
    }

    /// Returns the wait of which this many percent are not longer, in microseconds.
    fn quantile(&self, percent: u64) -> u64 {
        let wanted = (u128::from(self.delayed) * u128::from(percent)).div_ceil(100);
        let mut so_far = 0;
        let found = self.counts.iter().position(|&count| {
            so_far += u128::from(count);
            so_far >= wanted && so_far > 0
        });
        found.map_or(0, |bucket| upper_bound(bucket as u64).min(self.max))
    }
}

/// Returns the bucket of a wait: one for each of the small numbers, then [`PER_POWER`] for each power of two.
fn bucket(micros: u64) -> usize {
    if micros < 2 * PER_POWER {
        return usize::try_from(micros).unwrap_or(usize::MAX);
    }
    let shift = micros.ilog2() - PRECISION;
    let bucket = u64::from(shift) * PER_POWER + (micros >> shift);
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// Returns the longest wait in a bucket.
fn upper_bound(bucket: u64) -> u64 {
    if bucket < 2 * PER_POWER {
        return bucket;
    }
    let shift = bucket / PER_POWER - 1;
    let first = bucket - shift * PER_POWER;
    ((first + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_waits_that_differ_by_less_than_one_part_in_128() {
        let mut last = 0;
        for micros in (0..100_000).chain((17..47).map(|power| (1 << power) + 12_345)) {
            let bucket = bucket(micros);
            let upper = upper_bound(bucket as u64);
            assert!(bucket >= last && micros <= upper && upper - micros <= micros / 128, "{micros}: {upper}");
            last = bucket;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_requests_that_waited() {
        let mut counter = WaitCounter::default();
        assert_eq!(counter.waits(), Waits::default());
        for millis in (0..=100).chain([0; 50]) {
            counter.put(Span::from_millis(millis));
        }
        let waits = counter.waits();
        assert_eq!((waits.delayed, waits.max_ms), (100, 100));
        assert_eq!((waits.p50_ms, waits.p90_ms, waits.p99_ms), (51, 91, 100), "one part in 128 too large");
    }
}
