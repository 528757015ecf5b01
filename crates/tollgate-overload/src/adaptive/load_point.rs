//! The latency of a service at a number of requests in flight.
//!
//! Two such points tell whether requests wait for each other. While a service works at its capacity, its
//! throughput (requests in flight / latency) is the same for any number of requests in flight, and
//! latency falls with them. Throughput that falls with the requests in flight is below the capacity: each
//! request found a free worker, and its latency is the time that the service takes.

use super::cohort::Mean;

/// The requests in flight, as a share of those before, up to which two points can be compared.
const CONTRAST: f64 = 0.8;

/// The share of the throughput before below which a service works below its capacity. The throughput of a
/// window of 50 requests varies by about a tenth.
const SATURATED_SHARE: f64 = 0.8;

/// The factor of the latency from which the service has changed.
const CHANGE_FACTOR: f64 = 1.25;

/// The mean latency of requests, and the mean number of requests in flight that they found.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadPoint {
    pub(super) inflight: f64,
    pub(super) mean: Mean,
}

impl LoadPoint {
    /// Whether the requests did not wait, in comparison with more requests in flight before. A latency that
    /// rose although fewer requests were in flight proves nothing: the service changed in between.
    pub(super) fn is_below_capacity(self, before: Self) -> bool {
        // The latency if the throughput was the same.
        let saturated = before.mean.latency * self.inflight / before.inflight.max(1.0);
        self.inflight <= before.inflight * CONTRAST
            && !self.is_slower(before)
            && self.mean.latency - self.mean.error > saturated / SATURATED_SHARE
    }

    /// Whether the service has changed since a point with as many requests in flight or more: the latency is far higher.
    pub(super) fn has_changed_since(self, before: Self) -> bool {
        self.is_slower(before) && self.mean.latency > CHANGE_FACTOR * before.mean.latency
    }

    /// Whether the latency is significantly higher.
    pub(super) fn is_slower(self, before: Self) -> bool {
        self.mean.latency > before.mean.latency && !self.mean.is_by_chance(before.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn point(inflight: f64, latency: f64) -> LoadPoint {
        LoadPoint { inflight, mean: Mean { latency, error: 0.002 } }
    }

    #[test]
    fn throughput_that_falls_with_the_requests_in_flight_is_below_the_capacity() {
        // 32 workers of 143 ms.
        let saturated = point(40.0, 0.179);
        assert!(point(15.0, 0.143).is_below_capacity(saturated));
        // 16 workers of 72 ms: the latency falls with the requests in flight.
        assert!(!point(24.0, 0.107).is_below_capacity(saturated));
        // Too close to each other.
        assert!(!point(34.0, 0.179).is_below_capacity(saturated));
        // The service became slower in between.
        assert!(!point(15.0, 0.25).is_below_capacity(saturated));
    }
}
