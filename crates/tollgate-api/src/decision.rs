//! The responses to checks, to operations on one key, and to a settlement, release or renewal of a decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::request::{MAX_BATCH_REQUESTS, MAX_UNITS};
use crate::words::{ALGORITHMS, HEX, MODES};

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Decision")]
pub struct Decision<T = String, L = Vec<LimitOutcome<T>>> {
    /// The id, to settle or release the decision. Absent if nothing was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T", extend("pattern" = HEX))]
    pub id: Option<T>,
    /// Whether the request is admitted.
    pub allowed: bool,
    /// The limiting limit: of a refusal the limit with the longest wait, else the limit with the least left.
    pub limit: Option<T>,
    /// In milliseconds, rounded up; null if waiting is not needed or does not help.
    pub retry_after_ms: Option<u64>,
    /// The time to wait before an admitted request starts, in milliseconds, rounded up. 0 unless a limit has a queue.
    #[serde(default)]
    pub wait_ms: u64,
    /// The store did not answer, and the outage rules decided.
    pub degraded: bool,
    /// The priority class of the request; null if the policy has no classes.
    #[serde(default)]
    pub priority: Option<T>,
    /// The limits whose `soft` threshold is reached.
    pub soft: Vec<T>,
    /// The reason, if the numbers do not explain the decision: allow-listed, deny-listed, blocked, never, degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T")]
    pub reason: Option<T>,
    /// The outcome of each window of each limit.
    pub limits: L,
}

/// The outcome of one window of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LimitOutcome")]
pub struct LimitOutcome<T = String> {
    /// The limit's name, as in the policy and in paths.
    pub name: T,
    /// The name of the window, such as `1s`; null if the limit has only one.
    pub window: Option<T>,
    /// As the policy's `privacy` shows it; API keys and cookies are never shown in full.
    pub key: T,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T", extend("pattern" = HEX))]
    pub tag: Option<T>,
    /// The algorithm.
    #[schemars(extend("enum" = ALGORITHMS))]
    pub algorithm: T,
    /// Whether the limit admits the request.
    pub allowed: bool,
    /// The mode in force.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The full allowance.
    pub limit: u64,
    /// The units that are left.
    pub remaining: u64,
    /// In milliseconds, rounded up; null if waiting is not needed or does not help.
    pub retry_after_ms: Option<u64>,
    /// The time until the key has its full allowance.
    pub reset_after_ms: u64,
    /// The units of the key that this node holds in leases, which `remaining` includes. Only in responses about a key
    /// of a limit with a `lease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub held: Option<u64>,
}

/// The decisions about the requests of a batch, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BatchDecision")]
pub struct BatchDecision<D = Decision> {
    /// The decisions.
    #[schemars(extend("maxItems" = MAX_BATCH_REQUESTS))]
    pub decisions: Vec<D>,
}

/// A settled decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Settled")]
pub struct Settled<T = String> {
    /// The id of the decision.
    #[schemars(extend("pattern" = HEX))]
    pub id: T,
    /// The number of units that were charged.
    #[schemars(extend("maximum" = MAX_UNITS))]
    pub cost: u64,
}

/// A decision whose slots are released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Released")]
pub struct Released<T = String> {
    /// The id of the decision.
    #[schemars(extend("pattern" = HEX))]
    pub id: T,
    /// The number of released slots.
    pub slots: u64,
}

/// A decision whose slots are renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Renewed")]
pub struct Renewed<T = String> {
    /// The id of the decision.
    #[schemars(extend("pattern" = HEX))]
    pub id: T,
    /// The number of slots that it still holds. Slots that were released, or whose leases have ended, are
    /// not taken again.
    pub slots: u64,
}

/// A decision in throttlecrab's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Throttled {
    /// Whether the request is admitted.
    pub allowed: bool,
    /// The amount that an idle key may spend at once: `max_burst`.
    pub limit: u64,
    /// The units that are left.
    pub remaining: u64,
    /// Whole seconds, cut.
    pub reset_after: u64,
    /// Seconds, truncated; 0 if allowed.
    pub retry_after: u64,
}
