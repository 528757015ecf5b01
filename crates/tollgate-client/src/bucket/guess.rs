//! The rate of a server that refuses and reports no numbers.
//!
//! The first refusal gives a low estimate, which grows quickly until the next one. From then on a refusal lowers the
//! rate below the rate of the last second, and each second without a refusal raises it by a twentieth. The guess ends
//! when it has become much larger than the rate that was refused.

use tollgate::{Span, Timestamp};

use super::{Ready, after, span_us};

/// The part of the measured rate that is used after the first refusal, and after a later one.
const DECREASE: (f64, f64) = (0.7, 0.85);
/// The growth per second before and after the second refusal.
const GROWTH: (f64, f64) = (0.5, 0.05);
/// The growth, before and after the second refusal, at which the guess ends.
const MAX_GROWTH: (f64, f64) = (16.0, 4.0);
/// The lowest rate, in calls per microsecond: one in ten seconds.
const MIN_RATE: f64 = 1e-7;
/// The time of calls that may be sent at once.
const BURST: Span = Span::from_millis(100);
/// The time over which the rate is measured.
const SLOT: Span = Span::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Guess {
    rate: f64,
    refused_rate: f64,
    level: f64,
    updated: Timestamp,
    refusals: u32,
    /// The start of the time in which `admitted` were counted.
    slot_start: Timestamp,
    admitted: u32,
    measured: Option<f64>,
}

impl Guess {
    /// Creates a guess for a bucket that had `sent` calls since `since` when the first was refused.
    pub(super) fn new(sent: u64, since: Timestamp, now: Timestamp) -> Self {
        #[allow(clippy::cast_precision_loss)] // an estimate
        let refused_rate = (sent as f64 / span_us(now.since(since).max(SLOT))).max(MIN_RATE);
        Self {
            rate: refused_rate * DECREASE.0,
            refused_rate,
            level: 0.0,
            updated: now,
            refusals: 1,
            slot_start: now,
            admitted: 0,
            measured: None,
        }
    }

    /// Lowers the rate. Refusals of calls that were under way when the first was refused count once.
    pub(super) fn refused(&mut self, is_late: bool, now: Timestamp) {
        self.advance(now);
        if !is_late {
            let measured = self.measured.take().unwrap_or(self.rate);
            self.refused_rate = measured.min(self.rate).max(MIN_RATE);
            self.rate = (self.refused_rate * DECREASE.1).max(MIN_RATE);
            self.refusals = self.refusals.saturating_add(1);
            (self.slot_start, self.admitted) = (now, 0);
        }
        self.level = 0.0;
    }

    /// Counts an admitted call. Returns whether the guess has ended.
    pub(super) fn admitted(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        self.admitted = self.admitted.saturating_add(1);
        let passed = now.since(self.slot_start);
        if passed >= SLOT {
            self.measured = Some(f64::from(self.admitted) / span_us(passed));
            (self.slot_start, self.admitted) = (now, 0);
        }
        self.rate > self.refused_rate * self.phase(MAX_GROWTH)
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        let passed = span_us(now.since(self.updated));
        self.rate *= 1.0 + self.phase(GROWTH) * passed / 1e6;
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

    fn phase(&self, (first, later): (f64, f64)) -> f64 {
        if self.refusals <= 1 { first } else { later }
    }
}
