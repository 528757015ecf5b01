//! The response to a check, and to an operation on one key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Decision", extend("additionalProperties" = false))]
pub struct Decision<T = String, L = Vec<LimitOutcome<T>>> {
    /// The id, to settle or release the decision. Absent if nothing was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T", extend("pattern" = "^[0-9a-f]{16}$"))]
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
#[schemars(rename = "LimitOutcome", extend("additionalProperties" = false))]
pub struct LimitOutcome<T = String> {
    /// The limit's name, as in the policy and in paths.
    pub name: T,
    /// The name of the window, such as `1s`; null if the limit has only one.
    pub window: Option<T>,
    /// As the policy's `privacy` shows it; API keys and cookies are never shown in full.
    pub key: T,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T", extend("pattern" = "^[0-9a-f]{16}$"))]
    pub tag: Option<T>,
    /// The algorithm.
    #[schemars(extend("enum" = ["token-bucket", "fixed-window", "sliding-window", "sliding-log", "concurrency", "leaky-queue"]))]
    pub algorithm: T,
    /// Whether the limit admits the request.
    pub allowed: bool,
    /// The mode in force.
    #[schemars(extend("enum" = ["enforce", "shadow", "off"]))]
    pub mode: T,
    /// The full allowance.
    pub limit: u64,
    /// The units that are left.
    pub remaining: u64,
    /// In milliseconds, rounded up; null if waiting is not needed or does not help.
    pub retry_after_ms: Option<u64>,
    /// The time until the key has its full allowance.
    pub reset_after_ms: u64,
}
