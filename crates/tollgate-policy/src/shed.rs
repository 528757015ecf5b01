//! The `shed` section: how a node protects itself from overload.
//!
//! The controller is in `tollgate_overload`, measuring and refusing are in `tollgate`.

use tollgate_core::Span;

use crate::limit::Mode;

/// The name of the shedder of a node in answers, records and mode overrides.
pub const NODE_SHEDDER: &str = "shed.node";

/// The name of the throttle of upstreams in answers, records and mode overrides. Its settings are those of the
/// gateway; a policy has only its mode ([`Policy::throttle_mode`](crate::Policy::throttle_mode)).
pub const THROTTLE: &str = "shed.throttle";

/// The signals of the shedder of a node (`shed: {node: ...}`), their targets, and its speeds.
///
/// Without any target, it sheds nothing.
///
/// ```
/// # use tollgate_policy::Policy;
/// let policy = Policy::parse("shed: {node: {inflight: 200, cpu: 85%}}")?;
/// let node = policy.node_shed().expect("the policy has one");
/// assert_eq!((node.in_flight, node.cpu, node.delay), (Some(200), Some(85), None));
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShedSettings {
    /// The target of the number of requests in flight on this node.
    pub in_flight: Option<u64>,
    /// The target of the CPU utilization in percent, of the process and of its cgroup.
    pub cpu: Option<u8>,
    /// The target of the time that requests wait for a worker.
    pub delay: Option<Span>,
    /// The time in which a class goes from admitted to shed, at 1.25 times a target.
    pub rise: Span,
    /// The time in which a class goes from shed to admitted, when the node is idle.
    pub fall: Span,
    /// The time without overload before a class is admitted again, and the time between two classes.
    pub hold: Span,
    /// The number of classes that are never shed, from the most important one.
    pub kept_classes: u8,
    /// Whether requests are refused, or only counted.
    pub mode: Mode,
    /// Whether the level stays as it is, by order of an operator.
    pub is_frozen: bool,
}

impl Default for NodeShedSettings {
    fn default() -> Self {
        Self {
            in_flight: None,
            cpu: None,
            delay: None,
            rise: Span::from_secs(2),
            fall: Span::from_secs(5),
            hold: Span::from_secs(2),
            kept_classes: 0,
            mode: Mode::Enforce,
            is_frozen: false,
        }
    }
}
