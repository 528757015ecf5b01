//! Seeded random numbers and quotas.

use tollgate::{
    Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow, Quota, Rate, SlidingLog, Span, Window,
};

/// `SplitMix64`.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    /// Returns a number up to `most`, usually a small one.
    pub(crate) fn count(&mut self, most: u64) -> u64 {
        let bound = self.one_of(&[3, 12, 100, 10_000, most]).min(most);
        1 + self.below(bound)
    }

    pub(crate) fn period(&mut self) -> Span {
        let exact = [1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 90_000_000, 250_000, 7_000_003];
        Span::from_micros(self.one_of(&exact))
    }

    pub(crate) fn quota(&mut self) -> Quota {
        let rate = |rng: &mut Self, most| Rate::new(rng.count(most), rng.period());
        loop {
            let made = match self.below(9) {
                0..3 => {
                    let rate = rate(self, 1 << 40);
                    let burst = if self.below(2) == 0 { rate.count } else { self.count(1 << 30) };
                    Bucket::new(rate).and_then(|it| it.with_burst(burst)).map(Quota::from)
                }
                3 => FixedWindow::epoch(rate(self, 1 << 40)).map(Quota::from),
                4 => {
                    let unit = self.one_of(&[CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Month]);
                    let zone = self.one_of(&["UTC", "Europe/Paris", "Asia/Kolkata"]);
                    let window = Window::Calendar(Calendar::new(unit, zone).unwrap());
                    let window = if self.below(2) == 0 { window } else { Window::Anchored(self.period()) };
                    FixedWindow::new(self.count(1 << 40), window).map(Quota::from)
                }
                5 => {
                    let parts = self.one_of(&[1, 1, 6, 64]);
                    Quota::sliding_window(rate(self, 1 << 20), parts)
                }
                6 => SlidingLog::new(rate(self, 1 << 10)).map(Quota::from),
                7 => FixedWindow::tally(self.count(20) - 1, Window::Epoch(self.period())).map(Quota::from),
                _ => Concurrency::new(u32::try_from(self.count(9)).unwrap(), self.period()).map(Quota::from),
            };
            if let Ok(quota) = made {
                return quota;
            }
        }
    }
}
