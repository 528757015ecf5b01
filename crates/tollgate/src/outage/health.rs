//! How the store is doing, for people and metrics.

use std::time::Duration;

use tollgate_core::Timestamp;

/// What happens while a store gives no answer.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::outage::OutageSettings;
/// let settings = OutageSettings { grace: Duration::from_secs(10), ..OutageSettings::default() };
/// assert_eq!((settings.failures, settings.share), (5, 20));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageSettings {
    /// So many failures in a row, and the store is left alone. `u32::MAX`: never.
    pub failures: u32,
    /// What part of a limit `on_outage: local` grants, in per cent (1 to 100), over all nodes.
    pub share: u8,
    /// For how long `on_outage: allow` lets everything pass. After that it is `local`.
    pub grace: Duration,
    /// The first wait before the store is tried again.
    pub first_probe: Duration,
    /// The longest wait: each is twice the one before.
    pub longest_probe: Duration,
    /// How many keys are counted on this node, and how many are remembered to be
    /// charged when the store is back.
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

/// Whether the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// It is.
    Closed,
    /// It is left alone.
    Open,
    /// One request is finding out whether it is back.
    HalfOpen,
}

/// How the store is doing, and what was decided without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the store is asked.
    pub breaker: BreakerState,
    /// Whether it answered when it was last asked: false from the first failure on
    /// until the next answer, whether or not the breaker has opened.
    pub answers: bool,
    /// Since when it gives no answers, by this node's clock.
    pub since: Option<Timestamp>,
    /// Why the store gave no answer when it last gave none, with all causes.
    pub error: Option<String>,
    /// Decisions, replayed charges and probes that the store gave no answer to.
    pub failures: u64,
    /// How often the breaker has opened.
    pub opened: u64,
    /// Decisions without the store, by what decided.
    pub degraded: DegradedDecisions,
    /// Keys that are still to be charged to the store.
    pub ledger_keys: usize,
    /// Units that were charged to the store after an outage.
    pub replayed_units: u64,
    /// Charges that were lost, each of one key: no room, or the store may or may not have
    /// them. So many may be missing there.
    pub lost_entries: u64,
}

/// Decisions without the store, by what decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DegradedDecisions {
    /// At least one limit was counted on this node.
    pub local: u64,
    /// Every limit let it pass uncounted.
    pub allow: u64,
    /// A limit would rather refuse.
    pub deny: u64,
}

impl Health {
    /// Whether decisions are made without the store: the last that was asked of it was
    /// not answered.
    pub const fn is_degraded(&self) -> bool {
        !self.answers
    }
}

impl DegradedDecisions {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.local + self.allow + self.deny
    }
}
