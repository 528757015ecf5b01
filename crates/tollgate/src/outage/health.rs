//! The health of the store and the configuration of outages.

use std::time::Duration;

use tollgate_core::Timestamp;

/// Configuration of the behavior while a store gives no answer.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::outage::OutageSettings;
/// let settings = OutageSettings { grace: Duration::from_secs(10), ..OutageSettings::default() };
/// assert_eq!((settings.failures, settings.share), (5, 20));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageSettings {
    /// The number of consecutive failures that opens the breaker. `u32::MAX`: never.
    pub failures: u32,
    /// The percentage of a limit that `on_outage: local` grants over all nodes (1 to 100).
    pub share: u8,
    /// The time for which `on_outage: allow` lets requests pass. After that it behaves as `local`.
    pub grace: Duration,
    /// The first wait before a probe.
    pub first_probe: Duration,
    /// The longest wait before a probe. Each wait is twice the previous one.
    pub longest_probe: Duration,
    /// The number of keys that are counted on this node, and the number of keys that are remembered
    /// for the replay.
    pub keys: usize,
}

impl Default for OutageSettings {
    fn default() -> Self {
        Self {
            failures: 5,
            share: 20,
            grace: Duration::from_secs(60),
            first_probe: Duration::from_millis(100),
            longest_probe: Duration::from_secs(1),
            keys: 100_000,
        }
    }
}

/// The state of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is called.
    Closed,
    /// The store is not called.
    Open,
    /// One request is probing whether the store is back.
    HalfOpen,
}

/// The health of the store and counters of decisions made without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The state of the circuit breaker.
    pub breaker: BreakerState,
    /// Whether the last call to the store was answered: false from the first failure until the next
    /// answer, whether or not the breaker has opened.
    pub answers: bool,
    /// The start of the outage by this node's clock, if the store does not answer.
    pub since: Option<Timestamp>,
    /// The last error of the store, with all causes.
    pub error: Option<String>,
    /// Decisions, replayed charges and probes that the store did not answer.
    pub failures: u64,
    /// The number of times that the breaker has opened.
    pub opened: u64,
    /// Decisions without the store, by the behavior that decided.
    pub degraded: DegradedDecisions,
    /// Keys with usage that is still to be charged to the store.
    pub ledger_keys: usize,
    /// Units that were charged to the store after an outage.
    pub replayed_units: u64,
    /// Charges that were lost, each of one key: the ledger was full, or the result of the call is
    /// unknown. At most this many may be missing in the store.
    pub lost_entries: u64,
}

/// Decisions without the store, by the behavior that decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DegradedDecisions {
    /// At least one limit was counted on this node.
    pub local: u64,
    /// Every limit let the request pass uncounted.
    pub allow: u64,
    /// A limit refused because it could not count.
    pub deny: u64,
}

impl Health {
    /// Returns whether decisions are made without the store: its last call was not answered.
    pub const fn is_degraded(&self) -> bool {
        !self.answers
    }
}

impl DegradedDecisions {
    /// Returns the sum of all counters.
    pub const fn total(&self) -> u64 {
        self.local + self.allow + self.deny
    }
}
