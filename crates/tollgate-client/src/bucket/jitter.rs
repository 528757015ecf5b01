//! The jitter of the time from sending a call to its response.

use tollgate::Span;

use super::span_us;

/// The weight of a new time, as in RFC 6298.
const WEIGHT: (f64, f64) = (1.0 / 8.0, 1.0 / 4.0);
/// Deviations that are expected in both directions.
const DEVIATIONS: f64 = 4.0;

/// The mean and the mean deviation of response times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jitter {
    mean_us: Option<f64>,
    deviation_us: f64,
}

impl Jitter {
    pub(super) fn record(&mut self, time: Span) {
        let time = span_us(time);
        if let Some(mean) = &mut self.mean_us {
            self.deviation_us += WEIGHT.1 * ((time - *mean).abs() - self.deviation_us);
            *mean += WEIGHT.0 * (time - *mean);
        } else {
            (self.mean_us, self.deviation_us) = (Some(time), time / 2.0);
        }
    }

    /// The time by which two calls can come closer on their way.
    pub(super) fn spread_us(&self) -> f64 {
        DEVIATIONS * self.deviation_us
    }
}
