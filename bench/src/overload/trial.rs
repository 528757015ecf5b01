//! The phases of a measurement of one proxy.
//!
//! ```text
//! load   0.5    0.5       4          0.5        4       4
//!        warm-up unloaded overload   recovery   ramp    halved: half of the workers
//! ```
//!
//! The last two phases are for proxies that learn a limit.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::arrivals::arrivals;
use super::contestant::{Contestant, Programs, Proxy};
use super::figures::{Figures, recovered_after, settled_after};
use super::learned::Reading;
use super::load::{Load, Observation};
use super::upstream::{ServiceTime, Upstream};
use super::{CALM_LOAD, OVERLOAD, WORKERS, capacity};
use crate::report::median;
use crate::zipf::Rng;

/// The names of the measured phases.
pub const CASES: [&str; 4] = ["unloaded", "overload", "recovery", "halved"];

/// The lengths of the phases.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of the overload.
    pub overload: Duration,
    /// Of the warm-up, in which connections are opened.
    pub warm_up: Duration,
    /// Of the load before the overload.
    pub unloaded: Duration,
    /// Of the load after the overload.
    pub recovery: Duration,
    /// Of the overload before the capacity halves.
    pub ramp: Duration,
    /// Of the overload after the capacity has halved.
    pub halved: Duration,
}

impl Plan {
    /// Creates a plan with an overload of this many seconds.
    pub fn new(seconds: u64) -> Self {
        let time = Duration::from_secs;
        Self {
            overload: time(seconds),
            warm_up: time(1),
            unloaded: time(3),
            recovery: time(5),
            ramp: time(4),
            halved: time(12),
        }
    }
}

/// The setting of all measurements.
#[derive(Clone, Debug)]
pub struct Track {
    /// The programs.
    pub programs: Programs,
    /// Folder of configurations and logs.
    pub folder: PathBuf,
    /// The lengths of the phases.
    pub plan: Plan,
    /// The service time of the upstream.
    pub service_time: ServiceTime,
}

/// A phase that was run: its start and its length.
type Span = (Duration, Duration);

impl Track {
    /// Measures a proxy, and returns the numbers of each phase.
    pub fn measure(&self, contestant: Contestant) -> io::Result<Vec<(&'static str, Figures)>> {
        let upstream = Upstream::start(self.service_time)?;
        let proxy = contestant.start(&self.programs, upstream.address(), &self.folder)?;
        let mut run = Run::start(proxy.server.address())?;
        let plan = &self.plan;
        run.phase(CALM_LOAD, plan.warm_up)?;
        let unloaded = run.phase(CALM_LOAD, plan.unloaded)?;
        let (overload, cores, resident) = run.watched_phase(&proxy, plan.overload)?;
        let recovery = run.phase(CALM_LOAD, plan.recovery)?;
        let mut halved = None;
        if let Some(limit) = proxy.limit {
            run.phase(OVERLOAD, plan.ramp)?;
            let watch = limit.watch();
            upstream.set_workers(WORKERS / 2);
            let span = run.phase(OVERLOAD, plan.halved)?;
            halved = Some((span, watch.finish()?));
        }
        let observed = run.load.finish()?;
        let figures = |span, workers| Figures::of(&within(&observed, span), span.1, capacity(workers));
        let before = figures(unloaded, WORKERS);
        let mut all = vec![
            (CASES[0], before),
            (
                CASES[1],
                Figures { cores: Some(cores), resident_mib: Some(resident), ..figures(overload, WORKERS) },
            ),
            (
                CASES[2],
                Figures {
                    recovered_s: recovered_after(&observed, recovery, &before),
                    ..figures(recovery, WORKERS)
                },
            ),
        ];
        if let Some((span, readings)) = halved {
            all.push((CASES[3], with_limit(figures(span, WORKERS / 2), &readings, &before)));
        }
        Ok(all)
    }
}

/// Adds the learned limit, compared with Little's law: throughput × latency without waiting.
fn with_limit(figures: Figures, readings: &[Reading], before: &Figures) -> Figures {
    let little = capacity(WORKERS / 2) * before.mean_ms / 1e3;
    let end = readings.last().map_or(Duration::ZERO, |it| it.0);
    let last = readings.iter().filter(|it| it.0 + Duration::from_secs(3) >= end).map(|it| it.1);
    let limit = median(last);
    Figures {
        limit: Some(limit),
        limit_over_little: Some(limit / little),
        settled_s: settled_after(readings, little),
        ..figures
    }
}

fn within(observed: &[Observation], (start, length): Span) -> Vec<Observation> {
    observed.iter().filter(|it| (start..start + length).contains(&it.due_at)).copied().collect()
}

/// A load that changes from phase to phase.
struct Run {
    load: Load,
    rng: Rng,
}

impl Run {
    fn start(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { load: Load::start(address)?, rng: Rng::new() })
    }

    fn phase(&mut self, load: f64, length: Duration) -> io::Result<Span> {
        let arrivals = arrivals(&mut self.rng, load, length);
        let start = self.load.elapsed();
        self.load.run(&arrivals, length)?;
        Ok((start, length))
    }

    /// Runs an overload, and measures the cores and the MiB that the proxy uses.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn watched_phase(&mut self, proxy: &Proxy, length: Duration) -> io::Result<(Span, f64, f64)> {
        let family = proxy.server.family()?;
        let before = family.time()?;
        let span = self.phase(OVERLOAD, length)?;
        let busy = family.time()?.since(&before).busy().as_secs_f64();
        let resident = family.resident()? as f64 / f64::from(1 << 20);
        Ok((span, busy / length.as_secs_f64(), resident))
    }
}
