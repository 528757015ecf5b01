//! The grace period of `on_outage: allow`.
//!
//! A store that fails, answers once and fails again would start a new grace period each time, and
//! limits with `allow` would be open forever. So grace is a budget: spent while the store gives no
//! answers, earned back ten times slower while it does.
//!
//! An outage lasts from a failure until the next answer, whether or not the breaker has opened.
//!
//! Time is an argument.

use tollgate_core::{Span, Timestamp};

/// The time of health that earns one unit of grace.
const HEALTH_PER_GRACE: u64 = 10;

/// The budget of grace.
#[derive(Debug)]
pub(crate) struct Grace {
    full: Span,
    /// The budget at `turned`.
    left: Span,
    turned: Timestamp,
    spending: bool,
}

impl Grace {
    pub(crate) const fn new(full: Span, now: Timestamp) -> Self {
        Self { full, left: full, turned: now, spending: false }
    }

    /// Records that the store stopped answering. Returns the end of the grace period.
    pub(crate) fn spend(&mut self, now: Timestamp) -> Timestamp {
        self.turn(true, now);
        self.turned + self.left
    }

    /// Records that the store answers again.
    pub(crate) fn earn(&mut self, now: Timestamp) {
        self.turn(false, now);
    }

    fn turn(&mut self, spending: bool, now: Timestamp) {
        if spending == self.spending {
            return;
        }
        let passed = now.since(self.turned).as_micros();
        let left = self.left.as_micros();
        let left = if self.spending { left.saturating_sub(passed) } else { left + passed / HEALTH_PER_GRACE };
        self.left = Span::from_micros(left).min(self.full);
        self.turned = now;
        self.spending = spending;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + second)
    }

    #[test]
    fn repeated_failures_start_no_new_grace_period() {
        let mut grace = Grace::new(Span::from_secs(60), at(0));
        assert_eq!(grace.spend(at(10)), at(70));
        assert_eq!(grace.spend(at(69)), at(70), "the outage continues");
        let mut now = 40;
        for _ in 0..30 {
            grace.earn(at(now));
            grace.spend(at(now + 1));
            now += 2;
        }
        assert!(grace.spend(at(now)) < at(now + 5), "a second of health earns little");
    }

    #[test]
    fn health_earns_grace_back_up_to_its_maximum() {
        let mut grace = Grace::new(Span::from_secs(60), at(0));
        grace.spend(at(0));
        grace.earn(at(500));
        assert_eq!(grace.spend(at(500)), at(500), "the budget is spent");
        grace.earn(at(500));
        assert_eq!(grace.spend(at(800)), at(830));
        grace.earn(at(830));
        assert_eq!(grace.spend(at(100_000)), at(100_060));
    }
}
