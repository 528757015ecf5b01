//! The response of `GET /v1/overview`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{MODES, PRIVACY, ROLES};
use crate::{LearnedLimit, Leases, MAX_LEARNED_LIMITS, Shedders, StoreHealth};

/// The health of the server. `E` is the type of a text of several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Overview")]
pub struct Overview<T: Default = String, E: Default = T> {
    /// The time of the response.
    #[serde(default)]
    #[schemars(extend("format" = "date-time"))]
    pub now: T,
    /// The start of the server.
    #[serde(default)]
    #[schemars(extend("format" = "date-time"))]
    pub started_at: T,
    /// Of Tollgate.
    #[serde(default)]
    pub version: T,
    /// The role of the caller.
    #[serde(default)]
    #[schemars(extend("enum" = ROLES))]
    pub role: T,
    /// False with `observe: off`: then nothing below is counted.
    #[serde(default)]
    pub observing: bool,
    /// The policy in force.
    pub policy: PolicyInForce<T, E>,
    /// The mode of everything.
    #[serde(default)]
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The store.
    pub store: StoreInFull<T>,
    /// The counts since the start of the server.
    pub totals: Totals,
    /// The counts of the last five minutes. Absent in responses of older servers.
    #[schemars(with = "Window")]
    pub window: Option<Window>,
    /// The counts of each second of the last five minutes.
    #[serde(default)]
    pub series: Series,
    /// The time that recent decisions took, in microseconds; null if there are none.
    pub latency_us: Option<Latency>,
    /// The keys that have been exhausted for minutes.
    #[serde(default)]
    pub alerts: Vec<Alert<T>>,
    /// The seconds after which an exhausted key is in `alerts`.
    pub at_zero_for_s: Option<u64>,
    /// The requests that are delayed by a soft limit.
    #[serde(default)]
    pub tarpit: Tarpit,
    /// The limits with a queue: the requests that wait, and their waits.
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_QUEUES))]
    pub queues: Vec<LimitQueue<T>>,
    /// The shedders.
    #[serde(default)]
    pub shed: Shedders<T>,
    /// The limits with a learned number of slots.
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_LEARNED_LIMITS))]
    pub adaptive: Vec<LearnedLimit<T>>,
    /// The leases of the node.
    #[serde(default)]
    pub leases: Leases<T>,
    /// The log of refusals.
    #[serde(default)]
    pub log: RefusalLog,
    /// The decision log on disk; null without `records`.
    pub records: Option<RecordLog<T>>,
}

/// The maximum number of limits in `queues` of an overview.
pub const MAX_QUEUES: usize = 100;

/// The requests that wait in the queues of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LimitQueue")]
pub struct LimitQueue<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// The number of requests that wait now, over all keys.
    pub waiting: u64,
    /// The median of the waits in the last five minutes, in milliseconds: the upper edge of its bucket of `tollgate_limit_wait_seconds`; null if no request had to wait.
    pub wait_p50_ms: Option<u64>,
    /// The 99th percentile of the waits in the last five minutes, in milliseconds: the upper edge of its bucket; null if no request had to wait.
    pub wait_p99_ms: Option<u64>,
}

/// The policy in force, in numbers. `E` is the type of a text of several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PolicyInForce")]
pub struct PolicyInForce<T: Default = String, E: Default = T> {
    /// The version, which counts loaded files and mode changes.
    pub version: u64,
    /// The time at which its file was loaded.
    #[schemars(extend("format" = "date-time"))]
    pub loaded_at: Option<T>,
    /// The error of the last reload.
    pub reload_error: Option<E>,
    /// The number of limits.
    pub limits: u64,
    /// The number of limits that have an override.
    pub switched: u64,
    /// How keys are shown.
    #[schemars(extend("enum" = PRIVACY))]
    pub privacy: T,
}

/// The store, with its contents and past outages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "StoreInFull")]
pub struct StoreInFull<T: Default = String> {
    /// The kind of store.
    #[schemars(extend("enum" = ["memory", "redis", "postgres"]))]
    pub kind: T,
    /// The health, as in `/readyz`.
    #[serde(flatten)]
    pub health: StoreHealth<T>,
    /// The state of the circuit breaker.
    #[schemars(extend("enum" = ["closed", "open", "half-open"]))]
    pub breaker: T,
    /// The number of nodes that share the store.
    pub nodes: u64,
    /// The number of keys; null if it is unknown.
    pub keys: Option<u64>,
    /// The number of keys that were evicted while they still counted; null if it is unknown.
    pub evictions: Option<u64>,
    /// The last outages, the oldest first.
    #[schemars(extend("maxItems" = MAX_OUTAGES))]
    pub outages: Vec<Outage<T>>,
}

