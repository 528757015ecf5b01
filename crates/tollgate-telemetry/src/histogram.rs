//! Histograms with fixed buckets.
//!
//! Values are integers of a small unit (microseconds, per mille), so sums are exact; only the output
//! divides.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stripes::Adder;

/// The inclusive upper bounds of buckets. Values above the last bound fall into the last bucket.
#[derive(Debug)]
pub(crate) struct Scale<const N: usize> {
    pub(crate) bounds: [u64; N],
    /// The number of units in one unit of the output.
    pub(crate) per_one: u64,
}

/// The bound of a bucket that has no upper bound.
pub(crate) const UNBOUNDED: u64 = u64::MAX;

/// Latencies of decisions and of the store, in microseconds.
pub(crate) static LATENCY: Scale<20> = Scale {
    bounds: [
        1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
        500_000, 1_000_000, UNBOUNDED,
    ],
    per_one: 1_000_000,
};

/// Waits in microseconds, from a tenth of a second to a day.
pub(crate) static WAIT: Scale<12> = Scale {
    bounds: [
        100_000,
        500_000,
        1_000_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
        900_000_000,
        3_600_000_000,
        86_400_000_000,
        UNBOUNDED,
    ],
    per_one: 1_000_000,
};

/// Waits in queues in microseconds, from a millisecond to an hour.
pub(crate) static QUEUE_WAIT: Scale<16> = Scale {
    bounds: [
        1_000,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        60_000_000,
        300_000_000,
        3_600_000_000,
        UNBOUNDED,
    ],
    per_one: 1_000_000,
};

/// The remaining share of an allowance, in per mille.
pub(crate) static SHARE: Scale<7> = Scale { bounds: [0, 100, 250, 500, 750, 900, 1000], per_one: 1000 };

/// The bucket of each share in per mille.
static SHARE_BUCKETS: [u8; 1001] = {
    let (mut buckets, mut share, mut bucket) = ([0; 1001], 0, 0);
    while share < buckets.len() {
        if share as u64 > SHARE.bounds[bucket as usize] {
            bucket += 1;
        }
        buckets[share] = bucket;
        share += 1;
    }
    buckets
};

impl<const N: usize> Scale<N> {
    #[inline]
    fn bucket(&self, value: u64) -> usize {
        if N <= 12 {
            // To compare with few bounds takes less than a branch for each. The bounds ascend.
            let exceeded: usize = self.bounds.iter().map(|&bound| usize::from(value > bound)).sum();
            return exceeded.min(N - 1);
        }
        self.bounds.iter().position(|&bound| value <= bound).unwrap_or(N - 1)
    }
}

/// The counters of one stripe.
pub(crate) struct Histogram<const N: usize> {
    buckets: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl Histogram<7> {
    /// Counts a share in per mille ([`SHARE`]). Every limit of every request has one, and a table takes less than
    /// comparisons.
    #[inline]
    pub(crate) fn put_share(&self, share: u16, adder: Adder) {
        let bucket = SHARE_BUCKETS.get(usize::from(share)).map_or(6, |bucket| usize::from(*bucket));
        // Every bucket of the table is one of these.
        if let Some(bucket) = self.buckets.get(bucket) {
            adder.add(bucket, 1);
        }
        adder.add(&self.sum, share.into());
    }
}

impl<const N: usize> Histogram<N> {
    #[inline]
    pub(crate) fn put(&self, scale: &Scale<N>, value: u64, adder: Adder) {
        adder.add(&self.buckets[scale.bucket(value)], 1);
        adder.add(&self.sum, value);
    }
}

/// A snapshot of a histogram, summed over all stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread<const N: usize> {
    pub(crate) buckets: [u64; N],
    pub(crate) sum: u64,
}

impl<const N: usize> Default for Spread<N> {
    fn default() -> Self {
        Self { buckets: [0; N], sum: 0 }
    }
}

impl<const N: usize> Spread<N> {
    pub(crate) fn of<'h>(stripes: impl Iterator<Item = &'h Histogram<N>>) -> Self {
        stripes.fold(Self::default(), |so_far, stripe| {
            let stripe = Self {
                buckets: array::from_fn(|at| stripe.buckets[at].load(Ordering::Relaxed)),
                sum: stripe.sum.load(Ordering::Relaxed),
            };
            so_far.plus(&stripe)
        })
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            buckets: array::from_fn(|at| self.buckets[at].wrapping_add(other.buckets[at])),
            sum: self.sum.wrapping_add(other.sum),
        }
    }

    /// Returns the values recorded since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            buckets: array::from_fn(|at| self.buckets[at].saturating_sub(before.buckets[at])),
            sum: self.sum.saturating_sub(before.sum),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the upper bound of the bucket that contains the percentile; `None` if there are no
    /// values. Values above all bounds are reported as the highest bound.
    pub(crate) fn quantile(&self, scale: &Scale<N>, percent: u64) -> Option<u64> {
        let count = self.count();
        let wanted = (u128::from(count) * u128::from(percent)).div_ceil(100);
        let mut below = 0;
        let bucket = self.buckets.iter().position(|&bucket| {
            below += u128::from(bucket);
            count > 0 && below >= wanted
        })?;
        scale.bounds[..=bucket].iter().rev().find(|&&bound| bound != UNBOUNDED).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread<const N: usize>(scale: &Scale<N>, values: &[u64]) -> Spread<N> {
        let histogram = Histogram::default();
        for &value in values {
            histogram.put(scale, value, Adder::SHARED);
        }
        Spread::of([&histogram].into_iter())
    }

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        assert_eq!(spread(&SHARE, &[0, 1, 100, 101, 900, 901, 1000]).buckets, [1, 2, 1, 0, 0, 1, 2]);
        assert_eq!(spread(&LATENCY, &[0, 1, 2, 1_000_001, u64::MAX - 1]).buckets[..2], [2, 1]);
        assert_eq!(spread(&LATENCY, &[1_000_001, 2_000_000]).buckets[19], 2);
    }

    #[test]
    fn a_quantile_is_the_upper_bound_of_its_bucket() {
        let hundred: Vec<u64> = (1..=100).collect();
        let spread_of = |values: &[u64]| spread(&LATENCY, values);
        let found = [50, 90, 99].map(|percent| spread_of(&hundred).quantile(&LATENCY, percent));
        assert_eq!(found, [Some(50), Some(100), Some(100)]);
        assert_eq!(spread_of(&[]).quantile(&LATENCY, 50), None);
        assert_eq!(spread_of(&[9_000_000]).quantile(&LATENCY, 50), Some(1_000_000));
        assert_eq!(spread_of(&[1, 1, 1, 600]).quantile(&LATENCY, 50), Some(1));
    }
}
