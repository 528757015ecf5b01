//! A concurrency limit that is learned from latency.
//!
//! A service with a number of workers answers in constant time while requests find a free worker.
//! Beyond that, each additional request waits, and latency grows in proportion to the requests in
//! flight while throughput stays the same. The limit follows the number at which waiting starts,
//! which is throughput × latency without waiting (Little's law).
//!
//! ```text
//! samples ──► window ──┬─ in flight reached the limit ──► LimitAlgorithm ──► new limit
//!                      └─ in flight stayed well below ──► baseline latency
//!                                                             ▲
//!            no such window for a while ──► dip of the limit ─┘
//! ```
//!
//! The baseline is the mean latency without waiting. It must not be measured while requests wait:
//! each measurement would then be higher than the one before, and the limit would drift upward with
//! it. Under permanent overload, in-flight requests never fall by themselves. The limit then dips to
//! 70 % of the requests that the service is thought to work on, for about twice the latency, at most
//! every 40 latencies. The requests that are admitted in the dip are the measurement. Traffic continues,
//! and dips cost less than 2 % of the throughput. If the baseline was too high, so is the limit, and the
//! requests of the dip may still wait, but for 30 % less: the error shrinks with each dip and never
//! accumulates.
//!
//! A dip does not bound the most important class, so its requests may keep those in flight too high for a
//! measurement (`dip`). If latency rises far above the baseline meanwhile, the limit falls, and the requests in
//! flight with it. Throughput that falls, too, proves that the service itself became slower, and not that
//! requests wait: the baseline is replaced (`alarm`, `load_point`).
//!
//! A window or dip is a cohort: a number of requests that were admitted one after the other after the
//! previous change of the limit, so each step sees the effect of the one before. It is complete when
//! all of them have ended. The requests that happen to end first are no cohort: they are the short ones.
//!
//! The caller counts requests in flight and compares them with [`AdaptiveLimit::in_force`], or with the
//! [limit of each class](class_limit).

mod alarm;
mod algorithm;
mod baseline;
mod class_room;
mod cohort;
mod dip;
mod load_point;

use std::time::Duration;

use alarm::Alarm;
pub use algorithm::{Aimd, Algorithm, Gradient, LimitAlgorithm, Signals, Vegas};
use baseline::Baseline;
pub use class_room::{Slots, class_limit};
use cohort::{Cohort, Mean};
use dip::{DIP_SHARE, Dip, Drain};
use load_point::LoadPoint;

/// The factor of the limit while no request waits yet, from a cold start on.
const SLOW_START_FACTOR: f64 = 1.5;

/// The share of the baseline in the latency below which slow start ends.
const SLOW_START_GRADIENT: f64 = 0.9;

/// The gradient below which the baseline is measured again soon: either the service has fewer workers,
/// or each request takes longer, and only a dip tells which.
const ALARMING_GRADIENT: f64 = 0.65;

/// The bounds and the algorithm of an [`AdaptiveLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveSettings {
    /// The least limit, at least 1.
    pub min: u32,
    /// The largest limit, at least `min`. It also bounds the room of priority classes beyond the limit.
    pub max: u32,
    /// The limit of a cold start, clamped to the bounds.
    pub initial: u32,
    /// The algorithm.
    pub algorithm: Algorithm,
}

impl Default for AdaptiveSettings {
    fn default() -> Self {
        Self { min: 3, max: 1_000, initial: 20, algorithm: Algorithm::Gradient }
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The service answered.
    Answered,
    /// The service failed under load: it refused, could not be reached or timed out.
    Failed,
    /// The caller left before the answer. The latency is at least the time until then.
    Abandoned,
    /// The end says nothing about the service.
    Ignored,
}

/// A request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The number of the request: requests are numbered in the order of their admission.
    pub number: u64,
    /// The requests in flight when it was admitted, including itself.
    pub inflight: u32,
    /// The time from its start to the answer, the failure, or until the caller left.
    pub latency: Duration,
    /// The end of the request.
    pub outcome: Outcome,
}

/// The requests that were admitted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admissions {
    /// The number of the next request to be admitted.
    pub next: u64,
    /// The requests in flight now.
    pub inflight: u32,
}

