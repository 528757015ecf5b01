//! Errors and refusals as `application/problem+json` (RFC 9457).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct Problem<T: Default = String> {
    /// The kind of problem.
    #[serde(default)]
    #[schemars(extend("format" = "uri-reference"))]
    pub r#type: T,
    /// The status in words.
    #[serde(default)]
    pub title: T,
    /// The status.
    #[serde(default)]
    #[schemars(extend("minimum" = 400, "maximum" = 599))]
    pub status: u16,
    /// The correction to make.
    pub detail: T,
    /// For `/throttle`: the detail again, for throttlecrab's clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T")]
    pub error: Option<T>,
}

/// A refusal of forward auth and of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Refusal")]
pub struct Refusal<T: Default = String> {
    /// The kind of problem.
    #[schemars(extend("format" = "uri-reference"))]
    pub r#type: T,
    /// The status in words.
    pub title: T,
    /// The status.
    #[schemars(extend("minimum" = 400, "maximum" = 599))]
    pub status: u16,
    /// The correction to make.
    pub detail: T,
    /// The decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "T", extend("format" = "uri-reference"))]
    pub instance: Option<T>,
    /// The limits that refused.
    #[serde(rename = "violated-policies", default, skip_serializing_if = "Vec::is_empty")]
    pub violated_policies: Vec<T>,
    /// In seconds, rounded up. Absent if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("minimum" = 1))]
    pub retry_after: Option<u64>,
    /// In milliseconds, rounded up. Absent if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("minimum" = 1))]
    pub retry_after_ms: Option<u64>,
    /// The store did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", extend("const" = true))]
    pub degraded: Option<bool>,
}
