//! The responses of `GET /v1/stats` and `GET /v1/top`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{HEX, MODES};

/// The counts of each limit in the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub struct Stats<T: Default = String> {
    /// The length of the window in seconds.
    pub window_s: u64,
    /// The first second of the last five minutes, since 1970: the same for all counts.
    #[serde(default)]
    pub from: u64,
    /// The length of a step of a series in seconds.
    #[serde(default)]
    pub step_s: u64,
    /// The current second, since 1970, which is included.
    #[serde(default)]
    pub until: u64,
    /// The limits, in the order of the policy.
    pub limits: Vec<LimitStats<T>>,
}

/// The counts of one limit in the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LimitStats")]
pub struct LimitStats<T: Default = String> {
    /// The limit.
    pub name: T,
    /// The mode in force.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The mode in the policy file.
    #[schemars(extend("enum" = MODES))]
    pub policy_mode: T,
    /// The live limit of this candidate.
    pub candidate_of: Option<T>,
    /// Whether the limit is counted separately, which holds for up to 2,000 limits. The following members are null otherwise.
    pub counted: bool,
    /// Admitted requests.
    pub allowed: Option<u64>,
    /// Refused requests.
    pub limited: Option<u64>,
    /// Requests that it would have refused if it were enforced.
    pub shadow_limited: Option<u64>,
    /// Requests of blocked callers.
    pub blocked: Option<u64>,
    /// Requests that spent the last unit.
    pub exhausted: Option<u64>,
    /// Requests above the `soft` threshold.
    pub soft: Option<u64>,
    /// Requests that were decided without the store.
    pub degraded: Option<u64>,
    /// The smallest share that any key had left.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub remaining_min: Option<f64>,
    /// The counts since the start of the server.
    pub total: Option<LimitTotals>,
    /// The agreement of a candidate with its live limit.
    pub agreement: Option<Agreement<T>>,
    /// The counts over time, if they were requested.
    pub series: Option<LimitSeries>,
}

/// The counts of one limit since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct LimitTotals {
    /// Admitted requests.
    pub allowed: u64,
    /// Refused requests.
    pub limited: u64,
    /// Requests that it would have refused if it were enforced.
    pub shadow_limited: u64,
}

/// The agreement of a candidate with its live limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Agreement")]
pub struct Agreement<T: Default = String> {
    /// The time since which both limits have their current rules; null before the first decision.
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<T>,
    /// Requests that both admit.
    pub both_allow: u64,
    /// Requests that only the candidate admits.
    pub only_candidate_allows: u64,
    /// Requests that only the live limit admits.
    pub only_live_allows: u64,
    /// Requests that both refuse.
    pub both_refuse: u64,
}

/// The counts of one limit over time, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LimitSeries {
    /// Admitted requests.
    pub allowed: Vec<u64>,
    /// Refused requests.
    pub limited: Vec<u64>,
    /// The smallest share that any key had left; null without requests.
    #[schemars(inner(range(min = 0, max = 1)))]
    pub remaining: Vec<Option<f64>>,
}

/// The keys refused most and the routes requested most in the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Top")]
pub struct Top<T: Default = String> {
    /// The length of the window in seconds.
    #[serde(default)]
    pub window_s: u64,
    /// The first second of the last five minutes, since 1970: the same for all counts.
    #[serde(default)]
    pub from: u64,
    /// The keys, the most refused first.
    pub keys: Vec<TopKey<T>>,
    /// The routes, the most requested first.
    pub routes: Vec<HotRoute<T>>,
    /// The most by which `refused` of a key may be too high.
    #[serde(default)]
    pub error_at_most: u64,
    /// The most by which `requests` of a route may be too high.
    #[serde(default)]
    pub routes_error_at_most: u64,
}

/// A key that is refused often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "TopKey")]
pub struct TopKey<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// As the policy's `privacy` shows it.
    pub key: T,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit.
    #[schemars(extend("pattern" = HEX))]
    pub tag: T,
    /// The number of refusals, which may be too high.
    pub refused: u64,
    /// A lower bound of the number of refusals.
    pub refused_at_least: u64,
    /// The share of all refusals by limits in the window.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub share: f64,
}

/// A route that is requested often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "HotRoute")]
pub struct HotRoute<T: Default = String> {
    /// The method.
    pub method: T,
    /// Truncated.
    pub path: T,
    /// The number of requests, which may be too high.
    pub requests: u64,
    /// A lower bound of the number of requests. Absent in responses of older servers.
    #[schemars(with = "u64")]
    pub requests_at_least: Option<u64>,
    /// The number of refused requests.
    pub refused: u64,
}
