//! The algorithms that derive a limit from the signals of a window.
//!
//! Windows, the baseline and the bounds are the same for all of them (`super`).

use super::cohort::Mean;

/// The measurements of a window in which the limit was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// The mean number of requests in flight, at least the limit.
    pub inflight: f64,
    /// The mean latency, in seconds.
    pub latency: f64,
    /// The mean latency without waiting, in seconds.
    pub baseline: f64,
    /// The share of requests that failed, 0 to 1.
    pub failures: f64,
}

impl Signals {
    /// Returns the signals with the wait that the measurements prove. Latency that is above the baseline
    /// by no more than the errors of both says nothing: a limit that followed it would sink and sink.
    pub(super) fn proven(latency: Mean, baseline: Mean) -> Self {
        let excess = latency.latency - baseline.latency;
        let proven =
            if excess > 0.0 { (excess - latency.error.hypot(baseline.error)).max(0.0) } else { excess };
        Self { inflight: 0.0, latency: baseline.latency + proven, baseline: baseline.latency, failures: 0.0 }
    }

    /// Returns baseline / latency: 1 if no request waits, and less the longer requests wait.
    pub fn gradient(&self) -> f64 {
        if self.latency > 0.0 { self.baseline / self.latency } else { 1.0 }
    }
}

/// Derives a limit from the signals of a window in which the limit was reached.
pub trait LimitAlgorithm: Send + Sync {
    /// Returns the next limit, before it is clamped to its bounds.
    fn next_limit(&self, limit: f64, signals: &Signals) -> f64;
}

/// The choice of an algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// [`Gradient`].
    #[default]
    Gradient,
    /// [`Aimd`].
    Aimd,
    /// [`Vegas`].
    Vegas,
}

impl Algorithm {
    /// Returns the algorithm.
    pub fn get(self) -> &'static dyn LimitAlgorithm {
        match self {
            Self::Gradient => &Gradient,
            Self::Aimd => &Aimd,
            Self::Vegas => &Vegas,
        }
    }
}

/// The requests in flight times baseline / latency, plus room to find out whether more fits.
///
/// Requests in flight / latency is the throughput, so the product is throughput × baseline: the requests
/// that the service works on. The limit settles where the additional room is all that waits: 3 % and a
/// third of the square root above the number of workers.
/// A share of failures lowers it by half that share.
#[derive(Clone, Copy, Debug)]
pub struct Gradient;

impl Gradient {
    /// The tolerated latency above the baseline.
    const TOLERANCE: f64 = 1.03;
    /// The weight of a lower limit.
    const SMOOTHING: f64 = 0.5;
}

impl LimitAlgorithm for Gradient {
    fn next_limit(&self, limit: f64, signals: &Signals) -> f64 {
        let gradient = (Self::TOLERANCE * signals.gradient()).min(1.1);
        let working = (signals.inflight * gradient).max(limit * 0.4);
        let target = working * (1.0 - signals.failures / 2.0) + limit.sqrt() / 3.0;
        if target < limit { limit + (target - limit) * Self::SMOOTHING } else { target }
    }
}

/// Additive increase, multiplicative decrease.
///
/// One more per window; a tenth less when requests fail or take a third longer than the baseline. It needs no precise baseline, and swings between the numbers at which it
/// increases and decreases.
#[derive(Clone, Copy, Debug)]
pub struct Aimd;

impl LimitAlgorithm for Aimd {
    fn next_limit(&self, limit: f64, signals: &Signals) -> f64 {
        if signals.failures > 0.01 || signals.gradient() < 0.75 { limit * 0.9 } else { limit + 1.0 }
    }
}

/// Keeps the estimated number of waiting requests between two bounds, as TCP Vegas does.
///
/// The estimate is requests in flight × (1 − baseline / latency). The bounds are 3 and 6 times the decimal
/// logarithm of the limit, but no more than a tenth and a fifth of a small limit.
#[derive(Clone, Copy, Debug)]
pub struct Vegas;

impl LimitAlgorithm for Vegas {
    fn next_limit(&self, limit: f64, signals: &Signals) -> f64 {
        let log = limit.log10().max(1.0);
        let (alpha, beta) = ((3.0 * log).min(limit / 10.0), (6.0 * log).min(limit / 5.0));
        if signals.failures > 0.01 {
            return limit - log;
        }
        let waiting = signals.inflight * (1.0 - signals.gradient().min(1.0));
        if waiting <= log.min(alpha / 2.0) {
            limit + beta
        } else if waiting < alpha {
            limit + log
        } else if waiting > beta {
            limit - log
        } else {
            limit
        }
    }
}
