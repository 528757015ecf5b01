//! The bodies of requests.
//!
//! The types of texts, costs and keys are parameters, so that a server can read them without copying
//! and with its own bounds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{ANY_HEX, MODES};

/// The maximum cost: the largest integer that every JSON implementation represents exactly.
pub const MAX_UNITS: u64 = (1 << 53) - 1;
/// The maximum number of requests in a batch.
pub const MAX_BATCH_REQUESTS: usize = 1_000;
/// The maximum length of a method.
pub const MAX_METHOD_BYTES: usize = 64;
/// The maximum length of the name of an operator.
pub const MAX_NAME_CHARS: usize = 100;
/// The maximum length of the reason of a change.
pub const MAX_REASON_CHARS: usize = 300;

/// A string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMany<T = String> {
    /// A string.
    One(T),
    /// A list of strings.
    Many(Vec<T>),
}

/// Strings by name; a name may have a list of values, as headers do.
pub type Pairs<T = String> = BTreeMap<T, OneOrMany<T>>;

/// A request to decide about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CheckRequest")]
pub struct CheckRequest<T = String, P = Pairs, U = u64> {
    /// GET unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", "maxLength" = MAX_METHOD_BYTES))]
    pub method: Option<T>,
    /// The path, with the query if there is one.
    #[schemars(extend("pattern" = "^/"))]
    pub path: T,
    /// The client's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>", extend("anyOf" = [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}, {"type": "null"}]))]
    pub ip: Option<T>,
    /// The user that is logged in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<T>,
    /// The API key of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<T>,
    /// The customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<T>,
    /// The customer's plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<T>,
    /// The requested host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<T>,
    /// Headers that the policy reads; a list for a header with several lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<P>,
    /// Verified claims of the caller's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<P>,
    /// The number of units. Zero only reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maximum" = MAX_UNITS))]
    pub cost: Option<U>,
}

/// Several requests, which are decided in order and independently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BatchRequest")]
pub struct BatchRequest<R = CheckRequest> {
    /// The requests.
    #[schemars(extend("maxItems" = MAX_BATCH_REQUESTS))]
    pub requests: Vec<R>,
}

/// An operation on one key of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KeyRequest")]
pub struct KeyRequest<K = OneOrMany, T = String, U = u64> {
    /// A string, or a list with a string for each part of the limit's `by`; absent for `by: global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<K>,
    /// The number of units. Zero only reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maximum" = MAX_UNITS))]
    pub cost: Option<U>,
    /// The plan of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<T>,
}

/// A reset of one key of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResetRequest")]
pub struct ResetRequest<K = OneOrMany, T = String> {
    /// A string, or a list with a string for each part of the limit's `by`; absent for `by: global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<K>,
    /// The plan of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<T>,
}

/// The final cost of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SettleRequest")]
pub struct SettleRequest<T = String, U = u64> {
    /// The id of a decision.
    #[schemars(extend("pattern" = ANY_HEX))]
    pub id: T,
    /// The number of units.
    #[schemars(extend("maximum" = MAX_UNITS))]
    pub cost: U,
}

/// The release of the slots of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ReleaseRequest")]
pub struct ReleaseRequest<T = String> {
    /// The id of a decision.
    #[schemars(extend("pattern" = ANY_HEX))]
    pub id: T,
}

/// The renewal of the slots of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RenewRequest")]
pub struct RenewRequest<T = String> {
    /// The id of a decision.
    #[schemars(extend("pattern" = ANY_HEX))]
    pub id: T,
}

/// A check at throttlecrab's API, in which the call sets the limit. Other members are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ThrottleRequest")]
pub struct ThrottleRequest<T = String, U = u64> {
    /// The caller that spends.
    pub key: T,
    /// The amount that an idle key may spend at once.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_UNITS))]
    pub max_burst: U,
    /// The units that are refilled in a period.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_UNITS))]
    pub count_per_period: U,
    /// Seconds.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_UNITS))]
    pub period: U,
    /// The requested units, 1 by default. Zero only reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maximum" = MAX_UNITS))]
    pub quantity: Option<U>,
}

/// A change of the mode of everything, or of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SwitchRequest", extend("examples" = [{"mode": "shadow", "reason": "launch day", "by": "ann"}]))]
pub struct SwitchRequest<T = String> {
    /// The mode. For a limit also `policy`, which removes the override.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The reason for the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = MAX_REASON_CHARS))]
    pub reason: Option<T>,
    /// The name of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = MAX_NAME_CHARS))]
    pub by: Option<T>,
}
