//! The policy in force: `GET /v1/limits` and `GET /v1/policy`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{ALGORITHMS, MODES, PRIVACY};

/// The limits in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Limits")]
pub struct Limits<T: Default = String> {
    /// The limits, in the order of the policy.
    pub limits: Vec<Limit<T>>,
}

/// A limit of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Limit")]
pub struct Limit<T: Default = String> {
    /// The name.
    pub name: T,
    /// The paths that the limit covers.
    pub endpoints: Vec<T>,
    /// Paths of its endpoints that the limit does not cover.
    pub except: Vec<T>,
    /// The hosts that the limit covers; empty for all.
    pub hosts: Vec<T>,
    /// The methods that the limit covers; empty for all.
    pub methods: Vec<T>,
    /// The entries of the descriptors that it covers, such as `plan=gold` and `user`; empty for a limit on paths.
    pub descriptor: Vec<T>,
    /// The domains whose descriptors it covers; empty for all.
    pub domains: Vec<T>,
    /// The parts of its key.
    pub by: Vec<T>,
    /// The algorithm.
    #[schemars(extend("enum" = ALGORITHMS))]
    pub algorithm: T,
    /// One for each window, in words.
    pub quotas: Vec<T>,
    /// The rule id of each window, which prefixes its keys in a shared store.
    pub ids: Vec<T>,
    /// The mode in force.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The mode in the policy file.
    #[schemars(extend("enum" = MODES))]
    pub policy_mode: T,
    /// Whether an override is in force.
    pub switched: bool,
    /// The live limit of this candidate.
    pub candidate_of: Option<T>,
    /// The soft threshold.
    pub soft: Option<Soft>,
    /// The queue of requests that wait for a slot. Absent if no request waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_queue: Option<SlotQueue<T>>,
    /// The treatment of requests without a key.
    #[schemars(extend("enum" = ["ip", "refuse", "shared", "skip"]))]
    pub missing: T,
    /// The charge of a request: units, the header with the number (`header:x-cost`), or the bytes of the body per unit (`body:1KiB`).
    pub cost: T,
    /// The source of the final cost: `response:x-tokens-used`, `json:usage.total_tokens`, `time:10ms`. Null if the charge is final.
    pub settle: Option<T>,
    /// Whether refused requests are charged, too.
    pub count_denied: bool,
    /// The decision if the store does not answer.
    #[schemars(extend("enum" = ["local", "allow", "deny"]))]
    pub on_outage: T,
    /// The share of this region, if regions share the limit; `quotas` are those of the share. Absent for other limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionShare<T>>,
    /// The plans that have their own quotas.
    pub plans: Vec<T>,
    /// The quotas of these plans.
    pub plan_quotas: Vec<PlanQuotas<T>>,
    /// The maximum of each priority class, in words, if the limit is a shedder; else empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_quotas: Vec<T>,
}

/// The share of a region in a limit that regions share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct RegionShare<T: Default = String> {
    /// The region of this node.
    pub name: T,
    /// Its share, in percent.
    #[schemars(extend("minimum" = 1, "maximum" = 100))]
    pub share: u8,
    /// The regions from which a key that runs short borrows; empty if the split is fixed.
    pub borrows_from: Vec<T>,
}

/// A soft threshold of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Soft {
    /// In percent.
    #[schemars(extend("minimum" = 1, "maximum" = 100))]
    pub at: u8,
    /// The delay of requests above the threshold, in milliseconds.
    pub tarpit_ms: u64,
}

/// The queue of requests that wait for a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct SlotQueue<T: Default = String> {
    /// The maximum number of requests that wait for the slots of one key on one node.
    pub length: u64,
    /// The longest wait, in milliseconds.
    pub wait_ms: u64,
    /// The parts of the key whose values get slots in turn.
    pub fair_by: Vec<T>,
}

/// The quotas of a limit for one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct PlanQuotas<T: Default = String> {
    /// The plan.
    pub plan: T,
    /// Whether the plan is counted.
    #[schemars(extend("enum" = ["limited", "unlimited", "blocked"]))]
    pub grants: T,
    /// One description for each window; empty if the plan is not counted.
    pub quotas: Vec<T>,
}

/// The policy as parsed, without its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Policy")]
pub struct Policy<T: Default = String> {
    /// The version, which counts loaded files and mode changes.
    pub version: u64,
    /// The time at which its file was loaded.
    #[schemars(extend("format" = "date-time"))]
    pub loaded_at: Option<T>,
    /// The number of limits.
    pub limits: u64,
    /// The number of entries of the allow list.
    pub allow: u64,
    /// The number of entries of the deny list.
    pub deny: u64,
    /// The priority classes, the most important first; empty if the policy has none.
    #[serde(default)]
    pub priorities: Vec<T>,
    /// How the address of a client is found.
    pub client: ClientSettings<T>,
    /// How callers are identified.
    pub identify: IdentifySettings<T>,
    /// The headers of responses.
    pub headers: HeaderSettings<T>,
    /// How keys are shown.
    #[schemars(extend("enum" = PRIVACY))]
    pub privacy: T,
    /// The maximum number of keys in memory.
    pub max_keys: u64,
}

/// How the address of a client is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ClientSettings<T: Default = String> {
    /// The networks whose forwarding headers are believed.
    pub trusted_proxies: Vec<T>,
    /// The forwarding header.
    #[schemars(extend("enum" = ["x-forwarded-for", "forwarded", "none"]))]
    pub header: T,
    /// The bits of an IPv4 address that identify a client.
    #[schemars(extend("maximum" = 32))]
    pub ipv4_prefix: u8,
    /// The bits of an IPv6 address that identify a client.
    #[schemars(extend("maximum" = 128))]
    pub ipv6_prefix: u8,
}

/// How callers are identified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct IdentifySettings<T: Default = String> {
    /// The sources of the user.
    pub user: Vec<T>,
    /// The sources of the API key.
    pub api_key: Vec<T>,
    /// The sources of the tenant.
    pub tenant: Vec<T>,
    /// The treatment of several different values.
    #[schemars(extend("enum" = ["address", "refuse"]))]
    pub ambiguous: T,
}

/// The headers of responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HeaderSettings<T: Default = String> {
    /// The form of `X-RateLimit-Reset`.
    #[schemars(extend("enum" = ["epoch", "delta", "off"]))]
    pub x_ratelimit: T,
    /// The version of the IETF draft.
    #[schemars(extend("enum" = ["draft-11", "draft-6", "off"]))]
    pub ietf: T,
    /// The random part that is added to `Retry-After`, in percent.
    #[schemars(extend("maximum" = 100))]
    pub retry_after_jitter: u8,
    /// The dialects of other services.
    pub dialects: Vec<T>,
    /// The paths whose policies are described.
    pub describe: Vec<T>,
}
