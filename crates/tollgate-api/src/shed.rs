//! The shedders: their modes, levels, signals and classes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{MODES, SWITCHES};

/// The shedders in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Shedders")]
pub struct Shedders<T: Default = String> {
    /// The shedder of the node; null if the policy has none.
    pub node: Option<NodeShedder<T>>,
    /// The fleet shedder; null if the policy has none.
    pub fleet: Option<FleetShedder<T>>,
    /// The throttle of upstreams; null if the gateway does not throttle.
    pub throttle: Option<ThrottleShedder<T>>,
}

/// The mode of a shedder, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ShedderModes")]
pub struct ShedderModes<T: Default = String> {
    /// The mode in force.
    #[schemars(extend("enum" = MODES))]
    pub mode: T,
    /// The mode in the policy file or the configuration.
    #[schemars(extend("enum" = MODES))]
    pub policy_mode: T,
    /// The override; `policy` if there is none.
    #[schemars(extend("enum" = SWITCHES))]
    pub switch: T,
}

/// The fleet shedder: an amount that all nodes share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "FleetShedder")]
pub struct FleetShedder<T: Default = String> {
    /// The modes.
    #[serde(flatten)]
    pub modes: ShedderModes<T>,
    /// The amount: a number of concurrent requests, or the capacity of the rate.
    pub amount: u64,
    /// Whether the amount is a number of concurrent requests.
    pub counts_slots: bool,
    /// The number of requests that this node shed in the last five minutes.
    pub shed: u64,
    /// The number of requests that it would have shed in shadow mode, in the last five minutes.
    pub shadow_shed: u64,
    /// The classes, the most important first. Empty for a policy without priorities.
    pub classes: Vec<FleetClass<T>>,
}

/// The part of the amount of the fleet that a priority class may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "FleetClass")]
pub struct FleetClass<T: Default = String> {
    /// The name.
    pub name: T,
    /// The amount without the reserves of more important classes.
    pub max: u64,
}

/// The throttle of upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ThrottleShedder")]
pub struct ThrottleShedder<T: Default = String> {
    /// The modes.
    #[serde(flatten)]
    pub modes: ShedderModes<T>,
    /// The upstreams.
    pub upstreams: Vec<ThrottledUpstream<T>>,
}

/// The throttling of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ThrottledUpstream")]
pub struct ThrottledUpstream<T: Default = String> {
    /// The URL.
    pub upstream: T,
    /// The share of requests of the least important class that are not sent, in percent.
    pub share_percent: u64,
    /// The number of requests that were not sent since the start of the server.
    pub refused: u64,
    /// The number of requests that would not have been sent in shadow mode.
    pub shadow_refused: u64,
}

/// The shedder of the node that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NodeShedder")]
pub struct NodeShedder<T: Default = String> {
    /// The modes.
    #[serde(flatten)]
    pub modes: ShedderModes<T>,
    /// The number of classes that are shed, in percent of a class: 135 is the last class and 35 % of the
    /// class before it.
    pub level_percent: u64,
    /// The maximum of the level: the number of classes that may be shed.
    pub max_level_percent: u64,
    /// The number of requests in flight.
    pub in_flight: u64,
    /// The signals that have a target and are measured.
    pub signals: Vec<LoadSignal<T>>,
    /// The classes, the most important first. A policy without priorities has one class without a name.
    pub classes: Vec<ShedClass<T>>,
}

/// A signal of the load of a node, and its target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LoadSignal")]
pub struct LoadSignal<T: Default = String> {
    /// The name in the policy.
    #[schemars(extend("enum" = ["inflight", "cpu", "delay"]))]
    pub name: T,
    /// The unit of both numbers.
    #[schemars(extend("enum" = ["requests", "percent", "us"]))]
    pub unit: T,
    /// The moving average of the measurements.
    pub value: u64,
    /// The target.
    pub target: u64,
}

/// A priority class and its shed requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ShedClass")]
pub struct ShedClass<T: Default = String> {
    /// The name; null for the only class of a policy without priorities.
    pub name: Option<T>,
    /// The share of its requests that is shed, in percent.
    pub share_percent: u64,
    /// The number of requests that were shed since the start of the server or the last change of the classes.
    pub shed: u64,
    /// The number of requests that would have been shed in shadow mode.
    pub shadow_shed: u64,
}

/// The state of the shedder that refused a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ExplainedShed")]
pub struct ExplainedShed<T: Default = String> {
    /// The number of classes that are shed, in percent of a class.
    pub level_percent: u64,
    /// The share of the class of the request that is shed, in percent.
    pub share_percent: u64,
    /// The signals that have a target and are measured.
    pub signals: Vec<LoadSignal<T>>,
}
