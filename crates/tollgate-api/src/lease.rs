//! The leases of a node: units that it took in advance from the store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::HEX;

/// The maximum number of limits in `leases` of an overview.
pub const MAX_LEASED_LIMITS: usize = 100;
/// The maximum number of keys in `leases` of an overview.
pub const MAX_HELD_LEASES: usize = 20;

/// The leases of the node that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Leases")]
pub struct Leases<T: Default = String> {
    /// The number of keys of which the node holds units.
    pub keys: u64,
    /// The units that the node holds.
    pub units: u64,
    /// The limits with a `lease`, those with the most held units first. Empty with `store: memory`, which is never leased from.
    #[schemars(extend("maxItems" = MAX_LEASED_LIMITS))]
    pub limits: Vec<LeasedLimit<T>>,
    /// The keys with the most held units.
    #[schemars(extend("maxItems" = MAX_HELD_LEASES))]
    pub held: Vec<HeldLease<T>>,
}

/// A limit with a `lease`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LeasedLimit")]
pub struct LeasedLimit<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// The time for which units are leased, in milliseconds, rounded up.
    pub lease_ms: u64,
    /// The number of keys of which the node holds units.
    pub keys: u64,
    /// The units that the node holds.
    pub units: u64,
    /// The time until the last of them expire, in milliseconds, rounded up; null if none are held.
    pub expires_in_ms: Option<u64>,
}

/// The units of one key that a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "HeldLease")]
pub struct HeldLease<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// The name of the window; null if the limit has only one.
    pub window: Option<T>,
    /// As the policy's `privacy` shows it.
    pub key: T,
    /// A keyed hash of the hidden part of the key: the same for one caller under every limit.
    #[schemars(extend("pattern" = HEX))]
    pub tag: T,
    /// The held units.
    pub units: u64,
    /// The time until the last of them expire, in milliseconds, rounded up.
    pub expires_in_ms: u64,
}
