//! The response of `GET /v1/history`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of steps in a history.
pub const MAX_HISTORY_STEPS: u64 = 360;

/// The counts of all decisions of the last hours or days, in steps of equal length, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "History")]
pub struct History {
    /// The first second, since 1970.
    pub from: u64,
    /// The current second, since 1970. The last step may be incomplete.
    pub until: u64,
    /// The length of a step in seconds.
    pub step_s: u64,
    /// Requests that passed.
    #[schemars(extend("maxItems" = MAX_HISTORY_STEPS))]
    pub allowed: Vec<u64>,
    /// Requests that were refused.
    #[schemars(extend("maxItems" = MAX_HISTORY_STEPS))]
    pub refused: Vec<u64>,
    /// Requests that a limit in shadow mode would have refused.
    #[schemars(extend("maxItems" = MAX_HISTORY_STEPS))]
    pub shadow_limited: Vec<u64>,
    /// Requests that were decided without the store.
    #[schemars(extend("maxItems" = MAX_HISTORY_STEPS))]
    pub degraded: Vec<u64>,
}
