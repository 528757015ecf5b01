//! How many: of all decisions, and limit by limit.
//!
//! Counts of a limit outlive its policy: a limit that keeps its name counts on.

use std::sync::Arc;

use tollgate::{Event, Policy};

/// How many decisions, of every kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted, with at least one limit counted.
    pub allowed: u64,
    /// No limit applied.
    pub unlimited: u64,
    /// A limit had no room.
    pub limited: u64,
    /// Refused without counting: deny list, override, plan, missing key.
    pub blocked: u64,
    /// Refused since the store gave no answer.
    pub uncountable: u64,
    /// Admitted, although a limit in shadow mode would have refused.
    pub shadow_limited: u64,
    /// Decided without the store.
    pub degraded: u64,
}

/// How many decisions one limit took part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// It had room.
    pub allowed: u64,
    /// It refused.
    pub limited: u64,
    /// It would have refused, in shadow mode.
    pub shadow_limited: u64,
    /// It refused without counting.
    pub blocked: u64,
    /// A key spent the last unit it had.
    pub exhausted: u64,
    /// Its `soft` threshold was reached.
    pub soft: u64,
    /// Counted without the store.
    pub degraded: u64,
    /// Of a limit that is tried beside another: both allowed, only it allowed, only the
    /// other allowed, neither.
    pub agreement: [u64; 4],
}

/// The counters of everything, for as long as the process runs.
pub(crate) struct Counters;

/// The counters that one policy's limits count in, by their place.
pub(crate) struct PolicyCounters;

impl Counters {
    pub(crate) fn new() -> Self {
        Self
    }

    /// For a policy that comes into force: its limits by place, known ones by name.
    pub(crate) fn of(&self, policy: &Policy) -> Arc<PolicyCounters> {
        let _ = policy;
        Arc::new(PolicyCounters)
    }

    /// All decisions so far.
    pub(crate) fn total(&self) -> Counts {
        Counts::default()
    }

    /// One limit so far.
    pub(crate) fn limit(&self, name: &str) -> Option<LimitCounts> {
        let _ = name;
        None
    }

    /// The store was asked.
    pub(crate) fn asked(&self, took: tollgate::Span, answered: bool) {
        let _ = (took, answered);
    }
}

impl PolicyCounters {
    /// Counts a decision.
    pub(crate) fn count(&self, event: &Event<'_, '_>) {
        let _ = event;
    }
}
