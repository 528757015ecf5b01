//! Traffic of a given shape: who asks when, and who comes back after a refusal.
//!
//! A [`Traffic`] is a description; [`Traffic::start`] makes a [`Flow`] of it, which tells one [`Arrival`] after the other and is told what
//! became of each. So shapes may react to answers, as clients that retry do. The same description and seed are the same flow, as
//! long as the answers are the same.
//!
//! Everything is told in terms of the rate that is tried out: a load of 1.5 is one and a half times of what may pass, and the times of a shape
//! are multiples of the rate's window.
//!
//! Not here: deciding (`simulate`), logs (`log`).

mod client;
mod flow;
#[cfg(test)]
mod tests;

use serde::Serialize;
use tollgate::{Rate, Span};

pub use flow::{Arrival, Flow, Next};

/// The most clients of a flow: each has a place in memory.
pub const MAX_CLIENTS: u32 = 100_000;

/// How often a request is tried at most, whoever asks.
pub const MAX_ATTEMPTS: u32 = 100;

/// How requests are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Evenly.
    Steady,
    /// Bursts at the end of one window and at the start of the next.
    Edge,
    /// On for the length of a window, off for as long.
    OnOff,
    /// Independent of each other.
    Poisson,
    /// A sudden rise that ebbs away.
    FlashCrowd,
    /// All at once, and again when refused.
    RetryStorm,
    /// From nothing to twice the load.
    Ramp,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Steady,
        Self::Edge,
        Self::OnOff,
        Self::Poisson,
        Self::FlashCrowd,
        Self::RetryStorm,
        Self::Ramp,
    ];

    /// As it is typed.
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

    /// The shape of this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.word() == word)
    }

    /// What it is, for people.
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

    /// The load that shows what the shape is about.
    pub const fn usual_load(self) -> f64 {
        match self {
            Self::Steady | Self::OnOff => 1.5,
            Self::RetryStorm => 0.75,
            Self::Edge | Self::Poisson | Self::FlashCrowd | Self::Ramp => 1.0,
        }
    }

    /// Whether refused requests come back.
    pub const fn retries(self) -> bool {
        matches!(self, Self::RetryStorm)
    }
}

/// Whom the limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum By {
    /// Each client on its own. The load is that of each client.
    #[default]
    #[serde(rename = "ip")]
    Client,
    /// All clients together. The load is that of all together.
    #[serde(rename = "global")]
    Everybody,
}

impl By {
    /// As policies spell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Client => "ip",
            Self::Everybody => "global",
        }
    }

    /// The one of this word.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Client, Self::Everybody].into_iter().find(|it| it.word() == word)
    }
}

/// What clients do when they are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Whether they wait as long as they are told. Those that do not wait a second, then two, then four and so on, up to the rate's
    /// window.
    pub honours_retry_after: bool,
    /// Whether chance is added. After a wait that was told: up to as long again; other waits: anything up to their length.
    pub jitter: bool,
    /// How often a request is tried in all.
    pub attempts: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { honours_retry_after: true, jitter: true, attempts: 10 }
    }
}

/// Traffic, described.
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
    /// How requests are spread.
    pub shape: Shape,
    /// The rate that is tried out.
    pub rate: Rate,
    /// How many requests are meant, as a multiple of that rate.
    pub load: f64,
    /// How many clients.
    pub clients: u32,
    /// Whose load that is.
    pub by: By,
    /// How long it goes on.
    pub duration: Span,
    /// What refused clients do, where the shape has them come back.
    pub retry: Retry,
    /// Other numbers, other chances.
    pub seed: u64,
}

/// Why traffic cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficError {
    /// Nobody, or too many.
    Clients,
    /// Not a load: not a number, nothing, or too much.
    Load,
    /// No time at all, or more than four years.
    Duration,
    /// Not once, or too often.
    Attempts,
}

impl std::fmt::Display for TrafficError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clients => write!(f, "there must be 1 to {MAX_CLIENTS} clients"),
            Self::Load => f.write_str("a load is a multiple of the rate, from 0.01 to 1000"),
            Self::Duration => f.write_str("the duration must be above zero, and below four years"),
            Self::Attempts => write!(f, "a request is tried 1 to {MAX_ATTEMPTS} times"),
        }
    }
}

impl std::error::Error for TrafficError {}

/// Four years, as in any quota.
const MAX_PERIOD: Span = Span::from_micros(1 << 47);

impl Traffic {
    /// As it is usually looked at: ten windows long, one client, or twenty that share one allowance where they retry.
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

    /// Whether such traffic can be made.
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

    /// About how many requests that is, without those that come back.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn expected(&self) -> f64 {
        let budgets = match self.by {
            By::Client => f64::from(self.clients),
            By::Everybody => 1.0,
        };
        let windows = self.duration.as_micros() as f64 / (self.rate.period.as_micros() as f64).max(1.0);
        budgets * self.load * self.rate.count as f64 * windows
    }

    /// Begins.
    pub fn start(&self) -> Flow {
        Flow::new(self)
    }
}
