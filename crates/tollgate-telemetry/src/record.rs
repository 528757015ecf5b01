//! One decision, as it can be explained afterwards.
//!
//! Made when a request is refused, and for a sample of those that pass. Keys and
//! addresses are in it as the policy's `privacy` lets them be shown: nothing that must
//! not be seen is kept. Texts of callers are cut, so that a record has a largest size.
//!
//! Not here: making one from a decision (`describe`), keeping it (`ring`).

use std::sync::Arc;

use tollgate::{DecisionId, Mode, Outcome, Quota, Span, Timestamp};

use crate::explanation;
use crate::traceparent::TraceParent;

/// One decision, as it can be explained afterwards.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place among all records of this process, from one: each has the next. Zero for
    /// one that is not kept.
    pub seq: u64,
    /// What the caller quotes.
    pub id: DecisionId,
    /// When, by this node's clock.
    pub at: Timestamp,
    /// When, by the clock of the store, which the arithmetic is by; `at` where nothing was
    /// counted.
    pub counted_at: Timestamp,
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
    /// Where keys are not shown, parts of it that are one stand as `{name}`.
    pub path: Box<str>,
    /// The host asked for, cut where it is long. As it came.
    pub host: Option<Box<str>>,
    /// The client's address, as `privacy` shows it.
    pub client: Option<Box<str>>,
    /// The name of the limit that matters most: of a refusal the one that refused, else
    /// the one with the least left.
    pub limit: Option<Arc<str>>,
    /// The tag of the key that this limit decided about; of a request that was refused without
    /// counting, of its client's address.
    pub tag: Option<u64>,
    /// That limit, among `limits`; `None` where nothing was counted.
    pub limiting: Option<usize>,
    /// How long the caller was told to wait, where that helps; jitter is not in it.
    pub retry_after: Option<Span>,
    /// Every limit that was counted, window by window.
    pub limits: Vec<LimitRecord>,
    /// Limits in shadow mode that would have refused without counting.
    pub shadowed: Vec<ShadowBlock>,
    /// Whether every limit of the policy was switched off.
    pub switched_off: bool,
    /// The trace that the request belongs to, if it said so.
    pub trace: Option<TraceParent>,
}

/// A limit in shadow mode that would have refused without counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowBlock {
    /// The limit's name.
    pub limit: Arc<str>,
    /// Why, in words: as [`blocked`](crate::blocked) has them.
    pub reason: Box<str>,
    /// Whether it is tried beside another.
    pub is_candidate: bool,
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
    /// Servers may take the path for different places.
    AmbiguousPath,
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
    /// Stands for what is not shown of the key: the same under every limit.
    pub tag: u64,
    /// Tells this allowance from all others, in this process only.
    pub key_hash: u64,
    /// What it promises. Of a degraded decision, this node's share of it.
    pub quota: Quota,
    /// What the policy promises, where `quota` is only this node's share of it.
    pub whole: Option<Quota>,
    /// Whose numbers these are, if not the limit's own: `plan pro`, or `override`.
    pub granted_by: Option<Box<str>>,
    /// Whether it could refuse.
    pub mode: Mode,
    /// Whether it is tried beside another.
    pub is_candidate: bool,
    /// Whether a refused request was charged all the same.
    pub count_denied: bool,
    /// Whether it was counted on this node alone, by its share.
    pub degraded: bool,
    /// What the request asked for.
    pub cost: u64,
    /// What was answered.
    pub outcome: Outcome,
}

impl Record {
    /// What was decided and why, in one sentence.
    pub fn summary(&self) -> String {
        explanation::summary(self)
    }
}

impl RecordFate {
    /// As answers spell it: `admitted`, `deny_listed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::AllowListed => "allow_listed",
            Self::DenyListed => "deny_listed",
            Self::AmbiguousPath => "ambiguous_path",
            Self::Blocked => "blocked",
            Self::Uncountable => "uncountable",
        }
    }
}

impl LimitRecord {
    /// How the answer comes about, in sentences: what the limit promises, how the key
    /// stood, what was asked for, and when that would pass. `at` is the record's
    /// [`counted_at`](Record::counted_at).
    pub fn arithmetic(&self, at: Timestamp) -> Vec<String> {
        explanation::arithmetic(self, at)
    }

    /// What the limit promises, in words: `10 a minute, at most 10 at once`.
    pub fn promise(&self) -> String {
        explanation::promise(self)
    }
}
