//! Refusals that protect a service from overload, made by this node without the store.
//!
//! The shedders of this node are called by `limiter::local`. The fleet shedder counts in the store: it
//! is an ordinary limit ([`Limit::is_shed`]), and its refusals are [`Fate::Refused`](crate::Fate::Refused).

use std::time::Duration;

use tollgate_overload::shedder::Level;
use tollgate_policy::{Limit, NODE_SHEDDER, PriorityClass, THROTTLE};

use crate::node_shedder::Signals;

/// A refusal by this node, to protect itself or the service behind it from overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed<'l> {
    /// The shedder that refused, with its measurements.
    pub cause: ShedCause<'l>,
    /// The priority class of the request, if the policy has classes.
    pub priority: Option<&'l PriorityClass>,
}

/// The shedder that refused a request, with its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShedCause<'l> {
    /// The shedder of this node (`shed: {node: ...}`).
    Node(NodeShed),
    /// A limit that learns its number of slots (`slots: adaptive`).
    Adaptive(AdaptiveShed<'l>),
    /// The throttle of the upstream (`throttle` of the gateway).
    Throttle(ThrottleShed),
}

/// A refusal by the shedder of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeShed {
    /// The number of classes that are shed, the least important first.
    pub level: Level,
    /// The share of the class of the request that is shed, in thousandths.
    pub share: u32,
    /// The signals of the node that have a target.
    pub signals: Signals,
}

impl NodeShed {
    /// Creates a refusal from the state of the shedder, such as one that was stored.
    pub const fn new(level: Level, share: u32, signals: Signals) -> Self {
        Self { level, share, signals }
    }
}

/// A refusal by the throttle of an upstream, which rejects most requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThrottleShed {
    /// The requests of the last window, sent or refused.
    pub requests: u32,
    /// The requests that the upstream accepted.
    pub accepts: u32,
    /// The share of the class of the request that is refused, in thousandths.
    pub share: u32,
}

impl ThrottleShed {
    /// Creates a refusal from the numbers of a window and the refused share, 0 to 1.
    pub fn new(requests: f64, accepts: f64, share: f64) -> Self {
        // Saturates.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are positive")]
        let [requests, accepts, share] = [requests, accepts, share * 1_000.0].map(|it| it.round() as u32);
        Self { requests, accepts, share }
    }
}

/// A refusal by a limit that learns its number of slots.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AdaptiveShed<'l> {
    /// The limit.
    pub limit: &'l Limit,
    /// The number of requests in flight.
    pub in_flight: u32,
    /// The learned number of slots.
    pub slots: u32,
    /// The number of requests in flight up to which the class of the request is admitted.
    pub class_slots: u32,
    /// In microseconds; zero: not measured. Small, because every decision has room for it.
    pub(crate) latency: u32,
    pub(crate) baseline: u32,
}

impl AdaptiveShed<'_> {
    /// Returns the mean latency of recent requests, if it was measured.
    pub fn latency(&self) -> Option<Duration> {
        micros(self.latency)
    }

    /// Returns the mean latency without waiting, if it was measured.
    pub fn baseline(&self) -> Option<Duration> {
        micros(self.baseline)
    }
}

fn micros(micros: u32) -> Option<Duration> {
    (micros > 0).then(|| Duration::from_micros(micros.into()))
}

/// Compares limits by name, which is unique in a policy.
impl PartialEq for AdaptiveShed<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.limit.name(), self.in_flight, self.slots) == (other.limit.name(), other.in_flight, other.slots)
    }
}

impl Eq for AdaptiveShed<'_> {}

impl<'l> Shed<'l> {
    /// Returns the name of the limit in answers and records: `shed.node`, `shed.throttle`, or the name of
    /// the adaptive limit.
    pub fn name(&self) -> &'l str {
        match self.cause {
            ShedCause::Node(_) => NODE_SHEDDER,
            ShedCause::Adaptive(shed) => shed.limit.name(),
            ShedCause::Throttle(_) => THROTTLE,
        }
    }
}
