//! The rate of a server that refuses and reports no numbers.
//!
//! A refusal lowers the rate to seven tenths of the rate at which calls were admitted; each second without a refusal
//! raises it by a twentieth. The guess ends when it has become much larger than the rate that was refused.

use tollgate::{Span, Timestamp};

use super::{Ready, after, span_us};

const DECREASE: f64 = 0.7;
const GROWTH_PER_SECOND: f64 = 0.05;
/// The lowest rate, in calls per microsecond: one in ten seconds.
const MIN_RATE: f64 = 1e-7;
/// The growth after which the rate is not limited any more.
const MAX_GROWTH: f64 = 4.0;
/// The time of calls that may be sent at once.
const BURST: Span = Span::from_millis(100);

#[derive(Clone, Debug)]
pub(super) struct Guess {
    rate: f64,
    refused_rate: f64,
    level: f64,
    updated: Timestamp,
    /// The start of the period in which `admitted` were counted.
    since: Timestamp,
    admitted: u32,
}

impl Guess {
    /// Creates a guess for a bucket that had calls since `since`.
    pub(super) fn new(since: Timestamp) -> Self {
        Self {
            rate: f64::INFINITY,
            refused_rate: f64::INFINITY,
            level: 0.0,
            updated: since,
            since,
            admitted: 1,
        }
    }

    /// Lowers the rate. Refusals of calls that were under way when the first was refused count once.
    pub(super) fn refused(mut self, is_late: bool, now: Timestamp) -> Self {
        if !is_late {
            let measured = f64::from(self.admitted) / span_us(now.since(self.since)).max(100_000.0);
            self.refused_rate = measured.min(self.rate).max(MIN_RATE);
            self.rate = (self.refused_rate * DECREASE).max(MIN_RATE);
            (self.since, self.admitted) = (now, 0);
        }
        (self.level, self.updated) = (0.0, now);
        self
    }

    /// Counts an admitted call. Returns whether the guess has ended.
    pub(super) fn admitted(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        self.admitted = self.admitted.saturating_add(1);
        self.rate > self.refused_rate * MAX_GROWTH
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        let passed = span_us(now.since(self.updated));
        self.rate *= 1.0 + GROWTH_PER_SECOND * passed / 1e6;
        let burst = (self.rate * span_us(BURST)).max(1.0);
        self.level = (self.level + self.rate * passed).min(burst);
        self.updated = self.updated.max(now);
    }

    pub(super) fn take(&mut self) {
        self.level -= 1.0;
    }

    pub(super) fn ready(&self, now: Timestamp) -> Ready {
        if self.level >= 1.0 { Ready::Now } else { Ready::At(after(now, (1.0 - self.level) / self.rate)) }
    }
}
