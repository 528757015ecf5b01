//! The events of the simulated world.

use super::AfterRequest;
use crate::executor::Sender;
use crate::faults::clock::TrueTime;
use crate::faults::wire::{CallId, Failure, RequestId};

/// An event.
pub(super) enum Event {
    /// A call arrives at its shard.
    Arrive(CallId),
    /// A reply arrives at its node.
    Return(CallId),
    /// The connection of a call breaks.
    Break(CallId, Failure),
    /// The deadline of a call passes.
    Deadline(CallId),
    /// A sleep of a node ends.
    Wake {
        node: usize,
        starts: u64,
        due: u64,
        done: Sender<()>,
    },
    /// A client sends a request.
    Request,
    /// Clients of a user send many requests to a node.
    LeaseTrial,
    LeaseTrialRequest(LeaseTrialStep),
    /// All nodes return their leases.
    DrainAll,
    /// A client acts after its request: [`AfterRequest`].
    After(RequestId, AfterRequest),
    /// A node reconciles or probes.
    Tick {
        node: usize,
        starts: u64,
        is_probe: bool,
    },
    FaultBegins(usize),
    FaultEnds(usize),
    /// A flapping link changes.
    Flap(usize, bool),
}

/// The rest of a lease trial: requests of one user to one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTrialStep {
    pub(super) user: u64,
    pub(super) node: usize,
    pub(super) left: u64,
    /// The cost of a request; each costs this part less than the one before.
    pub(super) cost: u64,
    pub(super) part: u64,
    pub(super) spacing: TrueTime,
}
