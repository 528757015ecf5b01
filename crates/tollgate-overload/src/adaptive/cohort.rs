//! A number of requests that were admitted one after the other.

use std::time::Duration;

use super::load_point::LoadPoint;
use super::{Outcome, Sample};

/// The part of a cohort after which a dip has served its purpose. The remaining requests were admitted
/// in the dip, and requests that are admitted after it seldom delay them.
const DIP_PART: f64 = 0.7;

/// The longest latency of a sample, in baselines: a single request that hangs must not decide a window.
const MAX_SAMPLE_BASELINES: f64 = 10.0;

/// The longest latency of a sample, in seconds.
const MAX_SAMPLE: f64 = 86_400.0;

/// The time after which a cohort is complete in any case, in baselines and at least in seconds.
const TIMEOUT: (f64, f64) = (20.0, 1.0);

/// The latency in baselines from which a request is outlying.
const OUTLYING_BASELINES: f64 = 12.0;

/// The share of outlying requests from which a cohort tells nothing about the service time.
const MAX_OUTLYING_SHARE: f64 = 0.4;

/// The number of ended requests with which a mean is meaningful.
const MIN_SAMPLES: u32 = 5;

/// The measurements of a number of requests that were admitted one after the other.
#[derive(Clone, Debug)]
pub(super) struct Cohort {
    first: u64,
    size: u32,
    /// The requests in flight up to which a request is measured.
    max_measured_inflight: u32,
    /// The end of the first request. A cohort does not begin before: a clock may have any value when a limit is created,
    /// and requests may be far apart.
    first_ended_at: Option<Duration>,
    ended: u32,
    /// The ended requests that found few enough requests in flight.
    measurable: u32,
    samples: u32,
    outlying: u32,
    failures: u32,
    sum: f64,
    sum_of_squares: f64,
    max_inflight: u32,
    sum_of_inflight: f64,
}

/// A mean latency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean {
    /// In seconds.
    pub(super) latency: f64,
    /// The standard error, in seconds.
    pub(super) error: f64,
}

impl Mean {
    /// Whether two means differ by no more than their errors explain.
    pub(super) fn is_by_chance(self, other: Self) -> bool {
        (self.latency - other.latency).abs() < 2.0 * self.error.hypot(other.error)
    }
}

impl Cohort {
    /// Creates the cohort of a window: enough requests for a mean of latencies that vary, few enough for
    /// several windows per second.
    pub(super) fn of_window(first: u64, limit: f64) -> Self {
        Self::new(first, super::whole((2.0 * limit).clamp(30.0, 200.0)), u32::MAX)
    }

    /// Creates the cohort of a dip to a limit.
    pub(super) fn of_dip(first: u64, limit: u32, max_measured_inflight: u32) -> Self {
        Self::new(first, limit.clamp(10, 100), max_measured_inflight)
    }

    const fn new(first: u64, size: u32, max_measured_inflight: u32) -> Self {
        Self {
            first,
            size,
            max_measured_inflight,
            first_ended_at: None,
            ended: 0,
            measurable: 0,
            samples: 0,
            outlying: 0,
            failures: 0,
            sum: 0.0,
            sum_of_squares: 0.0,
            max_inflight: 0,
            sum_of_inflight: 0.0,
        }
    }

    /// Adds a request, if it belongs to the cohort.
    pub(super) fn add(&mut self, sample: &Sample, baseline: Option<f64>, now: Duration) {
        let is_member = sample.number.checked_sub(self.first).is_some_and(|it| it < u64::from(self.size));
        if !is_member {
            return;
        }
        self.ended += 1;
        self.first_ended_at.get_or_insert(now);
        if sample.inflight > self.max_measured_inflight {
            return;
        }
        self.measurable += 1;
        self.max_inflight = self.max_inflight.max(sample.inflight);
        self.sum_of_inflight += f64::from(sample.inflight);
        let latency = sample.latency.as_secs_f64();
        match sample.outcome {
            Outcome::Ignored => return,
            Outcome::Failed => {
                self.failures += 1;
                return;
            }
            // A caller that left early says nothing about the service.
            Outcome::Abandoned if baseline.is_none_or(|it| latency < it) => return,
            Outcome::Answered | Outcome::Abandoned => {}
        }
        if baseline.is_some_and(|it| latency > it * OUTLYING_BASELINES) {
            self.outlying += 1;
        }
        let latency =
            latency.min(baseline.map_or(MAX_SAMPLE, |it| (it * MAX_SAMPLE_BASELINES).min(MAX_SAMPLE)));
        self.samples += 1;
        self.sum += latency;
        self.sum_of_squares += latency * latency;
    }

    /// Continues with requests that are admitted from `next` on, if nearly all requests so far said nothing
    /// about the service. Returns whether it does. A flood of requests that another limit refuses would
    /// otherwise fill each cohort, and the limit would learn nothing while the flood lasts.
    pub(super) fn go_on(&mut self, next: u64) -> bool {
        let is_silent = self.measured() < MIN_SAMPLES;
        if is_silent {
            (self.first, self.ended, self.measurable, self.sum_of_inflight) = (next, 0, 0, 0.0);
        }
        is_silent
    }

    /// Returns the number of requests whose latency counts.
    const fn measured(&self) -> u32 {
        self.samples + self.failures
    }

    /// Whether enough requests have ended, or it takes too long.
    pub(super) fn is_complete(&self, now: Duration, baseline: Option<f64>) -> bool {
        if self.ended >= self.size {
            return true;
        }
        let timeout = (baseline.unwrap_or_default() * TIMEOUT.0).max(TIMEOUT.1);
        let age = now.saturating_sub(self.first_ended_at.unwrap_or(now));
        self.ended >= MIN_SAMPLES && age.as_secs_f64() > timeout
    }

    /// Whether the limit of a dip is no longer needed.
    pub(super) fn ends_dip(&self) -> bool {
        f64::from(self.ended) >= f64::from(self.size) * DIP_PART
    }

    /// Returns the mean latency, and the mean number of requests in flight that the requests found. `None`
    /// with too few requests.
    pub(super) fn load_point(&self) -> Option<LoadPoint> {
        if self.samples < MIN_SAMPLES {
            return None;
        }
        let samples = f64::from(self.samples);
        let latency = self.sum / samples;
        let variance = (self.sum_of_squares / samples - latency * latency).max(0.0);
        let mean = Mean { latency, error: (variance / samples).sqrt() };
        Some(LoadPoint { inflight: self.sum_of_inflight / f64::from(self.measurable.max(1)), mean })
    }

    /// Whether the mean is a measurement: samples have a bound, and most of them are at the bound if a service is
    /// more than ten times slower than usual.
    pub(super) fn is_meaningful(&self) -> bool {
        f64::from(self.outlying) <= MAX_OUTLYING_SHARE * f64::from(self.samples)
    }

    /// Returns the share of requests that failed, of those whose end says anything.
    pub(super) fn failures(&self) -> f64 {
        f64::from(self.failures) / f64::from(self.measured().max(1))
    }

    pub(super) const fn max_inflight(&self) -> u32 {
        self.max_inflight
    }
}
