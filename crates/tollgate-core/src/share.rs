//! A part of a quota, for nodes or regions that divide it among themselves.

use crate::algorithm::{Algorithm, Bucket, Concurrency, FixedWindow, Queue, SlidingLog, SlidingWindow};
use crate::quota::Quota;
use crate::rate::{Rate, gcd};
use crate::time::Span;

impl Quota {
    /// Returns `part / whole` of the quota: of `L` units, `max(1, ⌊L·part/whole⌋)`, at the same part of its
    /// rate. A fraction of zero or above one counts as the nearest valid one.
    ///
    /// A rate is scaled exactly, so that 1 per minute becomes 1 per five minutes and not 0. If the result has
    /// no short form, units come one at a time, each slightly later than exact. Shares that add up to the
    /// whole therefore never admit more than the quota, except for the one unit of a share that
    /// would have none.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Quota, QuotaError, Rate};
    /// let quota = Quota::from(Bucket::new(Rate::per_minute(1_000))?);
    /// let share = quota.share(30, 100);
    /// assert_eq!((share.capacity(), share.period()), (300, quota.period()));
    /// # Ok::<(), QuotaError>(())
    /// ```
    #[must_use]
    pub fn share(&self, part: u64, whole: u64) -> Self {
        let whole = whole.max(1);
        Fraction { part: part.clamp(1, whole), whole }.of_quota(self)
    }
}

/// The fraction `part / whole`.
#[derive(Clone, Copy)]
struct Fraction {
    part: u64,
    whole: u64,
}

/// The longest period of a quota, in microseconds.
const MAX_PERIOD_US: u64 = 1 << 47;

impl Fraction {
    /// Scales a count, rounded down, to at least one.
    fn of_count(self, count: u64) -> u64 {
        let share = u128::from(count) * u128::from(self.part) / u128::from(self.whole);
        u64::try_from(share).unwrap_or(count).max(1)
    }

    fn of_rate(self, rate: Rate) -> Rate {
        Rate::new(self.of_count(rate.count), rate.period)
    }

    fn of_quota(self, quota: &Quota) -> Quota {
        // These cannot fail: a fraction of a valid quota is valid.
        let scaled = match quota {
            Quota::Bucket(it) => return self.of_bucket(it).into(),
            Quota::FixedWindow(it) if it.is_tally() => {
                // A share of a zero limit is zero.
                let limit = self.of_count(it.capacity()).min(it.capacity());
                FixedWindow::tally(limit, it.window().clone()).ok().map(Quota::from)
            }
            Quota::FixedWindow(it) => {
                FixedWindow::new(self.of_count(it.capacity()), it.window().clone()).ok().map(Quota::from)
            }
            Quota::SlidingWindow(it) => SlidingWindow::new(self.of_rate(it.rate())).ok().map(Quota::from),
            Quota::SlidingParts(it) => it.with_rate(self.of_rate(it.rate())).ok().map(Quota::from),
            Quota::SlidingLog(it) => SlidingLog::new(self.of_rate(it.rate())).ok().map(Quota::from),
            Quota::Concurrency(it) => {
                let slots = self.of_count(it.slots().into());
                let slots = u32::try_from(slots).unwrap_or(it.slots());
                Concurrency::new(slots, it.ttl()).ok().map(Quota::from)
            }
        };
        scaled.unwrap_or_else(|| quota.clone())
    }

