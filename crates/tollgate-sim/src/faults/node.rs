//! A node of the fleet: a real limiter on a simulated store and a clock of its own.

use std::sync::Arc;

use tollgate::store::AdjustmentId;
use tollgate::{Adjustment, Limiter, OutageSettings, Policy, PolicyError, Receipt, Rule};

use super::clock::{SimClock, TrueTime};
use super::leasing::NodeStore;
use super::store::SimStore;
use super::wire::{Failure, OwnedCheck, RequestId};
use crate::executor::TaskId;

/// A node.
#[allow(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(super) struct Node {
    pub(super) clock: SimClock,
    pub(super) store: SimStore,
    /// The same store, with leases around it: the store of the limiter.
    pub(super) leases: NodeStore,
    pub(super) limiter: Limiter<NodeStore>,
    /// The number of times that the node was started.
    pub(super) starts: u64,
    pub(super) is_up: bool,
    /// Whether it gets requests.
    pub(super) is_serving: bool,
    /// The faults that pause it, and the tasks that were woken meanwhile.
    pub(super) paused_by: Vec<usize>,
    pub(super) waiting: Vec<TaskId>,
    /// The number of pauses so far: the deadline of a paused request is not its own fault.
    pub(super) pauses: u64,
    /// Whether a pass of `reconcile` is running.
    pub(super) is_reconciling: bool,
    /// The longest time by which its returns of leases are late.
    pub(super) returns_delay: TrueTime,
    /// Whether it has returned its leases, and takes no more.
    pub(super) is_drained: bool,
}

impl Node {
    /// Creates a limiter under the policies that were in force so far.
    ///
    /// A process that starts with changed numbers does not know the earlier ones, and forgets the usage of keys that
    /// no other node has carried over. The simulation starts it with all of them: it is about faults.
    pub(super) fn start(
        store: &NodeStore,
        clock: &SimClock,
        mut policies: impl Iterator<Item = String>,
        settings: &OutageSettings,
        seed: u64,
    ) -> Result<Limiter<NodeStore>, PolicyError> {
        let first = Policy::parse(&policies.next().unwrap_or_default())?;
        let limiter = Limiter::with_store(first, store.clone());
        let mut limiter = limiter.with_seeded_outage_on(settings, clock.shown(), seed);
        for text in policies {
            limiter = limiter.with_policy(Policy::parse(&text)?);
        }
        Ok(limiter)
    }

    /// Returns whether its tasks run.
    pub(super) fn is_running(&self) -> bool {
        self.is_up && self.paused_by.is_empty()
    }
}

/// The result of a task, or an observation of a store.
#[derive(Debug)]
pub(super) enum Report {
    /// The leases or the store answered a request, or failed.
    Answered { request: RequestId, admitted: Result<bool, Failure> },
    /// The deny cache refused a request.
    Recalled { request: RequestId, checks: Vec<OwnedCheck> },
    /// A request was decided without a call: from leases, or because the store refused it a moment ago.
    DecidedLocally { request: RequestId, is_admitted: bool },
    /// A request was decided.
    Decided(Box<Decided>),
    /// A settlement begins.
    Settling { request: RequestId, cost: u64 },
    /// A settlement has ended.
    Settled { request: RequestId, is_kept: bool },
    /// The store answered a call other than a decision, which ends an outage.
    Answers,
    /// A node has returned its leases.
    Drained,
    /// A pass of `reconcile` has ended.
    Reconciled,
    /// `reconcile` sends an adjustment.
    Replaying { rule: Rule, key: Vec<u8>, adjustment: Adjustment, id: Option<AdjustmentId> },
    /// `reconcile` has the reply.
    Replayed {
        rule: Rule,
        key: Vec<u8>,
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
        failure: Option<Failure>,
    },
}

/// A decision as its client sees it.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) request: RequestId,
    pub(super) is_allowed: bool,
    pub(super) is_degraded: bool,
    pub(super) receipt: Option<Arc<Receipt>>,
}
