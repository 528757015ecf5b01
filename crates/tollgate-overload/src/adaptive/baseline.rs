//! The mean latency without waiting.

use std::time::Duration;

use super::cohort::Mean;

/// The minimum time between dips.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// The minimum time between dips, in latencies, so that slow services lose no more than fast ones.
const INTERVAL_LATENCIES: f64 = 40.0;

/// The part of the interval after which the baseline is measured again if it has just changed, or if
/// latency is alarming.
const SHORT_INTERVAL: f64 = 0.25;

/// A change of the baseline that calls for another measurement soon.
const SIGNIFICANT_CHANGE: f64 = 0.1;

/// The weight of a measurement that differs from the baseline by no more than chance.
const CHANCE_WEIGHT: f64 = 0.3;

/// The mean latency without waiting.
#[derive(Clone, Debug, Default)]
pub(super) struct Baseline {
    mean: Option<Mean>,
    measured_at: Duration,
    /// Whether the last measurement changed the baseline.
    has_moved: bool,
}

impl Baseline {
    /// Returns the mean latency in seconds.
    pub(super) fn latency(&self) -> Option<f64> {
        self.mean.map(|it| it.latency)
    }

    /// Whether a dip is due.
    pub(super) fn is_due(&self, now: Duration, is_alarming: bool) -> bool {
        let latencies = Duration::from_secs_f64(self.latency().unwrap_or_default() * INTERVAL_LATENCIES);
        let interval = latencies.max(MIN_INTERVAL);
        let interval =
            if is_alarming || self.has_moved { interval.mul_f64(SHORT_INTERVAL) } else { interval };
        now.saturating_sub(self.measured_at) >= interval
    }

    /// Sets the baseline from a window with few requests in flight.
    pub(super) fn observe(&mut self, mean: Mean, now: Duration) {
        self.measured_at = now;
        self.move_to(mean, 0.5);
    }

    /// Returns the baseline. The mean over requests that may have waited is an upper bound.
    pub(super) fn at_most(&mut self, mean: Mean) -> Mean {
        match self.mean {
            Some(baseline) if mean.latency > 0.95 * baseline.latency || mean.is_by_chance(baseline) => {
                baseline
            }
            _ => self.move_to(mean, 0.5),
        }
    }

    /// Waits for the next dip.
    pub(super) const fn skip(&mut self, now: Duration) {
        self.measured_at = now;
    }

    /// Sets the baseline from requests that did not wait.
    pub(super) fn measure(&mut self, mean: Mean, is_certain: bool, now: Duration) -> Mean {
        self.measured_at = now;
        let is_certain = is_certain || self.latency().is_some_and(|it| mean.latency < it);
        self.move_to(mean, if is_certain { 0.8 } else { 0.5 })
    }

    fn move_to(&mut self, mean: Mean, weight: f64) -> Mean {
        let Some(before) = self.mean else { return *self.mean.insert(mean) };
        let weight = if mean.is_by_chance(before) { CHANCE_WEIGHT.min(weight) } else { weight };
        let latency = before.latency + (mean.latency - before.latency) * weight;
        let error = (before.error * (1.0 - weight)).hypot(mean.error * weight);
        self.has_moved = before.latency > 0.0
            && (latency / before.latency - 1.0).abs() > SIGNIFICANT_CHANGE + error / latency;
        *self.mean.insert(Mean { latency, error })
    }
}
