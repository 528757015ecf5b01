//! Refusals of this node without the store.

use tollgate_policy::{Checks, Input, PriorityClass};

use super::Limiter;
use crate::decision::Decision;
use crate::id::DecisionId;
use crate::node_shedder::{InFlightGuard, NodeShedder};
use crate::shed::{Shed, ShedCause, ThrottleShed};

impl<S> Limiter<S> {
    /// Counts a request in flight under the limits with a learned number of slots, or returns the refusal
    /// of one of them.
    #[inline]
    pub(super) fn enter_adaptive<'l>(&self, decision: &mut Decision<'l>) -> Option<Shed<'l>> {
        let adaptive = self.adaptive.as_ref()?;
        let priority = decision.priority();
        match adaptive.enter(&decision.checks, priority) {
            Ok(in_flight) => decision.in_flight = in_flight,
            Err(shed) => return Some(Shed { cause: ShedCause::Adaptive(shed), priority }),
        }
        None
    }

    /// Returns the reason to refuse a request without asking the store; `None` if the shedders of
    /// this node let it pass. The request is matched, and is not on a list.
    #[inline]
    pub(super) fn shed_locally<'l>(
        &'l self,
        input: Option<&dyn Input>,
        decision: &Decision<'l>,
    ) -> Option<Shed<'l>> {
        // A decision by the name of a limit is about a key, and not about a request of this node.
        // The slots of a request that was admitted before are not decided by the load of the node, either.
        if self.policy.node_shed().is_some() && input.is_some() && !decision.is_start {
            self.shed_by_node(decision.priority())
        } else {
            None
        }
    }

    fn shed_by_node<'l>(&'l self, priority: Option<&'l PriorityClass>) -> Option<Shed<'l>> {
        let settings = self.policy.node_shed()?;
        let cause = ShedCause::Node(self.shedder.shed(settings, priority, self.classes())?);
        Some(Shed { cause, priority })
    }

    /// Refuses a request that was admitted, because its upstream rejects most requests. `admission` has the id
    /// of the decision that admitted it, and whether a limit applied; with it, the observer is notified.
    pub fn refuse_throttled<'l>(
        &'l self,
        input: &dyn Input,
        admission: Option<(DecisionId, bool)>,
        priority: Option<&'l PriorityClass>,
        shed: ThrottleShed,
    ) -> Decision<'l> {
        let mut decision = Decision::undecided();
        decision.checks = Checks::of_class(priority);
        decision.id = admission.map(|it| it.0);
        decision.shed(Shed { cause: ShedCause::Throttle(shed), priority });
        if let (Some(watched), Some((id, was_limited))) = (self.watched(), admission) {
            watched.throttled(id, input.subject(), &decision, was_limited);
        }
        decision
    }

    /// Returns the number of classes. A policy without `priorities` has one.
    fn classes(&self) -> u8 {
        u8::try_from(self.policy.priorities().len()).unwrap_or(u8::MAX).max(1)
    }

    /// Uses this shedder, which other limiters of the node may share.
    #[must_use]
    pub fn with_node_shedder(self, shedder: NodeShedder) -> Self {
        Self { shedder, ..self }
    }

    /// Returns the shedder of this node.
    pub const fn node_shedder(&self) -> &NodeShedder {
        &self.shedder
    }

    /// Counts a request as in flight until the returned value is dropped. `None` if the policy has no
    /// shedder of the node (`shed: {node: ...}`).
    #[inline]
    pub fn track_in_flight(&self) -> Option<InFlightGuard> {
        if self.policy.node_shed().is_some() { Some(self.shedder.enter()) } else { None }
    }

    /// Takes a sample of the load of this node, if one is due. Decisions do this too. Call it every
    /// 100 milliseconds, so that shedding also ends while no request arrives.
    pub fn sample_load(&self) {
        if let Some(settings) = self.policy.node_shed() {
            self.shedder.sample(settings, self.classes());
        }
    }
}
