//! The admitted units of one key in a random case, and the bounds that they must keep.
//!
//! The bounds are independent of the algorithms: they count admitted units in stretches of time.

use tollgate_core::{Bucket, Quota, Span, Timestamp, Window};

/// A deterministic random number generator (`SplitMix64`).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    /// Returns an index into a slice of this length.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}

/// Admitted units with their times, and the quotas in force.
#[derive(Debug, Default)]
pub struct Admitted {
    units: Vec<(Timestamp, u64)>,
    /// Quotas, each with the last time at which it was in force.
    quotas: Vec<(Timestamp, Quota)>,
}

impl Admitted {
    /// Records that a quota is in force at `now`.
    pub fn in_force(&mut self, quota: &Quota, now: Timestamp) {
        self.quotas.push((now, quota.clone()));
    }

    /// Records units that were admitted at `now`.
    pub fn add(&mut self, units: u64, now: Timestamp) {
        self.units.push((now, units));
    }

    /// Checks that no stretch that ends with the last unit holds more than the largest limit in
    /// force during it.
    pub fn check(&self, whose: &str) {
        let Some(&(end, _)) = self.units.last() else { return };
        let Some((_, last)) = self.quotas.last() else { return };
        match last {
            Quota::Bucket(_) => {
                self.units.iter().for_each(|&(start, _)| self.check_bucket(start, end, whose));
            }
            Quota::FixedWindow(window) if !matches!(window.window(), Window::Anchored(_)) => {
                let start = window.window().opened(window.window().closes(end));
                self.check_stretch(start, end, whose);
            }
            // Windows from the first request are half-open, and each starts with a unit that finds
            // the previous one closed. The two-counter estimate is checked by its model.
            Quota::FixedWindow(_) => self.check_anchored(whose),
            Quota::SlidingLog(_) | Quota::SlidingParts(_) => {
                self.check_stretch(end.before(last.period()) + Span::from_micros(1), end, whose);
            }
            Quota::SlidingWindow(_) | Quota::Concurrency(_) => {}
        }
    }

    fn passed(&self, start: Timestamp, end: Timestamp) -> u64 {
        let within = |at: &Timestamp| *at >= start && *at <= end;
        self.units.iter().filter(|(at, _)| within(at)).map(|(_, units)| units).sum()
    }

    /// Returns the quotas in force at any time from `start` on.
    fn since(&self, start: Timestamp) -> impl Iterator<Item = &Quota> {
        let first = self.quotas.partition_point(|(at, _)| *at < start).saturating_sub(1);
        self.quotas[first..].iter().map(|(_, quota)| quota)
    }

    fn check_stretch(&self, start: Timestamp, end: Timestamp, whose: &str) {
        let largest = self.since(start).map(Quota::capacity).max().unwrap_or(0);
        let passed = self.passed(start, end);
        assert!(passed <= largest, "{whose}: {passed} of {largest} from {start:?} to {end:?}");
    }

    fn check_anchored(&self, whose: &str) {
        let Some((_, quota)) = self.quotas.last() else { return };
        let mut opened: Option<Timestamp> = None;
        for &(at, units) in &self.units {
            if units > 0 && opened.is_none_or(|start| at >= start + quota.period()) {
                opened = Some(at);
            }
        }
        if let (Some(start), Some(&(end, _))) = (opened, self.units.last())
            && end < start + quota.period()
        {
            self.check_stretch(start, end, whose);
        }
    }

    /// Checks against the largest burst plus the refill of the fastest rate.
    fn check_bucket(&self, start: Timestamp, end: Timestamp, whose: &str) {
        let buckets =
            || self.since(start).filter_map(|it| if let Quota::Bucket(it) = it { Some(it) } else { None });
        // In millionths of a unit: the bounded wait of a queue holds a fraction of one.
        let full = |it: &Bucket| (it.grains() * 1_000_000).div_ceil(it.grains_per_unit().into());
        let burst = buckets().map(full).max().unwrap_or(0);
        // All have one period here, so the largest count is the fastest rate.
        let rate = buckets().map(Bucket::rate).max_by_key(|it| it.count);
        let Some(rate) = rate else { return };
        let beyond = (u128::from(self.passed(start, end)) * 1_000_000).saturating_sub(burst);
        let time = u128::from(end.since(start).as_micros());
        assert!(
            beyond * u128::from(rate.period.as_micros()) <= time * u128::from(rate.count) * 1_000_000,
            "{whose}: {beyond} millionths more than {burst} at {rate} from {start:?} to {end:?}"
        );
    }
}
