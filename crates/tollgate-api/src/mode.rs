//! Modes of limits, their overrides, and the record of changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{MODES, ROLES, SWITCHES};

/// The maximum number of changes that a server keeps.
pub const MAX_CHANGES: usize = 1_000;

/// The modes and overrides of limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Modes")]
pub struct Modes<T = String> {
    /// The mode of everything. At `enforce`, each limit has its own mode.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The limits that have an override.
    pub limits: Vec<LimitSwitch<T>>,
    /// The shedders that are no limits, with or without an override: that of the node (`shed.node`) and the
    /// throttle of upstreams (`shed.throttle`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shedders: Vec<LimitSwitch<T>>,
}

/// A limit that has an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LimitSwitch")]
pub struct LimitSwitch<T = String> {
    /// The limit.
    pub name: T,
    /// The mode in force. Null for a limit that the policy does not have.
    #[schemars(extend("enum" = ["enforce", "shadow", "off", null]))]
    pub mode: Option<T>,
    /// The mode in the policy file. Null for a limit that the policy does not have.
    #[schemars(extend("enum" = ["enforce", "shadow", "off", null]))]
    pub policy_mode: Option<T>,
    /// The override.
    #[schemars(extend("enum" = SWITCHES))]
    pub switch: T,
}

// Also read from the response about one limit, whose modes may be null, but are present.
/// A changed mode of everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Switched")]
pub struct Switched<T = String> {
    /// The mode in force.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(with = "T", extend("enum" = MODES))]
    pub mode: Option<T>,
    /// The mode in force before the change.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(with = "T", extend("enum" = MODES))]
    pub before: Option<T>,
    /// Whether it survives a restart; null without a state directory.
    pub persisted: Option<bool>,
    /// A warning for the operator.
    pub warning: Option<T>,
}

/// A changed mode of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SwitchedLimit")]
pub struct SwitchedLimit<T = String> {
    /// The limit.
    pub name: T,
    /// The mode in force. Null for a limit that the policy does not have.
    #[schemars(extend("enum" = ["enforce", "shadow", "off", null]))]
    pub mode: Option<T>,
    /// The mode in force before the change. Null for a limit that the policy does not have.
    #[schemars(extend("enum" = ["enforce", "shadow", "off", null]))]
    pub before: Option<T>,
    /// Whether it survives a restart; null without a state directory.
    pub persisted: Option<bool>,
    /// A warning for the operator.
    pub warning: Option<T>,
}

/// The recorded changes of modes, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Changes")]
pub struct Changes<T = String> {
    /// The changes.
    #[schemars(extend("maxItems" = MAX_CHANGES))]
    pub changes: Vec<Change<T>>,
}

/// A recorded change of a mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Change")]
pub struct Change<T = String> {
    /// The target: everything, or a limit.
    #[schemars(extend("enum" = ["everything", "limit"]))]
    pub what: T,
    /// The time.
    #[schemars(extend("format" = "date-time"))]
    pub at: T,
    /// The limit; null for everything.
    pub limit: Option<T>,
    /// The override before.
    #[schemars(extend("enum" = SWITCHES))]
    pub from: T,
    /// The override after.
    #[schemars(extend("enum" = SWITCHES))]
    pub to: T,
    /// The reason that the operator gave.
    pub reason: T,
    /// The name that the operator gave.
    pub by: T,
    /// The role of the operator.
    #[schemars(extend("enum" = ROLES))]
    pub role: T,
    /// The address of the operator.
    pub peer: Option<T>,
    /// The subject of the client certificate.
    pub certificate: Option<T>,
}
