//! Generates traffic of a given shape, including clients that retry after a refusal.
//!
//! A [`Traffic`] is a description. [`Traffic::start`] creates a [`Flow`] from it, which yields [`Arrival`]s and
//! receives the outcome of each, because clients that retry react to outcomes. The same description, seed and
//! outcomes give the same flow.
//!
//! Numbers are relative to the tested rate: a load of 1.5 is one and a half times the rate, and the times of a shape
//! are multiples of the rate's window.
//!
//! Not here: deciding (`simulate`), logs (`log`).

mod client;
mod flow;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate::{Rate, Span};

pub use flow::{Arrival, Flow, Next};

/// The most clients of a flow. Each takes memory.
pub const MAX_CLIENTS: u32 = 100_000;

/// The most attempts of a request.
pub const MAX_ATTEMPTS: u32 = 100;

/// Distribution of requests over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Evenly spaced.
    Steady,
    /// Bursts at the end of one window and at the start of the next.
    Edge,
    /// On for the length of a window, off for as long.
    OnOff,
    /// Independent of each other (Poisson process).
    Poisson,
    /// A sudden rise that decays.
    FlashCrowd,
    /// All clients at once, and again after a refusal.
    RetryStorm,
    /// A linear rise from zero to twice the load.
    Ramp,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 7] = [
        Self::Steady,
        Self::Edge,
        Self::OnOff,
        Self::Poisson,
        Self::FlashCrowd,
        Self::RetryStorm,
        Self::Ramp,
    ];

    /// Returns the name on the command line and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Edge => "edge",
            Self::OnOff => "on-off",
            Self::Poisson => "poisson",
            Self::FlashCrowd => "flash-crowd",
            Self::RetryStorm => "retry-storm",
            Self::Ramp => "ramp",
        }
    }

    /// Returns the shape of this name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.word() == word)
    }

    /// Returns a description for users.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Steady => "evenly spaced requests",
            Self::Edge => {
                "a burst at the end of a window and another at the start of the next, every second window"
            }
            Self::OnOff => "on for the length of a window at twice the load, off for as long",
            Self::Poisson => "requests that know nothing of each other",
            Self::FlashCrowd => "little traffic, a sudden rise to six times the load, and an ebb",
            Self::RetryStorm => "everybody asks at once, every fourth window, and comes back when refused",
            Self::Ramp => "a slow rise from nothing to twice the load",
        }
    }

    /// Returns the default load, which shows the characteristic of the shape.
    pub const fn usual_load(self) -> f64 {
        match self {
            Self::Steady | Self::OnOff => 1.5,
            Self::RetryStorm => 0.75,
            Self::Edge | Self::Poisson | Self::FlashCrowd | Self::Ramp => 1.0,
        }
    }

    /// Whether refused clients retry.
    pub const fn retries(self) -> bool {
        matches!(self, Self::RetryStorm)
    }
}

/// The key of the simulated limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum By {
    /// Each client has its own allowance. The load is per client.
    #[default]
    #[serde(rename = "ip")]
    Client,
    /// All clients share one allowance. The load is the total.
    #[serde(rename = "global")]
    Everybody,
}

impl By {
    /// Returns the name in policies.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Client => "ip",
            Self::Everybody => "global",
        }
    }

    /// Returns the variant of this name.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Client, Self::Everybody].into_iter().find(|it| it.word() == word)
    }
}

/// Behavior of clients after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Retry {
    /// Whether clients wait for `Retry-After`. Other clients back off: one second, then two, four and so on, up to
    /// the window of the rate.
    pub honours_retry_after: bool,
    /// Whether waits are randomized: `Retry-After` is extended by up to its length; a backoff is a random time up to
    /// its length.
    pub jitter: bool,
    /// The most attempts of a request, including the first.
    pub attempts: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { honours_retry_after: true, jitter: true, attempts: 10 }
    }
}

/// Description of generated traffic.
///
/// ```
/// # use tollgate::{Rate, Span};
/// # use tollgate_sim::traffic::{Shape, Traffic};
/// let traffic = Traffic::new(Shape::Edge, Rate::per_minute(10));
/// let flow = traffic.start();
/// assert_eq!(flow.count(), 100);                     // ten minutes of ten a minute
///
/// let nobodys = Traffic { clients: 0, ..traffic };
/// assert!(nobodys.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Distribution over time.
    pub shape: Shape,
    /// The tested rate.
    pub rate: Rate,
    /// Requests as a multiple of the rate.
    pub load: f64,
    /// Number of clients.
    pub clients: u32,
    /// Whether load and limit are per client or shared.
    pub by: By,
    /// Length of the traffic.
    pub duration: Span,
    /// Behavior of refused clients, for shapes with retries.
    pub retry: Retry,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Reason why a description is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// Number of clients out of range.
    #[error("there must be 1 to {max} clients", max = MAX_CLIENTS)]
    Clients,
    /// Load out of range or not a number.
    #[error("a load is a multiple of the rate, from 0.01 to 1000")]
    Load,
    /// Duration zero, or more than four years.
    #[error("the duration must be above zero, and below four years")]
    Duration,
    /// Number of attempts out of range.
    #[error("a request is tried 1 to {max} times", max = MAX_ATTEMPTS)]
    Attempts,
}

/// Four years, the longest period of a quota.
pub(crate) const MAX_PERIOD: Span = Span::from_micros(1 << 47);

impl Traffic {
    /// Creates traffic with defaults: ten windows long, one client, or twenty clients with a shared allowance for
    /// shapes with retries.
    pub const fn new(shape: Shape, rate: Rate) -> Self {
        let crowd = shape.retries();
        Self {
            shape,
            rate,
            load: shape.usual_load(),
            clients: if crowd { 20 } else { 1 },
            by: if crowd { By::Everybody } else { By::Client },
            duration: Span::from_micros(rate.period.as_micros().saturating_mul(10)),
            retry: Retry { honours_retry_after: true, jitter: true, attempts: 10 },
            seed: 1,
        }
    }

    /// Checks that the description is valid.
    pub fn check(&self) -> Result<(), TrafficError> {
        if !(1..=MAX_CLIENTS).contains(&self.clients) {
            return Err(TrafficError::Clients);
        }
        if !(0.01..=1000.0).contains(&self.load) {
            return Err(TrafficError::Load);
        }
        if self.duration.is_zero() || self.duration > MAX_PERIOD {
            return Err(TrafficError::Duration);
        }
        if !(1..=MAX_ATTEMPTS).contains(&self.retry.attempts) {
            return Err(TrafficError::Attempts);
        }
        Ok(())
    }

    /// Estimates the number of requests, without retries.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn expected(&self) -> f64 {
        let budgets = match self.by {
            By::Client => f64::from(self.clients),
            By::Everybody => 1.0,
        };
        let windows = self.duration.as_micros() as f64 / (self.rate.period.as_micros() as f64).max(1.0);
        budgets * self.load * self.rate.count as f64 * windows
    }

    /// Starts a flow.
    pub fn start(&self) -> Flow {
        Flow::new(self)
    }
}
