//! One decision, as it can be explained afterwards.
//!
//! Made when a request is refused, and for a sample of those that pass. Keys and
//! addresses are in it as the policy's `privacy` lets them be shown: nothing that must
//! not be seen is kept.

use std::sync::Arc;

use tollgate::{DecisionId, Mode, Outcome, Quota, Span, Timestamp};

use crate::words;

/// One decision, as it can be explained afterwards.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place among all records of this process: each has the next.
    pub seq: u64,
    /// What the caller quotes.
    pub id: DecisionId,
    /// When, by this node's clock.
    pub at: Timestamp,
    /// How long deciding took.
    pub took: Span,
    /// Whether the request could go ahead.
    pub allowed: bool,
    /// How it came about.
    pub fate: RecordFate,
    /// What no number says, in words.
    pub reason: Option<Box<str>>,
    /// The number of the policy that decided.
    pub policy_version: u64,
    /// Whether the store gave no answer.
    pub degraded: bool,
    /// Empty where a limit and a key were named instead of a request.
    pub method: Box<str>,
    /// Without the query, cut where it is long. As it came: escape it where you show it.
    pub path: Box<str>,
    /// The host asked for.
    pub host: Option<Box<str>>,
    /// The client's address, as `privacy` shows it.
    pub client: Option<Box<str>>,
    /// The limit to wait for, among `limits`.
    pub decider: Option<usize>,
    /// How long to wait, where that helps.
    pub retry_after: Option<Span>,
    /// Every limit that was counted, window by window.
    pub limits: Vec<LimitRecord>,
    /// The trace that the request belongs to, if it said so.
    pub trace: Option<TraceParent>,
}

/// How a decision came about, as [`tollgate::Fate`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordFate {
    /// Every limit had room.
    Admitted,
    /// A limit had no room.
    Refused,
    /// Allow-listed.
    AllowListed,
    /// Deny-listed.
    DenyListed,
    /// A limit refuses this key, plan or lack of a key without counting.
    Blocked,
    /// The store gave no answer, and a limit would rather refuse.
    Uncountable,
}

/// One limit's part in a record.
#[derive(Clone, Debug)]
pub struct LimitRecord {
    /// The limit's name.
    pub name: Arc<str>,
    /// Which of its windows, where it has several.
    pub window: Option<Box<str>>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Tells this allowance from all others, in this process only.
    pub spot: u64,
    /// What it promises.
    pub quota: Quota,
    /// Whether it could refuse.
    pub mode: Mode,
    /// Whether it is tried beside another.
    pub is_candidate: bool,
    /// What the request asked for.
    pub cost: u64,
    /// What was answered.
    pub outcome: Outcome,
}

/// The trace that a request belongs to (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The whole trace.
    pub trace: u128,
    /// The caller's span.
    pub span: u64,
    /// Whether the caller records it.
    pub sampled: bool,
}

impl LimitRecord {
    /// How the answer comes about, in sentences: what the limit promises, how the key
    /// stood, what was asked for, and when that would pass.
    pub fn arithmetic(&self, at: Timestamp) -> Vec<String> {
        words::arithmetic(self, at)
    }
}
