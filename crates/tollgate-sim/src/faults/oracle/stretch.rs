//! The admissions that clients saw, over any stretch of time.
//!
//! A queue that is served at the rate of a limit never holds more than its burst, if and only if no stretch of time has
//! more than the burst and the refill. Faults credit the admissions that they allow.

use std::collections::BTreeMap;

use super::super::clock::TrueTime;

/// The admissions of one key, and the credits of faults.
#[derive(Default)]
pub(super) struct Stretch {
    /// Times with units: above zero admitted, below zero credited.
    events: Vec<(TrueTime, f64)>,
}

impl Stretch {
    pub(super) fn admit(&mut self, at: TrueTime, units: u64) {
        self.events.push((at, units as f64));
    }

    pub(super) fn credit(&mut self, at: TrueTime, units: f64) {
        self.events.push((at, -units));
    }

    /// Returns the window and its units, if more than `limit` units were admitted in a window of `period` seconds.
    pub(super) fn check_windows(&self, period: u64, limit: f64) -> Result<(), (u64, f64)> {
        let mut windows = BTreeMap::<u64, f64>::new();
        for (at, units) in self.events.iter().filter(|(_, units)| *units > 0.0) {
            *windows.entry(at / (period * 1_000_000)).or_default() += units;
        }
        for (window, units) in windows {
            let ends = (window + 1) * period * 1_000_000;
            let credits = self.events.iter().filter(|(at, units)| *units < 0.0 && *at < ends);
            if units > limit - credits.map(|it| it.1).sum::<f64>() + 0.01 {
                return Err((window, units));
            }
        }
        Ok(())
    }

    /// Returns the time and the level at which more than `burst` and `rate` units a microsecond were admitted.
    pub(super) fn check(&mut self, burst: f64, rate: f64) -> Result<(), (TrueTime, f64)> {
        // Credits of a moment come first.
        self.events.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let (mut level, mut last, mut credit) = (0.0_f64, 0, 0.0_f64);
        for &(at, units) in &self.events {
            level = (level - (at - last) as f64 * rate).max(0.0);
            last = at;
            if units < 0.0 {
                // A credit that finds nothing to give back may be used later: an answer may be on its way.
                credit += -units;
                continue;
            }
            level += units;
            if level > burst + credit + 0.01 {
                return Err((at, level));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_stretch_is_bounded() {
        let mut stretch = Stretch::default();
        (0..10).for_each(|at| stretch.admit(at, 1));
        assert_eq!(stretch.check(5.5, 0.5), Ok(()));
        stretch.admit(9, 1);
        assert_eq!(stretch.check(5.5, 0.5), Err((9, 6.5)));
        stretch.credit(3, 1.0);
        assert_eq!(stretch.check(5.5, 0.5), Ok(()));
    }
}
