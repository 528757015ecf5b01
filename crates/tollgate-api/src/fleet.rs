//! The response of `GET /v1/fleet`: the nodes that share a store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{HEX, MODES};

/// The maximum number of nodes in a response.
pub const MAX_FLEET_NODES: usize = 257;
/// The maximum number of leased limits of a node in a response.
pub const MAX_FLEET_LEASES: usize = 8;
/// The number of seconds that `lately` of a node covers.
pub const FLEET_LATELY_SECONDS: u64 = 10;

/// The nodes that share a store, with the sums over all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Fleet")]
pub struct Fleet<T: Default = String> {
    /// The time of the response.
    #[serde(default)]
    #[schemars(extend("format" = "date-time"))]
    pub now: T,
    /// Whether the store is shared. With `store: memory`, the node that answers is alone.
    #[serde(default)]
    pub shared: bool,
    /// The nodes: the node that answers first, the others as they reported to the store.
    #[schemars(extend("maxItems" = MAX_FLEET_NODES))]
    pub nodes: Vec<FleetNode<T>>,
    /// The sums over `nodes`.
    pub totals: FleetTotals,
    /// The number of nodes that share the store and are not in `nodes`: nodes of earlier versions, and nodes that start.
    #[serde(default)]
    pub silent: u64,
    /// The number of entries in the store that are not reports of a node, and were ignored.
    #[serde(default)]
    pub ignored: u64,
    /// Why the reports of other nodes could not be read; null if they could.
    pub error: Option<T>,
}

/// A node, as it reported itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "FleetNode")]
pub struct FleetNode<T: Default = String> {
    /// The id of the process.
    #[schemars(extend("pattern" = HEX))]
    pub id: T,
    /// The name of the machine and the number of the process: `web-1:4711`.
    pub name: T,
    /// Whether it is the node that answers.
    pub this: bool,
    /// The region of the node; null if no limit is shared by regions.
    pub region: Option<T>,
    /// Of Tollgate.
    pub version: T,
    /// The start of the process.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: T,
    /// The age of the report, in milliseconds, by the clock of the store.
    pub age_ms: u64,
    /// False with `observe: off`: then nothing is counted.
    pub observing: bool,
    /// The mode of everything.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// Whether the store does not answer the node.
    pub store_degraded: bool,
    /// The counts of the last five minutes.
    pub window: NodeCounts,
    /// The counts of the last ten complete seconds.
    pub lately: NodeCounts,
    /// The leases of the node.
    pub leases: NodeLeases<T>,
}

/// The decisions of a node in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeCounts {
    /// Admitted requests.
    pub allowed: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests that a limit in shadow mode would have refused.
    pub shadow_limited: u64,
    /// Requests that were decided without the store.
    pub degraded: u64,
}

/// The leases of a node, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NodeLeases")]
pub struct NodeLeases<T: Default = String> {
    /// The number of keys of which the node holds units.
    pub keys: u64,
    /// The units that the node holds.
    pub units: u64,
    /// The limits with the most held units.
    #[schemars(extend("maxItems" = MAX_FLEET_LEASES))]
    pub limits: Vec<NodeLease<T>>,
}

/// The units of one limit that a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NodeLease")]
pub struct NodeLease<T: Default = String> {
    /// The limit.
    pub limit: T,
    /// The held units.
    pub units: u64,
    /// The time until the last of them expire, in milliseconds, rounded up, when the node reported.
    pub expires_in_ms: u64,
}

/// The sums over the nodes of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FleetTotals {
    /// The number of nodes that were summed.
    pub nodes: u64,
    /// The number of those to which the store does not answer.
    pub store_degraded: u64,
    /// The age of the oldest report, in milliseconds.
    pub oldest_ms: u64,
    /// The counts of the last five minutes.
    pub window: NodeCounts,
    /// The counts of ten seconds.
    pub lately: NodeCounts,
    /// The keys of which nodes hold units; a key that two nodes hold counts twice.
    pub leased_keys: u64,
    /// The units that nodes hold.
    pub leased_units: u64,
}
