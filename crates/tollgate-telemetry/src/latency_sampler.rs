//! Measures the latency of a sample of decisions.
//!
//! A decision in memory takes less than ten times as long as a reading of the clock. So a decision that was made
//! without waiting is measured only if its thread has measured none for [`MIN_INTERVAL`]; the decisions in between
//! count as if they had taken as long as the measured one. At rates below `1 / MIN_INTERVAL` per thread, each decision
//! is measured. The number of latencies is always the number of decisions.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Event, Span};

/// The shortest time between two measurements of one thread.
const MIN_INTERVAL: Span = Span::from_micros(50);

/// Measures the latency of a sample of the decisions of one stripe.
#[derive(Default)]
pub(crate) struct LatencySampler {
    /// The time of the last measurement, in microseconds.
    measured_at: AtomicU64,
    /// The latency that was measured then, in microseconds.
    latency: AtomicU64,
}

impl LatencySampler {
    /// Returns the latency of a decision in microseconds, as it is counted.
    #[inline]
    pub(crate) fn latency(&self, event: &Event<'_, '_>) -> u64 {
        if event.has_duration() {
            return Span::from(event.took()).as_micros();
        }
        // Relaxed: a race of threads that share a stripe measures one decision more. A clock that stepped back is far
        // from the last measurement, too.
        let since = event.at.as_micros().wrapping_sub(self.measured_at.load(Ordering::Relaxed));
        if since < MIN_INTERVAL.as_micros() {
            return self.latency.load(Ordering::Relaxed);
        }
        self.measure(event)
    }

    #[cold]
    fn measure(&self, event: &Event<'_, '_>) -> u64 {
        let latency = Span::from(event.took()).as_micros();
        self.latency.store(latency, Ordering::Relaxed);
        self.measured_at.store(event.at.as_micros(), Ordering::Relaxed);
        latency
    }
}
