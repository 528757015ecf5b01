//! The reasons why a call was not sent, or not sent again.

use std::fmt;
use std::time::Duration;

/// Error returned when a call was given up without a response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The call was not sent: its wait would have been longer than its time.
    #[error(transparent)]
    GaveUp(#[from] GaveUp),
    /// The last attempt failed, and no other was permitted.
    #[error("the call failed after {tries} tries")]
    Failed {
        /// The attempts that were made.
        tries: u32,
        /// The failure of the last one.
        #[source]
        source: E,
    },
}

/// The reason why a call was given up before it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gave up a call to {host} after {waited:.1?}: {cause}")]
#[non_exhaustive]
pub struct GaveUp {
    /// The server.
    pub host: String,
    /// The time that the call has waited.
    pub waited: Duration,
    /// The cause.
    pub cause: GaveUpCause,
}

/// The reason for which an abandoned call was waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveUpCause {
    /// The bucket was used up, or the server had refused a call of it.
    Bucket {
        /// The name that the server gave the bucket; empty if it gave none.
        name: String,
        /// The time until the call could have been sent, as far as it is known.
        ready_in: Duration,
        /// The time that the call had left.
        time_left: Duration,
    },
    /// A budget that several processes share has nothing left.
    SharedBudget {
        /// The limit of the policy that refused.
        limit: String,
        /// The time until it has units again.
        ready_in: Duration,
    },
    /// Other calls of this process wait for the same units of the shared budget, and its turn did not come in time.
    SharedBudgetQueue,
    /// Too many calls are waiting.
    QueueFull,
    /// The server fails, and the breaker is open.
    BreakerOpen {
        /// The time until the next probe.
        probe_in: Duration,
    },
}

impl GaveUpCause {
    /// The time after which the call can be repeated, as far as it is known.
    pub fn ready_in(&self) -> Option<Duration> {
        match self {
            Self::Bucket { ready_in, .. } | Self::SharedBudget { ready_in, .. } => Some(*ready_in),
            Self::BreakerOpen { probe_in } => Some(*probe_in),
            Self::SharedBudgetQueue | Self::QueueFull => None,
        }
    }
}

impl fmt::Display for GaveUpCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { name, ready_in, time_left } => {
                let name: &dyn fmt::Display =
                    if name.is_empty() { &"of the route" } else { &format!("`{name}`") };
                write!(
                    f,
                    "the rate limit {name} has units in {ready_in:.1?}, and the call had {time_left:.1?} left"
                )
            }
            Self::SharedBudget { limit, ready_in } => {
                write!(f, "the shared limit `{limit}` has units in {ready_in:.1?}")
            }
            Self::SharedBudgetQueue => {
                f.write_str("the calls before it used the shared limit; lower the load, or raise the timeout")
            }
            Self::QueueFull => {
                f.write_str("too many calls are waiting; lower the load or raise `max_waiting`")
            }
            Self::BreakerOpen { probe_in } => {
                write!(f, "the server fails; the next call is tried in {probe_in:.1?}")
            }
        }
    }
}