/// A concurrency limit that is learned from latency.
///
/// Times are durations since an arbitrary instant of the caller's monotonic clock.
///
/// ```
/// use std::time::Duration;
/// use tollgate_overload::adaptive::{AdaptiveLimit, AdaptiveSettings, Admissions, Outcome, Sample};
///
/// let mut limit = AdaptiveLimit::new(AdaptiveSettings::default());
/// assert_eq!(limit.in_force(), 20);
/// // The service answers in 10 ms with all 20 requests in flight: it has room for more.
/// for number in 0..100 {
///     let (latency, outcome) = (Duration::from_millis(10), Outcome::Answered);
///     let sample = Sample { number, inflight: 20, latency, outcome };
///     let admissions = Admissions { next: number + 20, inflight: 20 };
///     limit.record(sample, admissions, Duration::from_millis(number));
/// }
/// assert!(limit.in_force() > 20);
/// assert_eq!(limit.baseline(), Some(Duration::from_millis(10)));
/// ```
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    settings: AdaptiveSettings,
    limit: f64,
    in_slow_start: bool,
    /// The requests that are measured.
    cohort: Cohort,
    baseline: Baseline,
    dip: Option<Dip>,
    /// The windows since latency is alarming.
    alarm: Option<Alarm>,
    /// The mean latency in the last window, in seconds.
    latency: Option<f64>,
}

impl AdaptiveLimit {
    /// Creates a limit that has learned nothing yet.
    pub fn new(settings: AdaptiveSettings) -> Self {
        let settings = settings.valid();
        let limit = f64::from(settings.initial);
        Self {
            settings,
            limit,
            in_slow_start: true,
            cohort: Cohort::of_window(0, limit),
            baseline: Baseline::default(),
            dip: None,
            alarm: None,
            latency: None,
        }
    }

    /// Changes bounds and algorithm, and keeps everything learned that is within the bounds.
    pub fn set_settings(&mut self, settings: AdaptiveSettings) {
        self.settings = settings.valid();
        self.set_limit(self.limit);
    }

    /// Drops the measurements that are under way and continues with the requests from `next` on. Keeps everything
    /// learned. For a time in which no requests were recorded.
    pub fn restart_measurement(&mut self, next: u64) {
        (self.dip, self.alarm) = (None, None);
        self.cohort = Cohort::of_window(next, self.limit);
    }

    /// Returns the number of requests that may be in flight now: the learned limit, or less during a
    /// dip.
    pub fn in_force(&self) -> u32 {
        self.dip.and_then(|dip| dip.limit()).unwrap_or_else(|| self.learned())
    }

    /// Returns the learned limit and the limit in force, from which the limit of each class follows.
    pub fn slots(&self) -> Slots {
        Slots { learned: self.learned(), in_force: self.in_force(), max: self.settings.max }
    }

    /// Returns the learned limit.
    pub fn learned(&self) -> u32 {
        whole(self.limit)
    }

    /// Returns the mean latency without waiting, once it was measured.
    pub fn baseline(&self) -> Option<Duration> {
        self.baseline.latency().map(Duration::from_secs_f64)
    }

    /// Returns the mean latency in the last window.
    pub fn latency(&self) -> Option<Duration> {
        self.latency.map(Duration::from_secs_f64)
    }

    /// Records the end of a request and adapts the limit. Every admitted request is recorded once, in
    /// any order.
    pub fn record(&mut self, sample: Sample, Admissions { next, inflight }: Admissions, now: Duration) {
        if let Some(drain) = self.dip.as_mut().and_then(|dip| dip.drain(next, inflight, now)) {
            match drain {
                Drain::Continues => {}
                Drain::Done(cohort) => self.cohort = cohort,
                Drain::Failed => {
                    self.dip = None;
                    self.fail_dip(now);
                    self.cohort = Cohort::of_window(next, self.limit);
                }
            }
            return;
        }
        let baseline = self.baseline.latency();
        self.cohort.add(&sample, baseline, now);
        if let Some(dip) = &mut self.dip
            && self.cohort.ends_dip()
        {
            dip.end();
        }
        if !self.cohort.is_complete(now, baseline) {
            return;
        }
        if self.dip.is_none() && self.cohort.go_on(next) {
            return;
        }
        match self.dip.take() {
            Some(dip) => self.finish_dip(dip, now),
            None => self.finish_window(now),
        }
        self.cohort = Cohort::of_window(next, self.limit);
    }

