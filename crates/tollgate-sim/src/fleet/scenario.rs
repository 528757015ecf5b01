//! The input of a comparison.

use tollgate::{Algorithm as _, Bucket, Rate, Rule, Span};

use super::mode::FleetMode;
use crate::simulate::MAX_NODES;
use crate::traffic::{By, Shape, Traffic, TrafficError};

/// The shortest lease, as in a policy.
const MIN_LEASE: Span = Span::from_millis(10);
/// The longest lease that is chosen automatically.
const MAX_AUTO_LEASE: Span = Span::from_secs(1);
/// The part of the time to fill that a lease has, and has at most, as in a policy.
const AUTO_PART: u64 = 40;
const MAX_PART: u64 = 10;
/// The longest round trip and the longest interval.
const MAX_DELAY: Span = Span::from_secs(10);

/// A fleet, its limit and its traffic.
#[derive(Clone, Debug)]
pub struct FleetScenario {
    /// The limit of the whole fleet, for one key.
    pub bucket: Bucket,
    /// The number of nodes. Each request goes to a random one.
    pub nodes: u32,
    /// The compared modes.
    pub modes: Vec<FleetMode>,
    /// How long a node may hold leased units; `None`: a fortieth of the time to fill, at most a second.
    pub lease: Option<Span>,
    /// The time from a call to the store to its reply.
    pub round_trip: Span,
    /// The interval of `sync`.
    pub sync_interval: Span,
    /// The shape of the traffic. Clients do not retry.
    pub shape: Shape,
    /// Requests as a multiple of the rate.
    pub load: f64,
    /// The length of the run.
    pub duration: Span,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The most requests.
    pub max_requests: u64,
}

impl Default for FleetScenario {
    /// Four nodes, 1,000 requests a second with a burst of 2,000, asked for one and a half times as much for 30 seconds.
    #[allow(clippy::expect_used, reason = "the numbers are constant")]
    fn default() -> Self {
        let bucket = Bucket::new(Rate::per_second(1_000)).and_then(|it| it.with_burst(2_000));
        Self {
            bucket: bucket.expect("the numbers of a bucket"),
            nodes: 4,
            modes: FleetMode::ALL.to_vec(),
            lease: None,
            round_trip: Span::from_millis(1),
            sync_interval: Span::from_millis(100),
            shape: Shape::Poisson,
            load: 1.5,
            duration: Span::from_secs(30),
            seed: 1,
            max_requests: 5_000_000,
        }
    }
}

/// Reason why a scenario cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// Number of nodes out of range.
    #[error("a fleet has 1 to {max} nodes", max = MAX_NODES)]
    Nodes,
    /// The limit is a queue, or has less than a unit for each node.
    #[error("the limit must be a bucket with at least one unit for each node")]
    Limit,
    /// Lease out of range.
    #[error("a lease of this limit is {MIN_LEASE} to {max}, a tenth of the time to fill")]
    Lease {
        /// The longest lease.
        max: Span,
    },
    /// The limit fills too fast to be leased.
    #[error(
        "the limit fills within {fill}, which is too fast for a lease of {MIN_LEASE}; take a larger burst, or leave \
         `leased` out"
    )]
    NoLease {
        /// The time to fill.
        fill: Span,
    },
    /// Round trip out of range.
    #[error("a round trip takes up to {MAX_DELAY}, and more than nothing")]
    RoundTrip,
    /// Interval out of range.
    #[error("nodes synchronize every 1ms to {MAX_DELAY}")]
    SyncInterval,
    /// There are no modes.
    #[error("there is no mode to compare; name at least one, such as `leased`")]
    NoMode,
    /// Clients of this shape retry.
    #[error("clients do not retry here; take another shape than `retry-storm`")]
    Retries,
    /// The traffic is invalid.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// There are too many requests.
    #[error(
        "that is about {expected} requests in each mode, and {max} are simulated; take a lower rate, a lower load or less time"
    )]
    TooMany {
        /// Estimated requests.
        expected: u64,
        /// The most requests.
        max: u64,
    },
}

/// A request and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FleetArrival {
    /// Microseconds since the start.
    pub(super) at: u64,
    pub(super) node: usize,
}

impl FleetScenario {
    /// Returns how long leased units may be held.
    pub fn lease_ttl(&self) -> Span {
        let auto = Span::from_micros(self.bucket.fill_time().as_micros() / AUTO_PART);
        self.lease.unwrap_or(auto.min(MAX_AUTO_LEASE))
    }

    /// Returns the rule of the limit.
    pub(super) fn rule(&self) -> Rule {
        Rule::new("fleet", self.bucket)
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            by: By::Everybody,
            load: self.load,
            duration: self.duration,
            seed: self.seed,
            ..Traffic::new(self.shape, self.bucket.rate())
        }
    }

    /// Checks that the scenario is valid.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, which saturates"
    )]
    pub fn check(&self) -> Result<(), FleetError> {
        let (ttl, fill) = (self.lease_ttl(), self.bucket.fill_time());
        let max = Span::from_micros(fill.as_micros() / MAX_PART);
        let is_leased = self.modes.contains(&FleetMode::Leased);
        if !(1..=MAX_NODES).contains(&self.nodes) {
            return Err(FleetError::Nodes);
        }
        if self.bucket.queue().is_some() || self.bucket.capacity() < u64::from(self.nodes) {
            return Err(FleetError::Limit);
        }
        if self.modes.is_empty() {
            return Err(FleetError::NoMode);
        }
        if is_leased && (max < MIN_LEASE || (self.lease.is_none() && ttl < MIN_LEASE)) {
            return Err(FleetError::NoLease { fill });
        }
        if is_leased && !(MIN_LEASE..=max).contains(&ttl) {
            return Err(FleetError::Lease { max });
        }
        if self.round_trip.is_zero() || self.round_trip > MAX_DELAY {
            return Err(FleetError::RoundTrip);
        }
        if !(Span::from_millis(1)..=MAX_DELAY).contains(&self.sync_interval) {
            return Err(FleetError::SyncInterval);
        }
        if self.shape.retries() {
            return Err(FleetError::Retries);
        }
        let traffic = self.traffic();
        traffic.check()?;
        let expected = traffic.expected() as u64;
        if expected > self.max_requests {
            return Err(FleetError::TooMany { expected, max: self.max_requests });
        }
        Ok(())
    }

    /// Returns the requests in the order of their times.
    pub(super) fn arrivals(&self) -> Vec<FleetArrival> {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0xf1_ee7);
        let mut flow = self.traffic().start();
        let mut first = None;
        let mut arrivals = Vec::new();
        while let Some(arrival) = flow.next() {
            let at = arrival.at.as_micros();
            let from = *first.get_or_insert(at);
            flow.after_reply(&arrival, true, None);
            arrivals.push(FleetArrival { at: at - from, node: rng.usize(..self.nodes as usize) });
            if arrivals.len() as u64 >= 2 * self.max_requests {
                break;
            }
        }
        arrivals
    }
}
