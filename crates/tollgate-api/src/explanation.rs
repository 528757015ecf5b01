//! Past decisions and their explanations: `GET /v1/decisions`, `GET /v1/decisions/{id}` and
//! `POST /v1/explain`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ExplainedShed;
use crate::words::{ALGORITHMS, FATES, HEX, MODES};

/// The maximum number of decisions in one response.
pub const MAX_DECISIONS: u64 = 1_000;

/// Recent decisions, or those that a search found, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Decisions")]
pub struct Decisions<T: Default = String> {
    /// The value of `after` for the next request.
    pub next: u64,
    /// The number of decisions that were evicted in between.
    #[serde(default)]
    pub missed: u64,
    /// The value of `before` for the page of earlier decisions of a search; null if there are none, and without a search. A page of
    /// a search may be short, or even empty, and have an earlier one.
    #[serde(default)]
    pub earlier: Option<T>,
    /// The decisions.
    #[schemars(extend("maxItems" = MAX_DECISIONS))]
    pub decisions: Vec<DecisionLine<T>>,
}

/// A decision in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "DecisionLine")]
pub struct DecisionLine<T: Default = String> {
    /// The number of the decision since the start of the server.
    pub seq: u64,
    /// The id of the decision.
    #[schemars(extend("pattern" = HEX))]
    pub id: T,
    /// The time.
    #[schemars(extend("format" = "date-time"))]
    pub at: T,
    /// Whether the request was admitted.
    pub allowed: bool,
    /// The outcome in one word.
    #[schemars(extend("enum" = FATES))]
    pub fate: T,
    /// The priority class of the request; null if the policy has no classes.
    pub priority: Option<T>,
    /// Empty if the check named a limit and a key.
    pub method: T,
    /// Without the query.
    pub path: T,
    /// As `privacy` shows it.
    pub client: Option<T>,
    /// The limiting limit.
    pub limit: Option<T>,
    /// As the policy's `privacy` shows it.
    pub key: Option<T>,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit.
    #[schemars(extend("pattern" = HEX))]
    pub tag: Option<T>,
    /// In milliseconds, rounded up; null if waiting is not needed or does not help.
    pub retry_after_ms: Option<u64>,
    /// The time that an admitted request waits in the queues of its limits, in milliseconds, rounded up. Absent if it starts immediately.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub wait_ms: Option<u64>,
    /// Decided without the store.
    pub degraded: bool,
    /// The time that the decision took, in microseconds.
    pub took_us: u64,
}

/// The explanation of a past or hypothetical decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::struct_excessive_bools, reason = "each is a member of the JSON object")]
#[schemars(rename = "Explanation")]
pub struct Explanation<T: Default = String> {
    /// The id of the decision; null for a hypothetical one.
    #[schemars(extend("pattern" = HEX))]
    pub id: Option<T>,
    /// Whether the request is hypothetical and was not charged.
    #[serde(default)]
    pub hypothetical: bool,
    /// The time.
    #[serde(default)]
    #[schemars(extend("format" = "date-time"))]
    pub at: T,
    /// Whether the request was admitted.
    pub allowed: bool,
    /// The outcome in one word.
    #[serde(default)]
    #[schemars(extend("enum" = FATES))]
    pub fate: T,
    /// The decision in one sentence.
    pub summary: T,
    /// The reason, if the numbers do not explain the decision.
    pub reason: Option<T>,
    /// The priority class of the request; null if the policy has no classes.
    #[serde(default)]
    pub priority: Option<T>,
    /// The limiting limit.
    pub limit: Option<T>,
    /// In milliseconds, rounded up; null if waiting is not needed or does not help.
    pub retry_after_ms: Option<u64>,
    /// The time that an admitted request waits in the queues of its limits, in milliseconds, rounded up. Absent if it starts immediately.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub wait_ms: Option<u64>,
    /// The version of the policy that decided.
    #[serde(default)]
    pub policy_version: u64,
    /// Whether that policy is still in force.
    #[serde(default)]
    pub policy_is_current: bool,
    /// Decided without the store.
    #[serde(default)]
    pub degraded: bool,
    /// The time that the decision took, in microseconds.
    #[serde(default)]
    pub took_us: u64,
    /// The request.
    pub request: ExplainedRequest<T>,
    /// Each window of each limit.
    pub limits: Vec<ExplainedLimit<T>>,
    /// The state of the shedder of the node, if it refused the request. Null for all other refusals: `reason` has the numbers of learned limits and throttles.
    pub shed: Option<ExplainedShed<T>>,
    /// The name of the node that decided, if it is not the node that was asked; else null.
    #[serde(default)]
    pub node: Option<T>,
    /// The trace of the request; null if it has none.
    #[schemars(extend("pattern" = "^[0-9a-f]{32}$"))]
    pub trace_id: Option<T>,
}

/// The request of an explanation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct ExplainedRequest<T: Default = String> {
    /// The method.
    pub method: T,
    /// Without the query.
    pub path: T,
    /// The host.
    pub host: Option<T>,
    /// As `privacy` shows it.
    pub client: Option<T>,
}

/// One window of one limit, with its arithmetic.
#[allow(clippy::struct_excessive_bools, reason = "each is a member of the JSON object")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ExplainedLimit")]
pub struct ExplainedLimit<T: Default = String> {
    /// The limit.
    pub name: T,
    /// The name of the window.
    pub window: Option<T>,
    /// As the policy's `privacy` shows it.
    pub key: T,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit. Null if even that is hidden.
    #[schemars(extend("pattern" = HEX))]
    pub tag: Option<T>,
    /// The algorithm.
    #[schemars(extend("enum" = ALGORITHMS))]
    pub algorithm: T,
    /// The quota in words.
    pub quota: T,
    /// The plan, override or priority class that set the quota; `call` if the call set it; null for the limit's own.
    pub granted_by: Option<T>,
    /// The mode in force.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// Whether the limit is a candidate.
    pub candidate: bool,
    /// Whether it is the limiting limit.
    pub decided: bool,
    /// Whether it had room.
    pub allowed: bool,
    /// The units that the request costs.
    pub cost: u64,
    /// The full allowance.
    pub limit: u64,
    /// The units that are left.
    pub remaining: u64,
    /// In milliseconds, rounded up; null if waiting is not needed or does not help.
    pub retry_after_ms: Option<u64>,
    /// The time until the key has its full allowance.
    pub reset_after_ms: u64,
    /// Whether the node decided from units that it had leased, without asking the store.
    pub leased: bool,
    /// The steps of the computation in words.
    pub arithmetic: Vec<T>,
    /// The requests that spent from the key lately.
    pub spenders: Vec<Spender<T>>,
}

/// A request that spent from a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Spender")]
pub struct Spender<T: Default = String> {
    /// As `privacy` shows it.
    pub client: Option<T>,
    /// The method.
    pub method: T,
    /// Without the query.
    pub path: T,
    /// The units that it spent.
    pub units: u64,
    /// The time of the last one.
    #[schemars(extend("format" = "date-time"))]
    pub last_at: T,
}