    /// Sets the baseline from the requests of a dip, if they did not wait.
    fn finish_dip(&mut self, dip: Dip, now: Duration) {
        let Some(point) = self.cohort.load_point() else { return self.fail_dip(now) };
        if self.proves_slower_service(point) {
            self.replace_baseline(point, now);
        } else if point.has_changed_since(dip.before) {
            // The service changed during the dip. If it has fewer workers, the requests of the dip waited.
            self.fail_dip(now);
        } else if f64::from(self.cohort.max_inflight()) <= dip.max_inflight {
            // Latency that did not fall with the requests in flight is not waiting: the service itself
            // became slower.
            let is_certain = point.mean.latency >= 0.9 * dip.before.mean.latency;
            self.baseline.measure(point.mean, is_certain, now);
        } else {
            self.fail_dip(now);
        }
    }

    /// Adapts the limit to the requests of a window, and starts a dip if one is due.
    fn finish_window(&mut self, now: Duration) {
        let (failures, max_inflight) = (self.cohort.failures(), f64::from(self.cohort.max_inflight()));
        let Some(point) = self.cohort.load_point() else {
            if failures <= 0.0 {
                return;
            }
            // Nearly all requests failed.
            let signals = Signals { inflight: self.limit, latency: 1.0, baseline: 1.0, failures };
            return self.set_limit(self.settings.algorithm.get().next_limit(self.limit, &signals));
        };
        let mean = point.mean;
        self.latency = Some(mean.latency);
        if max_inflight <= self.limit * DIP_SHARE {
            // Too few requests in flight to wait for each other, or to say anything about the limit.
            return self.baseline.observe(mean, now);
        }
        let mut baseline = self.baseline.at_most(mean);
        if Signals::proven(mean, baseline).gradient() >= ALARMING_GRADIENT {
            self.alarm = None;
        } else if self.proves_slower_service(point) {
            baseline = self.replace_baseline(point, now);
        } else {
            self.alarm.get_or_insert_default().add(point);
        }
        if max_inflight < 0.9 * self.limit.floor() {
            return;
        }
        // The requests that caused the latency: more than the limit if it does not apply to all of them.
        let inflight = self.limit.max(point.inflight);
        let signals = Signals { inflight, failures, ..Signals::proven(mean, baseline) };
        let gradient = signals.gradient();
        if self.in_slow_start && gradient >= SLOW_START_GRADIENT && failures < 0.05 {
            self.set_limit(self.limit * SLOW_START_FACTOR);
        } else {
            self.in_slow_start = false;
            self.set_limit(self.settings.algorithm.get().next_limit(self.limit, &signals));
        }
        if self.baseline.is_due(now, self.alarm.is_some_and(Alarm::is_recent)) {
            let working = self.limit.min(inflight * gradient).max(self.limit * 0.3);
            self.dip = Some(Dip::new(working, point, now));
        }
    }

    /// Waits for the next dip.
    fn fail_dip(&mut self, now: Duration) {
        self.alarm.iter_mut().for_each(Alarm::fail_dip);
        self.baseline.skip(now);
    }

    /// Whether a cohort proves that the service itself became slower.
    fn proves_slower_service(&mut self, point: LoadPoint) -> bool {
        self.cohort.is_meaningful() && self.alarm.as_mut().is_some_and(|it| it.prove_slower_service(point))
    }

    /// Replaces an obsolete baseline by the latency of requests that did not wait.
    fn replace_baseline(&mut self, point: LoadPoint, now: Duration) -> Mean {
        self.alarm = None;
        self.baseline.measure(point.mean, true, now)
    }

    fn set_limit(&mut self, limit: f64) {
        self.limit = limit.clamp(f64::from(self.settings.min), f64::from(self.settings.max));
    }
}

/// Returns a limit as a whole number.
fn whole(limit: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the settings")]
    let limit = limit.round() as u32;
    limit
}

impl AdaptiveSettings {
    fn valid(self) -> Self {
        let min = self.min.max(1);
        let max = self.max.max(min);
        Self { min, max, initial: self.initial.clamp(min, max), ..self }
    }
}
