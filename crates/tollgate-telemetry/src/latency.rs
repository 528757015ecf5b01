//! Latencies that a surface measures, for its own metrics.

use std::time::Duration;

use tollgate::Span;

use crate::histogram::{Histogram, LATENCY, Spread};
use crate::stripes::Striped;

/// A histogram of latencies, which threads fill without contention.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate_telemetry::{Exposition, LatencyHistogram};
/// let latencies = LatencyHistogram::default();
/// latencies.record(Duration::from_millis(3));
/// let mut page = String::new();
/// Exposition::new(&mut page).latencies("call_seconds", "Calls.", &[("method", "m")], &latencies);
/// assert!(page.contains("call_seconds_bucket{method=\"m\",le=\"0.005\"} 1\n"), "{page}");
/// assert!(page.contains("call_seconds_count{method=\"m\"} 1\n"), "{page}");
/// ```
#[derive(Default)]
pub struct LatencyHistogram(Striped<Histogram<20>>);

impl LatencyHistogram {
    /// Records one latency.
    #[inline]
    pub fn record(&self, took: Duration) {
        let (latencies, adder) = self.0.mine();
        latencies.put(&LATENCY, Span::from(took).as_micros(), adder);
    }

    pub(crate) fn spread(&self) -> Spread<20> {
        Spread::of(self.0.iter())
    }
}
