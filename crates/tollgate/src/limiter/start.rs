//! Slots that a request takes when it starts, and not while it waits in the queue of another limit.
//!
//! ```text
//! try_admit: all limits but the slots ──► wait of the queue, if any ──► take_slots ─┬─ admitted: the request starts
//!                                                                                   └─ refused: the charges are refunded
//! ```
//!
//! A leaky queue decides when a request arrives, and lets it start later. Slots that were taken at the decision
//! would be occupied by requests that do no work. A request under both kinds of limits is therefore decided in two
//! steps. All other requests are decided in one, which is atomic and takes one call to the store.
//!
//! Not here: the refund of a request that finds no slot, which its caller makes ([`QueuePlace`](crate::QueuePlace),
//! `tollgate_http`).

use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_policy::{Check, Input, Matched};
use tollgate_store::Store;

use super::{HoldEnd, Limiter, Patience, Pending, SlotWait};
use crate::decision::Decision;
use crate::id::DecisionId;

/// The number of steps in which a request is decided that is under limits of both kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Steps {
    /// All limits when the request arrives.
    One,
    /// The slots when it starts.
    Two,
}

/// The reason to decide about a request again.
pub(super) enum Retry {
    /// A slot may be free after this time.
    After(Duration),
    /// A step was decided without the store. The charges of one decision are all in the store, or all in this node.
    InOneStep,
}

impl<S: Store> Limiter<S> {
    /// Whether the store decides without waiting, so that [`try_decide`](Self::try_decide) makes every decision about
    /// a request, unless the request waits in line for a slot.
    pub fn never_waits(&self) -> bool {
        self.store.never_waits()
    }

    /// Decides as [`try_decide_or_wait`](Self::try_decide_or_wait) does, for a caller that takes slots when the
    /// request starts: if [`takes_slots_at_start`](Self::takes_slots_at_start) says so about the decision, the caller
    /// calls [`take_slots`](Self::take_slots) after the [wait](Decision::wait).
    #[inline]
    pub fn try_admit<'l, I: Input, T>(
        &'l self,
        input: &I,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        let matching = |it: &mut Decision<'l>| self.match_admission(input, Steps::Two, it);
        self.try_decide_matched(Some(input), matching, Patience::InLine, then)
    }

    /// Prepares a decision, without slots if the request takes them in a second step.
    #[inline]
    pub(super) fn match_admission<'l, I: Input>(
        &'l self,
        input: &I,
        steps: Steps,
        decision: &mut Decision<'l>,
    ) -> Matched<'l> {
        let matched = input.add_checks(&self.policy, &mut decision.checks);
        if steps == Steps::Two && matched == Matched::Applies && self.may_delay(decision) {
            decision.checks.remove_slots();
        }
        self.name_owner(decision);
        matched
    }

    /// Waits for the start of an admitted request, and takes its slots. Returns the admission with the slots, or a
    /// refusal that no time changes.
    pub(super) async fn start_when_ready<'l, I: Input + Sync>(
        &'l self,
        input: &I,
        mut decision: Decision<'l>,
        deadline: Option<Timestamp>,
    ) -> Result<Decision<'l>, Retry> {
        // Refunds the admission when it is dropped.
        let Some(place) = self.charged_place(&decision) else { return Ok(decision) };
        if decision.is_degraded() {
            return Err(Retry::InOneStep);
        }
        if let Some(left) = self.time_left(deadline).filter(|left| place.wait_time() > *left) {
            drop(place);
            decision.refuse_wait(left);
            return Ok(decision);
        }
        if !place.wait_time().is_zero() {
            self.sleep(place.wait_time()).await;
        }
        let hold = |_| Some(self.hold_until(deadline));
        let slots = match self.take_slots(input, self.id_of(&decision), hold).await {
            Ok(slots) => slots,
            Err(never) => match never {},
        };
        if !slots.is_allowed() {
            return match self.sleep_after(&slots, deadline) {
                Some(sleep) => Err(Retry::After(sleep)),
                None => Ok(slots),
            };
        }
        if slots.is_degraded() {
            drop(self.permit(slots));
            return Err(Retry::InOneStep);
        }
        decision.add_slots(slots);
        place.start().forget();
        Ok(decision)
    }

    /// Whether slots of a request that [`try_admit`](Self::try_admit) admitted may be missing.
    #[inline]
    pub fn takes_slots_at_start(&self, decision: &Decision<'_>) -> bool {
        decision.is_allowed() && self.may_delay(decision)
    }

    #[inline]
    fn may_delay(&self, decision: &Decision<'_>) -> bool {
        self.policy.has_queues_and_slots() && decision.checks.iter().any(Check::may_delay)
    }

    /// Takes the slots of an admitted request that starts now, and waits in line for those that have a `queue`.
    /// `id` and `input` are those of the admission, and `hold` is that of [`Pending::finish_waiting`]. The caller of a
    /// refused request refunds the admission.
    pub async fn take_slots<'l, I, F, E>(
        &'l self,
        input: &I,
        id: DecisionId,
        hold: impl FnOnce(SlotWait) -> Option<F>,
    ) -> Result<Decision<'l>, E>
    where
        I: Input + Sync,
        F: Future<Output = Result<HoldEnd, E>>,
    {
        let pending = {
            let mut decision = Decision::undecided();
            (decision.is_start, decision.id) = (true, Some(id));
            let matching = |it: &mut Decision<'l>| {
                // The request is admitted, so lists and shadows have been applied.
                if input.add_checks(&self.policy, &mut it.checks) == Matched::Applies {
                    it.checks.retain(Check::is_slot);
                } else {
                    it.checks.remove_checks();
                }
                self.name_owner(it);
                Matched::Applies
            };
            match self.decide_into(Some(input), matching, &mut decision, Patience::InLine) {
                Ok(()) => return Ok(decision),
                Err(waiting) => Pending::new(self, decision, waiting),
            }
        };
        pending.finish_waiting(Some(input), hold).await
    }
}

impl<S> Limiter<S> {
    /// Reports the slots of an admitted request that starts.
    #[cold]
    pub(super) fn notify_start(&self, input: Option<&dyn Input>, decision: &Decision<'_>) {
        if let (Some(watched), Some(id)) = (&self.watched, decision.id) {
            watched.started(id, input.map(Input::subject), decision);
        }
    }
}
