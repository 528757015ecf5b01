//! Percentiles of latencies.

use hdrhistogram::Histogram;
use serde::Serialize;
use tollgate::Span;

/// The largest latency that is told apart from larger ones: an hour.
const MAX_MICROS: u64 = 3_600_000_000;

/// Latencies with three significant digits.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, MAX_MICROS, 3).expect("the bounds are constant and valid"))
    }

    pub(crate) fn record(&mut self, latency: Span) {
        self.0.saturating_record(latency.as_micros().max(1));
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        #[allow(clippy::cast_precision_loss)] // three digits
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            count: self.0.len(),
            mean: self.0.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        }
    }
}

/// Percentiles in milliseconds, to three significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The number of latencies.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// 99.9 % are at most this.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}