/// The maximum number of outages in an overview.
pub const MAX_OUTAGES: usize = 20;

/// A period in which the store did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Outage<T: Default = String> {
    /// The start.
    #[schemars(extend("format" = "date-time"))]
    pub from: T,
    /// The end; null while the outage lasts.
    #[schemars(extend("format" = "date-time"))]
    pub to: Option<T>,
}

/// The decisions since the start of the server, by their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Totals {
    /// Admitted requests.
    pub allowed: u64,
    /// Admitted requests that no limit counted.
    pub unlimited: u64,
    /// Requests that a limit refused.
    pub limited: u64,
    /// Requests that a list or a block refused.
    pub blocked: u64,
    /// Requests that were refused because they had no key.
    pub uncountable: u64,
    /// Requests that a limit in shadow mode would have refused.
    pub shadow_limited: u64,
    /// Requests that were decided without the store.
    pub degraded: u64,
    /// Requests that a shedder refused because of overload.
    pub shed: u64,
}

/// The sums of the last five minutes, over the same window as in `/v1/stats` and `/v1/top`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Window {
    /// The first second of the last five minutes, since 1970: the same for all counts.
    pub from: u64,
    /// The current second, since 1970, which is included.
    pub until: u64,
    /// Admitted requests.
    pub allowed: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests that a limit in shadow mode would have refused.
    pub shadow_limited: u64,
    /// Requests that were decided without the store.
    pub degraded: u64,
}

/// Counts over time, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Series {
    /// The length of a step in seconds.
    pub step_s: u64,
    /// The second of the last element, since 1970, which is still in progress.
    pub until: u64,
    /// Admitted requests.
    pub allowed: Vec<u64>,
    /// Refused requests.
    pub refused: Vec<u64>,
    /// Requests that a limit in shadow mode would have refused.
    pub shadow_limited: Vec<u64>,
    /// Requests that were decided without the store.
    pub degraded: Vec<u64>,
}

/// Quantiles of a duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
}

/// A key that has been exhausted for minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Alert")]
pub struct Alert<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// As the policy's `privacy` shows it.
    pub key: T,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit.
    #[schemars(extend("pattern" = crate::words::HEX))]
    pub tag: T,
    /// The time since which nothing is left.
    #[schemars(extend("format" = "date-time"))]
    pub since: T,
    /// The same in seconds.
    pub for_s: u64,
    /// The number of refusals since then.
    pub refused: u64,
}

/// The requests that are delayed by a soft limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Tarpit {
    /// The number of delayed requests.
    pub waiting: u64,
    /// The maximum number.
    pub most: u64,
}

/// The log of refusals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct RefusalLog {
    /// The number of refusals that were not logged because of the log's rate limit.
    pub suppressed: u64,
}

/// The decision log on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RecordLog")]
pub struct RecordLog<T: Default = String> {
    /// The time of the oldest decision; null if there is none.
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<T>,
    /// The time since which decisions are counted; null if none were.
    #[schemars(extend("format" = "date-time"))]
    pub counted_since: Option<T>,
    /// The number of decisions.
    pub decisions: u64,
    /// The disk space that it takes.
    pub bytes: u64,
    /// The disk space that it may take.
    pub max_bytes: u64,
    /// The age at which decisions are deleted, in seconds.
    pub keep_s: u64,
    /// The number of decisions since the start that were not written.
    pub dropped: u64,
    /// The reason why nothing is written at present.
    pub error: Option<T>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overview_of_an_earlier_server_is_read() {
        let json = r#"{"policy":{"version":3},"store":{"state":"ok"},"totals":{"allowed":7},"later":1}"#;
        let overview: Overview = serde_json::from_str(json).unwrap();
        assert_eq!((overview.policy.version, overview.totals.allowed), (3, 7));
        assert_eq!((&*overview.store.health.state, &overview.window), ("ok", &None));
    }

    #[test]
    fn json_of_another_service_is_no_overview() {
        for json in [r#"{"status":"ok"}"#, r#"{"policy":{},"store":"redis","totals":{}}"#, "[]"] {
            assert!(serde_json::from_str::<Overview>(json).is_err(), "{json}");
        }
    }
}
