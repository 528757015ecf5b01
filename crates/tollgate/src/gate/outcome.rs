//! The answers of a gate.

use std::fmt;
use std::time::Duration;

use tollgate_core::{ChargeTimes, Outcome, Span, Timestamp, Verdict};

/// An admitted request of a [`Gate`](crate::Gate): its charge, and the remaining units of the key.
///
/// It is not `Clone`, so that a charge is refunded or settled at most once.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// The charged units.
    pub units: u64,
    /// The time to wait before the request starts. Zero unless the gate has a queue
    /// ([`Queue`](crate::Queue)). [`until_ready`](crate::Gate::until_ready) has waited already.
    pub wait: Duration,
    /// The number of units that a rested key may spend in one step, or the number of slots.
    pub limit: u64,
    /// The number of units or slots that the key may still take, rounded down.
    pub remaining: u64,
    /// The time until the key is equivalent to a fresh one.
    pub reset_after: Duration,
    /// The time of the charge by the clock of the gate.
    pub(super) at: Timestamp,
}

impl Admission {
    /// Returns the times of the charge.
    pub(super) fn charge(&self) -> ChargeTimes {
        ChargeTimes { at: self.at, until: self.at + self.reset_after.into() }
    }
}

/// A refused request of a [`Gate`](crate::Gate). Nothing was charged.
///
/// ```
/// use tollgate::{Bucket, Gate, Rate};
///
/// let gate = Gate::new("exports", Bucket::new(Rate::per_hour(5))?);
/// let refusal = gate.check_n("ann", 6).unwrap_err();
/// assert_eq!(refusal.retry_after, None);               // more than the limit ever holds
/// assert_eq!(refusal.to_string(), "refused by the limit of 5: waiting does not help");
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a refused request must not proceed"]
#[non_exhaustive]
pub struct Refusal {
    /// The shortest wait after which the same request passes if no other request spends. `None` if
    /// waiting does not help. A slot may become free sooner.
    pub retry_after: Option<Duration>,
    /// The number of units that a rested key may spend in one step, or the number of slots.
    pub limit: u64,
    /// The number of units or slots that the key may still take, rounded down.
    pub remaining: u64,
    /// The time until the key is equivalent to a fresh one.
    pub reset_after: Duration,
}

impl Refusal {
    /// Creates the refusal of a task whose deadline passed while others were before it. The wait is
    /// an upper bound: a fresh key admits the task.
    pub(super) const fn queued(snapshot: Snapshot) -> Self {
        let Snapshot { limit, remaining, reset_after } = snapshot;
        Self { retry_after: Some(reset_after), limit, remaining, reset_after }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused by the limit of {}: ", self.limit)?;
        match self.retry_after {
            Some(wait) => write!(f, "try again in {}", Span::from(wait).human()),
            None => f.write_str("waiting does not help"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The state of one key of a [`Gate`](crate::Gate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of units that a rested key may spend in one step, or the number of slots.
    pub limit: u64,
    /// The number of units or slots that the key may still take, rounded down.
    pub remaining: u64,
    /// The time until the key is equivalent to a fresh one.
    pub reset_after: Duration,
}

impl From<Outcome> for Snapshot {
    fn from(outcome: Outcome) -> Self {
        let Outcome { limit, remaining, reset_after, .. } = outcome;
        Self { limit, remaining, reset_after: reset_after.into() }
    }
}

/// Converts the outcome of a charge at a time.
#[inline]
pub(super) fn admission(outcome: Outcome, at: Timestamp) -> Result<Admission, Refusal> {
    let Outcome { verdict, limit, remaining, reset_after } = outcome;
    let (reset_after, retry_after) = (reset_after.into(), outcome.retry_after().map(Duration::from));
    match verdict {
        Verdict::Admitted { units, wait, .. } => {
            Ok(Admission { units, wait: wait.into(), limit, remaining, reset_after, at })
        }
        Verdict::Refused { .. } | Verdict::Never => {
            Err(Refusal { retry_after, limit, remaining, reset_after })
        }
    }
}
