//! A decision with the data that explains it.
//!
//! A record is kept for every refusal and for a sample of admitted requests. Keys and addresses are
//! stored as the policy's `privacy` shows them. Text from callers is truncated, so the size of a record
//! is bounded.
//!
//! `packed_record` and `describe` make records, `record_store` stores them.

use std::sync::Arc;

use tollgate::{DecisionId, Mode, NodeShed, Outcome, Quota, Span, Timestamp};

use crate::explanation;
use crate::traceparent::TraceParent;

/// The beginning of a record: enough to select records without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// The sequence number of the record in this process, from one without gaps.
    pub seq: u64,
    /// The id that the caller quotes.
    pub id: DecisionId,
    /// The time of the decision, by the clock of this node.
    pub at: Timestamp,
    /// Whether the request was admitted.
    pub allowed: bool,
    /// Whether the caller samples the trace of the request.
    pub is_trace_sampled: bool,
}

impl RecordHead {
    pub(crate) fn of(record: &Record) -> Self {
        let Record { seq, id, at, allowed, trace, .. } = *record;
        Self { seq, id, at, allowed, is_trace_sampled: trace.is_some_and(|it| it.sampled) }
    }
}

/// A decision with the data that explains it.
#[derive(Clone, Debug)]
pub struct Record {
    /// The sequence number of the record in this process, from one without gaps. Zero for a record that
    /// is not stored.
    pub seq: u64,
    /// The id that the caller quotes.
    pub id: DecisionId,
    /// The time of the decision, by the clock of this node.
    pub at: Timestamp,
    /// The time by the clock of the store, on which the arithmetic is based; equal to `at` if nothing
    /// was counted.
    pub counted_at: Timestamp,
    /// The latency of the decision.
    pub took: Span,
    /// Whether the request was admitted.
    pub allowed: bool,
    /// The kind of decision.
    pub fate: RecordFate,
    /// The reason in words, if the numbers do not explain the decision.
    pub reason: Option<Box<str>>,
    /// The name of the priority class, if the policy has classes.
    pub priority: Option<Box<str>>,
    /// The version of the policy that decided.
    pub policy_version: u64,
    /// Whether the store did not answer.
    pub degraded: bool,
    /// The method; empty if the check named a limit and a key instead of a request.
    pub method: Box<str>,
    /// The path without the query, truncated. The text comes from the caller: escape it for display.
    /// Where keys are hidden, segments that are keys are shown as `{name}`.
    pub path: Box<str>,
    /// The requested host, truncated. The text comes from the caller.
    pub host: Option<Box<str>>,
    /// The client's address, as `privacy` shows it.
    pub client: Option<Box<str>>,
    /// The name of the limiting limit: the limit that refused, or else the limit with the least left.
    pub limit: Option<Arc<str>>,
    /// The tag of the key of that limit; for a refusal without counting, the tag of the client's
    /// address.
    pub tag: Option<u64>,
    /// The index of that limit in `limits`; `None` if nothing was counted.
    pub limiting: Option<usize>,
    /// The wait that the caller was given, without jitter; `None` if waiting does not help.
    pub retry_after: Option<Span>,
    /// Every limit that was counted, one entry for each window.
    pub limits: Vec<LimitRecord>,
    /// Limits in shadow mode that would have refused without counting.
    pub shadowed: Vec<ShadowBlock>,
    /// Whether every limit of the policy was switched off.
    pub switched_off: bool,
    /// The state of the shedder of the node, if it refused the request.
    pub node_shed: Option<Box<NodeShed>>,
    /// The trace context that the request carried.
    pub trace: Option<TraceParent>,
}

/// A limit in shadow mode that would have refused without counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowBlock {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The reason in words, from [`blocked`](crate::blocked).
    pub reason: Box<str>,
    /// Whether the limit is a candidate.
    pub is_candidate: bool,
}

/// The kind of a decision, as in [`tollgate::Fate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordFate {
    /// Every limit had room.
    Admitted,
    /// A limit had no room.
    Refused,
    /// An allow list matched.
    AllowListed,
    /// A deny list matched.
    DenyListed,
    /// Servers may resolve the path to different resources.
    AmbiguousPath,
    /// A limit refuses this key, plan or missing key without counting.
    Blocked,
    /// The store did not answer, and a limit refuses during an outage.
    Uncountable,
    /// This node refused because of overload, without asking the store.
    Shed,
}

/// The outcome of one limit in a record.
#[derive(Clone, Debug)]
pub struct LimitRecord {
    /// The limit's name.
    pub name: Arc<str>,
    /// The name of the window, if the limit has several.
    pub window: Option<Box<str>>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Identifies the hidden part of the key. It is the same under every limit.
    pub tag: u64,
    /// Identifies the allowance within this process.
    pub key_hash: u64,
    /// The quota; for a degraded decision, this node's share of it.
    pub quota: Quota,
    /// The quota of the policy, if `quota` is this node's share of it.
    pub whole: Option<Quota>,
    /// The source of the quota, if it is not the limit: `plan pro`, `override`, or `priority bulk`.
    pub granted_by: Option<Box<str>>,
    /// The mode, which says whether the limit could refuse.
    pub mode: Mode,
    /// Whether the limit is a candidate.
    pub is_candidate: bool,
    /// Whether refused requests are charged.
    pub count_denied: bool,
    /// Whether this node counted alone, by its share.
    pub degraded: bool,
    /// The units that the request asked for.
    pub cost: u64,
    /// The outcome that was returned.
    pub outcome: Outcome,
}

impl Record {
    /// Returns one sentence with the decision and its reason.
    pub fn summary(&self) -> String {
        explanation::summary(self)
    }

    /// Returns the time that an admitted request waits in the queues of its limits before it starts.
    /// `None` if it starts immediately, and for a refusal.
    pub fn wait(&self) -> Option<Span> {
        let binding = self.limits.iter().filter(|it| self.allowed && it.mode != Mode::Shadow);
        binding.map(|it| it.outcome.wait()).max().filter(|wait| !wait.is_zero())
    }
}

impl RecordFate {
    /// Returns the spelling of the API: `admitted`, `deny_listed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::AllowListed => "allow_listed",
            Self::DenyListed => "deny_listed",
            Self::AmbiguousPath => "ambiguous_path",
            Self::Blocked => "blocked",
            Self::Uncountable => "uncountable",
            Self::Shed => "shed",
        }
    }
}

impl LimitRecord {
    /// Returns the sentences that explain the outcome: the quota, the state of the key, the requested
    /// units, and when they would be available. `at` is the record's
    /// [`counted_at`](Record::counted_at).
    pub fn arithmetic(&self, at: Timestamp) -> Vec<String> {
        explanation::arithmetic(self, at)
    }

    /// Returns the quota in words: `10 a minute, at most 10 at once`.
    pub fn promise(&self) -> String {
        explanation::promise(self)
    }
}
