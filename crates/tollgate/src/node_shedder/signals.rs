//! The signals of a node: measurements, their averages, and their targets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_overload::shedder::Smoothed;
use tollgate_policy::NodeShedSettings;

/// The age at which a measurement of the CPU is dropped.
const MAX_CPU_AGE: Span = Span::from_secs(5);

/// Marks a signal without a measurement.
const UNKNOWN: u64 = u64::MAX;

/// A measurement of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measurement {
    /// The number of requests in flight that the limiter does not count itself. It is added to those
    /// it counts, until the next report.
    InFlight(u64),
    /// The CPU utilization since the last report, in thousandths of the available CPU time. A report
    /// is valid for five seconds.
    Cpu(u32),
    /// The time that a request waited for a worker. The longest one since the last sample counts.
    Delay(Duration),
}

/// The last sample of a signal, as a moving average, and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalReading {
    /// The measured value.
    pub value: u64,
    /// The target.
    pub target: u64,
}

impl SignalReading {
    /// Returns the ratio of the value to the target, in thousandths.
    pub fn utilization(self) -> u32 {
        let ratio = u128::from(self.value) * 1_000 / u128::from(self.target.max(1));
        u32::try_from(ratio).unwrap_or(u32::MAX)
    }
}

/// The last sample of each signal that has a target and is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signals {
    /// Requests in flight.
    pub in_flight: Option<SignalReading>,
    /// The CPU utilization, in thousandths.
    pub cpu: Option<SignalReading>,
    /// The time that requests wait for a worker, in microseconds.
    pub delay: Option<SignalReading>,
}

impl Signals {
    /// Returns the signals with their names in the policy.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, SignalReading)> {
        let Self { in_flight, cpu, delay } = *self;
        let all = [("inflight", in_flight), ("cpu", cpu), ("delay", delay)];
        all.into_iter().filter_map(|(name, reading)| Some((name, reading?)))
    }

    /// Returns the signal that exceeds its target most, or is closest to it.
    pub fn largest(&self) -> Option<(&'static str, SignalReading)> {
        self.iter().max_by_key(|(_, reading)| reading.utilization())
    }
}

/// The measurements since the last sample.
#[derive(Debug)]
pub(crate) struct Meters {
    /// Requests that hold an [`InFlightGuard`](super::InFlightGuard).
    entered: AtomicU64,
    /// Requests in flight that were reported.
    reported: AtomicU64,
    /// The CPU utilization in thousandths, or `UNKNOWN`, and the time of the report in microseconds.
    cpu: AtomicU64,
    cpu_at: AtomicU64,
    /// The longest delay since the last sample in microseconds, or `UNKNOWN` before the first report.
    delay: AtomicU64,
    averages: Mutex<Averages>,
    /// The last sample and the target of each signal; a target of zero marks a missing sample.
    last: [[AtomicU64; 2]; 3],
}

/// The moving averages of the signals.
#[derive(Debug, Default)]
struct Averages {
    in_flight: Smoothed,
    cpu: Smoothed,
    delay: Smoothed,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            entered: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            cpu: AtomicU64::new(UNKNOWN),
            cpu_at: AtomicU64::new(0),
            delay: AtomicU64::new(UNKNOWN),
            averages: Mutex::default(),
            last: Default::default(),
        }
    }
}

impl Meters {
    pub(super) fn enter(&self) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.entered.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.entered.load(Ordering::Relaxed).saturating_add(self.reported.load(Ordering::Relaxed))
    }

    pub(super) fn signals(&self) -> Signals {
        let [in_flight, cpu, delay] = self.last.each_ref().map(|reading| {
            let [value, target] = reading.each_ref().map(|it| it.load(Ordering::Relaxed));
            (target > 0).then_some(SignalReading { value, target })
        });
        Signals { in_flight, cpu, delay }
    }

    pub(super) fn report(&self, measurement: Measurement, now: Timestamp) {
        match measurement {
            Measurement::InFlight(requests) => self.reported.store(requests, Ordering::Relaxed),
            Measurement::Cpu(thousandths) => {
                self.cpu_at.store(now.as_micros(), Ordering::Relaxed);
                self.cpu.store(u64::from(thousandths), Ordering::Relaxed);
            }
            Measurement::Delay(delay) => {
                let delay = u64::try_from(delay.as_micros()).unwrap_or(UNKNOWN).min(UNKNOWN - 1);
                let longer = |known: u64| Some(if known == UNKNOWN { delay } else { known.max(delay) });
                let _always = self.delay.fetch_update(Ordering::Relaxed, Ordering::Relaxed, longer);
            }
        }
    }

    /// Takes a sample and returns the largest utilization of a target, in thousandths.
    pub(super) fn sample(&self, now: Timestamp, settings: &NodeShedSettings) -> u32 {
        let cpu = self.cpu.load(Ordering::Relaxed);
        let age = now.since(Timestamp::from_micros(self.cpu_at.load(Ordering::Relaxed)));
        let cpu = Some(cpu).filter(|cpu| *cpu != UNKNOWN && age <= MAX_CPU_AGE);
        let since_last = |delay: u64| (delay != UNKNOWN).then_some(0);
        let delay = self.delay.fetch_update(Ordering::Relaxed, Ordering::Relaxed, since_last).ok();
        let now = Duration::from_micros(now.as_micros());
        let mut averages = self.averages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut largest = 0;
        let mut read = |average: &mut Smoothed, value: Option<u64>, target: Option<u64>| {
            let Some((value, target)) = value.zip(target) else {
                *average = Smoothed::default();
                return None;
            };
            // Averaged in thousandths, so that small numbers of requests are not rounded away. The
            // utilization is in thousandths, too.
            let thousandths = average.update(now, value.saturating_mul(1_000));
            largest = largest.max(thousandths / target.max(1));
            Some(SignalReading { value: thousandths / 1_000, target })
        };
        let cpu_target = settings.cpu.map(|percent| u64::from(percent) * 10);
        let delay_target = settings.delay.map(Span::as_micros);
        let last = Signals {
            in_flight: read(&mut averages.in_flight, Some(self.in_flight()), settings.in_flight),
            cpu: read(&mut averages.cpu, cpu, cpu_target),
            delay: read(&mut averages.delay, delay, delay_target),
        };
        for (kept, reading) in self.last.iter().zip([last.in_flight, last.cpu, last.delay]) {
            let (value, target) = reading.map_or((0, 0), |it| (it.value, it.target));
            kept[0].store(value, Ordering::Relaxed);
            kept[1].store(target, Ordering::Relaxed);
        }
        u32::try_from(largest).unwrap_or(u32::MAX)
    }
}
