//! Compares the manners of clients that call a service with one limit for all of them, in virtual time.
//!
//! The limit is decided by the engine of the server, and its responses have the headers of the gateway. Paced clients are
//! those of `tollgate-client`, on a clock and timers of virtual time (`world`).
//!
//! - `manner`: how a client reacts to refusals.
//! - `service`: the limit, with the latency of the network.
//! - `world`: tasks and timers.
//! - `report`: refusals, goodput, fairness, waits.

mod manner;
mod report;
mod service;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Policy, Rate, Span};
use tollgate_document::RateText;

pub use manner::CallerManner;
pub use report::{CallersReport, MannerReport};

use manner::Caller;
use report::Tally;
use service::Service;
use world::World;

/// The most calls of a run.
const MAX_CALLS: f64 = 500_000.0;
/// The most clients.
const MAX_CLIENTS: u32 = 1_000;

/// Clients that share a limit of a service.
#[derive(Clone, Debug)]
pub struct CallersScenario {
    /// The limit for all clients together, as a policy writes it.
    pub limit: String,
    /// The number of clients: processes that know nothing of each other.
    pub clients: u32,
    /// Calls as a multiple of the rate.
    pub load: f64,
    /// The time in which calls arrive.
    pub duration: Span,
    /// The time that a call has.
    pub timeout: Span,
    /// The compared manners.
    pub manners: Vec<CallerManner>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for CallersScenario {
    /// Ten clients that make three times the calls that 100 a second with a burst of 20 admit, for 30 seconds.
    fn default() -> Self {
        Self {
            limit: "100/second, burst 20".to_owned(),
            clients: 10,
            load: 3.0,
            duration: Span::from_secs(30),
            timeout: Span::from_secs(10),
            manners: CallerManner::ALL.to_vec(),
            seed: 1,
        }
    }
}

/// The reason why clients cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallersError {
    /// The limit is not a rate with an optional burst.
    #[error("{0}")]
    Limit(String),
    /// There are no clients, or too many.
    #[error("there must be 1 to {MAX_CLIENTS} clients")]
    Clients,
    /// The load is not a positive number.
    #[error("the load must be more than 0, and at most 100")]
    Load,
    /// The run would have too many calls.
    #[error("this makes more than {MAX_CALLS} calls; shorten the run, or lower the rate or the load")]
    Calls,
    /// No manner is given.
    #[error("no manner is given")]
    NoManner,
}

/// Compares the manners, each with the same arrivals.
pub fn compare_callers(scenario: &CallersScenario) -> Result<CallersReport, CallersError> {
    if !(1..=MAX_CLIENTS).contains(&scenario.clients) {
        return Err(CallersError::Clients);
    }
    if !(scenario.load > 0.0 && scenario.load <= 100.0) {
        return Err(CallersError::Load);
    }
    if scenario.manners.is_empty() {
        return Err(CallersError::NoManner);
    }
    let limit = Limit::parse(&scenario.limit)?;
    if scenario.load * limit.per_second() * seconds(scenario.duration) > MAX_CALLS {
        return Err(CallersError::Calls);
    }
    let manners = scenario.manners.iter().map(|manner| run(scenario, *manner, &limit)).collect();
    Ok(CallersReport::new(scenario, manners))
}

/// The limit of a scenario.
struct Limit {
    policy: Policy,
    rate: Rate,
    burst: u64,
}

impl Limit {
    fn parse(text: &str) -> Result<Self, CallersError> {
        let parsed = RateText::parse(text).map_err(|mistake| CallersError::Limit(mistake.into_message()))?;
        let policy = format!("limits: [{{name: api, by: global, bucket: '{text}'}}]");
        let policy = Policy::parse(&policy).map_err(|error| CallersError::Limit(error.to_string()))?;
        let rate = parsed.rate();
        Ok(Self { policy, rate, burst: parsed.burst.unwrap_or(rate.count) })
    }

    #[allow(clippy::cast_precision_loss)] // an estimate
    fn per_second(&self) -> f64 {
        self.rate.count as f64 / seconds(self.rate.period)
    }
}

#[allow(clippy::cast_precision_loss)] // an estimate
fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

/// Runs one manner.
fn run(scenario: &CallersScenario, manner: CallerManner, limit: &Limit) -> MannerReport {
    let mut world = World::new();
    let service = Arc::new(Service::new(limit, world.timers(), scenario.seed));
    let tally = Arc::new(Tally::new(scenario.clients as usize));
    let callers: Vec<_> = (0..scenario.clients)
        .map(|number| Arc::new(Caller::new(manner, &service, world.timers(), scenario, number)))
        .collect();
    let mut rng = fastrand::Rng::with_seed(scenario.seed);
    let (mut at, end) = (0.0, seconds(scenario.duration));
    let mean = 1.0 / (scenario.load * limit.per_second());
    loop {
        // Independent arrivals.
        at += -mean * (1.0 - rng.f64()).ln();
        if at >= end {
            break;
        }
        let number = rng.usize(0..callers.len());
        let (caller, tally, timers) = (Arc::clone(&callers[number]), Arc::clone(&tally), world.timers());
        world.spawn(async move {
            timers.sleep(Duration::from_secs_f64(at)).await;
            let started = timers.now();
            let is_answered = caller.call().await;
            tally.record(number, is_answered, (started, timers.now()));
        });
    }
    let start = world.timers().now();
    world.run();
    tally.report(manner, limit, service.counts(), start)
}
