//! The limits with a learned number of slots (`slots: adaptive`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{MODES, SWITCHES};

/// The maximum number of limits in `adaptive` of an overview.
pub const MAX_LEARNED_LIMITS: usize = 100;

/// A limit with a learned number of slots, over all of its keys on the node that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LearnedLimit")]
pub struct LearnedLimit<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// The mode in force.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The override; `policy` if there is none. With `frozen`, the learned numbers stay as they are.
    #[schemars(extend("enum" = SWITCHES))]
    pub switch: T,
    /// The number of keys.
    pub keys: u64,
    /// The sum of the learned numbers of slots.
    pub slots: u64,
    /// The sum of the requests in flight.
    pub in_flight: u64,
    /// The mean latency in the last window of the busiest key, in microseconds; null before the first window.
    pub latency_us: Option<u64>,
    /// The mean latency of that key without waiting, in microseconds; null until it was measured.
    pub baseline_us: Option<u64>,
    /// The requests that exceeded the limit, by class. In shadow mode they were admitted.
    pub exceeded: Vec<ExceededBy<T>>,
}

/// The requests of one priority class that exceeded a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ExceededBy")]
pub struct ExceededBy<T: Default = String> {
    /// The class; null for requests without one.
    pub priority: Option<T>,
    /// The number of requests since the limit was created.
    pub requests: u64,
}