    /// Scales a bucket: exactly if the rate has a short form, else one unit at a time, each
    /// slightly later than exact.
    fn of_bucket(self, bucket: &Bucket) -> Bucket {
        let (rate, burst) = (bucket.rate(), self.of_count(bucket.capacity()));
        let sized = |it: Bucket, burst: u64| match bucket.queue() {
            // The wait of a place is a time, which a share does not change.
            Some(queue) => {
                let free = self.of_count(queue.free).min(queue.free);
                it.with_queue(Queue { length: burst - 1, free, ..queue })
            }
            None => it.with_burst(burst),
        };
        let count = u128::from(rate.count) * u128::from(self.part);
        let period = u128::from(rate.period.as_micros()) * u128::from(self.whole);
        let common = gcd(count, period);
        let exact = || {
            let count = u64::try_from(count / common).ok()?;
            let period = Span::from_micros(u64::try_from(period / common).ok()?);
            sized(Bucket::new(Rate::new(count, period)).ok()?, burst).ok()
        };
        let apart = u64::try_from(period.div_ceil(count)).unwrap_or(MAX_PERIOD_US).clamp(1, MAX_PERIOD_US);
        let spaced = || {
            let burst = burst.min(MAX_PERIOD_US / apart).max(1);
            sized(Bucket::new(Rate::new(1, Span::from_micros(apart))).ok()?, burst).ok()
        };
        let scaled = exact().or_else(spaced).unwrap_or(*bucket);
        if bucket.is_shared() { scaled.shared() } else { scaled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::SlidingParts;

    fn fraction(percent: u64, nodes: u64) -> Fraction {
        Fraction { part: percent, whole: 100 * nodes }
    }

    fn bucket(count: u64, period: Span, burst: u64) -> Bucket {
        Bucket::new(Rate::new(count, period)).unwrap().with_burst(burst).unwrap()
    }

    /// Returns whether `share` grants at most `percent / (100·nodes)` of the rate of `whole`.
    fn is_at_most(share: &Bucket, whole: &Bucket, percent: u64, nodes: u64) -> bool {
        let [share, whole] = [share.rate(), whole.rate()];
        // Cross-multiplied; the numbers below are chosen to fit.
        u128::from(share.count) * u128::from(whole.period.as_micros()) * u128::from(100 * nodes)
            <= u128::from(whole.count) * u128::from(share.period.as_micros()) * u128::from(percent)
    }

    #[test]
    fn rates_are_scaled_exactly_where_they_have_a_short_form() {
        for (whole, percent, nodes, rate, burst) in [
            (bucket(10, Span::from_minutes(1), 10), 20, 1, Rate::new(1, Span::from_secs(30)), 2),
            (bucket(1, Span::from_minutes(1), 1), 20, 1, Rate::new(1, Span::from_minutes(5)), 1),
            (bucket(100, Span::from_secs(1), 50), 20, 3, Rate::new(1, Span::from_millis(150)), 3),
            (bucket(7, Span::from_minutes(1), 700), 100, 1, Rate::new(7, Span::from_minutes(1)), 700),
            (bucket(1_000, Span::from_secs(1), 1_000), 1, 7, Rate::new(1, Span::from_millis(700)), 1),
        ] {
            let share = fraction(percent, nodes).of_bucket(&whole);
            let [exact, wanted] = [share.rate(), rate].map(|it| (it.count, it.period.as_micros()));
            assert_eq!(
                u128::from(exact.0) * u128::from(wanted.1),
                u128::from(wanted.0) * u128::from(exact.1),
                "{exact:?} is not {wanted:?}"
            );
            assert_eq!(share.capacity(), burst);
        }
    }

    #[test]
    fn inexact_shares_are_granted_later_and_never_sooner() {
        let years = Span::from_days(365 * 4);
        for whole in [
            bucket(1, years, 1),
            bucket(4_294_967_291, Span::from_secs(1), 4_294_967_291),
            bucket(4_294_967_291, Span::from_days(1), 1),
            bucket(3, Span::from_micros(1), 1 << 48),
            bucket(1 << 40, years, 1 << 40),
        ] {
            for (percent, nodes) in [(1, 1), (20, 1), (20, 7), (99, 1_000_003), (100, 1)] {
                let share = fraction(percent, nodes).of_bucket(&whole);
                // The slowest rate: one unit in four and a half years.
                let slowest = share.rate() == Rate::new(1, Span::from_micros(MAX_PERIOD_US));
                assert!(slowest || is_at_most(&share, &whole, percent, nodes), "{whole:?} {share:?}");
                assert!(share.capacity() <= (whole.capacity() * percent / 100).max(1));
            }
        }
    }

    #[test]
    fn every_quota_has_a_share_of_at_least_one_unit() {
        let quotas: [Quota; 7] = [
            Bucket::new(Rate::per_minute(1)).unwrap().into(),
            Bucket::new(Rate::per_minute(1)).unwrap().with_queue(Queue::new(5)).unwrap().into(),
            FixedWindow::epoch(Rate::per_minute(1)).unwrap().into(),
            SlidingWindow::new(Rate::per_minute(1)).unwrap().into(),
            SlidingParts::new(Rate::per_minute(1), 7).unwrap().into(),
            SlidingLog::new(Rate::per_minute(1)).unwrap().into(),
            Concurrency::new(1, Span::from_secs(1)).unwrap().into(),
        ];
        for quota in quotas {
            let share = quota.share(20, u64::MAX);
            assert_eq!((share.capacity(), share.algorithm()), (1, quota.algorithm()));
        }
    }

    #[test]
    fn a_share_of_a_queue_is_a_shorter_queue_at_a_lower_rate() {
        let queue = Queue::new(49).with_free(10).with_wait(Span::from_secs(30));
        let whole = Bucket::new(Rate::per_second(10)).unwrap().with_queue(queue).unwrap();
        let share = fraction(20, 1).of_bucket(&whole);
        assert_eq!(share.queue(), Some(Queue { length: 9, free: 2, ..queue }));
        assert!(is_at_most(&share, &whole, 20, 1));
    }
}
