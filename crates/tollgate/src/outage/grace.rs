//! For how long `on_outage: allow` may let everything pass.
//!
//! A store that fails, answers once and fails again would start a new grace each
//! time, and limits that say `allow` would be open for ever. So grace is a
//! purse: spent while the store gives no answers, earned back ten times slower
//! while it does.
//!
//! The store gives no answers from a failure on until an answer, whether or not
//! the breaker has opened: what counts is what callers get.
//!
//! Not here: clocks. Time is an argument.

use tollgate_core::{Span, Timestamp};

/// A minute of health earns this fraction of a minute of grace.
const HEALTH_PER_GRACE: u64 = 10;

/// How long everything may still pass.
#[derive(Debug)]
pub(crate) struct Grace {
    full: Span,
    /// At `turned`.
    left: Span,
    turned: Timestamp,
    spending: bool,
}

impl Grace {
    pub(crate) const fn new(full: Span, now: Timestamp) -> Self {
        Self { full, left: full, turned: now, spending: false }
    }

    /// The store has stopped giving answers. When grace ends.
    pub(crate) fn spend(&mut self, now: Timestamp) -> Timestamp {
        self.turn(true, now);
        self.turned + self.left
    }

    /// The store gives answers again.
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
    fn failing_again_and_again_starts_no_new_grace() {
        let mut grace = Grace::new(Span::from_secs(60), at(0));
        assert_eq!(grace.spend(at(10)), at(70));
        assert_eq!(grace.spend(at(69)), at(70), "it is the same outage");
        let mut now = 40;
        for _ in 0..30 {
            grace.earn(at(now));
            grace.spend(at(now + 1));
            now += 2;
        }
        assert!(grace.spend(at(now)) < at(now + 5), "a second of health each is next to nothing");
    }

    #[test]
    fn health_earns_it_back_and_never_more() {
        let mut grace = Grace::new(Span::from_secs(60), at(0));
        grace.spend(at(0));
        grace.earn(at(500));
        assert_eq!(grace.spend(at(500)), at(500), "all is spent");
        grace.earn(at(500));
        assert_eq!(grace.spend(at(800)), at(830));
        grace.earn(at(830));
        assert_eq!(grace.spend(at(100_000)), at(100_060));
    }
}
