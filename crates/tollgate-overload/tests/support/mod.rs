//! A deterministic model of a service with a number of workers, in virtual time.
//!
//! Requests arrive at random instants (Poisson), pass an adaptive limit or are refused, and wait in
//! first-come order for a free worker. Capacity is workers / service time.

#![allow(
    clippy::cast_precision_loss,
    clippy::unchecked_time_subtraction,
    reason = "a model: its numbers are small and its times ordered"
)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tollgate_overload::adaptive::{
    AdaptiveLimit, AdaptiveSettings, Admissions, Outcome, Sample, class_limit,
};

/// How the time of one request varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Noise {
    /// Every request takes the same time.
    None,
    /// Half of the time is fixed, the other half is exponential.
    Half,
    /// Exponential, with the given mean.
    Exponential,
    /// Nine of ten requests take half the mean, one takes 5.5 times the mean.
    Bimodal,
}

/// The load and the service during a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) until: Duration,
    pub(crate) workers: u32,
    pub(crate) service: Duration,
    /// Arrivals per second of each class, the most important first.
    pub(crate) arrivals: [f64; 3],
    pub(crate) failures: f64,
    /// Whether requests beyond the limit are refused.
    pub(crate) enforced: bool,
}

impl Phase {
    pub(crate) fn capacity(&self) -> f64 {
        f64::from(self.workers) / self.service.as_secs_f64()
    }
}

/// The results of one phase, without its first seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) seconds: f64,
    pub(crate) offered: [u32; 3],
    pub(crate) refused: [u32; 3],
    pub(crate) answered: u32,
    pub(crate) latencies: Vec<f64>,
    /// The learned limit each 100 ms, with its time.
    pub(crate) limits: Vec<(f64, u32)>,
    /// The baseline each 100 ms, in seconds.
    pub(crate) baselines: Vec<f64>,
    /// The baseline at the end.
    pub(crate) baseline: f64,
}

impl Report {
    /// The share of the capacity that was used for admitted requests.
    pub(crate) fn goodput(&self, phase: &Phase) -> f64 {
        f64::from(self.answered) / self.seconds / phase.capacity()
    }

    pub(crate) fn p99(&self) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
    }

    pub(crate) fn success(&self, class: usize) -> f64 {
        1.0 - f64::from(self.refused[class]) / f64::from(self.offered[class].max(1))
    }

    /// The time after which the limit stays within a quarter of this number, for the averages of each
    /// second.
    pub(crate) fn settled_after(&self, workers: u32) -> f64 {
        let workers = f64::from(workers);
        let first = self.limits.first().map_or(0.0, |it| it.0);
        let mut outside = self.limits.chunks(10).filter(|second| {
            let mean = second.iter().map(|it| f64::from(it.1)).sum::<f64>() / second.len() as f64;
            (mean / workers - 1.0).abs() > 0.25
        });
        outside.next_back().and_then(|it| it.last()).map_or(0.0, |it| it.0 - first)
    }
}

/// The clock of a process is not at zero when it starts.
const CLOCK_AT_START: Duration = Duration::from_secs(1_700_000_000);

pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Between 0 and 1, neither included.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(crate) fn exponential(&mut self) -> f64 {
        -self.next().ln()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    Departure(Job),
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    started_at: Duration,
    number: u64,
    inflight: u32,
}

/// Runs the phases and returns a report of each. `skip` is the time at the start of each phase that is
/// not part of goodput and latency.
pub(crate) fn run(
    settings: AdaptiveSettings,
    noise: Noise,
    class_skip: (usize, Duration),
    phases: &[Phase],
) -> Vec<Report> {
    run_seeded(0, settings, noise, class_skip, phases)
}

/// Does the same with other random numbers.
pub(crate) fn run_seeded(
    seed: u64,
    settings: AdaptiveSettings,
    noise: Noise,
    (classes, skip): (usize, Duration),
    phases: &[Phase],
) -> Vec<Report> {
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_mul(0x0100_0000_01B3));
    let mut limit = AdaptiveLimit::new(settings);
    let (mut inflight, mut busy, mut queue) = (0_u32, 0_u32, VecDeque::new());
    let mut events = BinaryHeap::new();
    let mut reports = Vec::new();
    let (mut now, mut next) = (Duration::ZERO, 0);
    events.push(Reverse((now, Event::Tick)));
    for phase in phases {
        let (began, mut report) = (now, Report::default());
        report.seconds = (phase.until - began - skip).as_secs_f64();
        for (class, rate) in phase.arrivals.iter().enumerate().filter(|it| *it.1 > 0.0) {
            let first = Duration::from_secs_f64(rng.exponential() / rate);
            events.push(Reverse((now + first, Event::Arrival(class))));
        }
        while let Some(Reverse((at, event))) = events.pop() {
            if at > phase.until {
                if !matches!(event, Event::Arrival(_)) {
                    events.push(Reverse((at, event)));
                }
                // Arrivals of this phase end with it.
                events.retain(|Reverse((_, it))| !matches!(it, Event::Arrival(_)));
                break;
            }
            now = at;
            let is_counted = now >= began + skip;
            match event {
                Event::Tick => {
                    report.limits.push((now.as_secs_f64(), limit.learned()));
                    report.baselines.push(limit.baseline().unwrap_or_default().as_secs_f64());
                    events.push(Reverse((now + Duration::from_millis(100), Event::Tick)));
                }
                Event::Arrival(class) => {
                    let gap = Duration::from_secs_f64(rng.exponential() / phase.arrivals[class]);
                    events.push(Reverse((now + gap, Event::Arrival(class))));
                    report.offered[class] += u32::from(is_counted);
                    let rank = u8::try_from(class).unwrap_or(u8::MAX);
                    if phase.enforced && inflight >= class_limit(limit.slots(), rank, classes) {
                        report.refused[class] += u32::from(is_counted);
                        continue;
                    }
                    inflight += 1;
                    queue.push_back(Job { started_at: now, number: next, inflight });
                    next += 1;
                }
                Event::Departure(job) => {
                    (busy, inflight) = (busy - 1, inflight - 1);
                    let outcome =
                        if rng.next() < phase.failures { Outcome::Failed } else { Outcome::Answered };
                    if is_counted && outcome == Outcome::Answered {
                        report.answered += 1;
                        report.latencies.push((now - job.started_at).as_secs_f64());
                    }
                    let Job { started_at, number, inflight: found } = job;
                    let sample = Sample { number, inflight: found, latency: now - started_at, outcome };
                    limit.record(sample, Admissions { next, inflight }, CLOCK_AT_START + now);
                }
            }
            while busy < phase.workers
                && let Some(job) = queue.pop_front()
            {
                busy += 1;
                let factor = match noise {
                    Noise::None => 1.0,
                    Noise::Half => 0.5 + 0.5 * rng.exponential(),
                    Noise::Exponential => rng.exponential(),
                    Noise::Bimodal => {
                        if rng.next() < 0.1 {
                            5.5
                        } else {
                            0.5
                        }
                    }
                };
                events.push(Reverse((now + phase.service.mul_f64(factor), Event::Departure(job))));
            }
        }
        now = phase.until;
        report.baseline = limit.baseline().unwrap_or_default().as_secs_f64();
        reports.push(report);
    }
    reports
}
