//! The response of `GET /readyz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether requests should be sent to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Readiness")]
pub struct Readiness<T: Default = String> {
    /// Whether requests should be sent here.
    pub ready: bool,
    /// Whether the server is about to stop.
    pub draining: bool,
    /// The version of the policy in force, which counts loaded files and mode changes.
    pub policy_version: u64,
    /// The time at which its file was loaded.
    #[schemars(extend("format" = "date-time"))]
    pub policy_loaded_at: Option<T>,
    /// The error of the last reload; without the reader role, only whether there is one.
    pub reload_error: Option<T>,
    /// The store.
    pub store: StoreHealth<T>,
}

/// The health of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "StoreHealth")]
pub struct StoreHealth<T: Default = String> {
    /// The address without a password; null for memory, and without the reader role.
    pub address: Option<T>,
    /// Degraded if the last call failed, and limits follow their `on_outage`. The node still accepts requests.
    #[schemars(extend("enum" = ["ok", "degraded"]))]
    pub state: T,
    /// The start of the outage.
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<T>,
    /// The last error; without the reader role, only whether there is one.
    pub error: Option<T>,
    /// The number of failed calls.
    pub failures: u64,
    /// The number of degraded decisions.
    pub degraded_decisions: u64,
    /// The number of keys with outstanding charges.
    pub ledger_keys: u64,
}
