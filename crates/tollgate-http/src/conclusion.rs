//! What a decision means for its request: it passes, it is held first, or it is refused.
//!
//! ```text
//! conclude ─┬─ Refused
//!           ├─ Passes
//!           └─ Delayed ─► wait: its turn in the queues, then the tarpit ─► start: takes its slots ─┬─ starts
//!                                                                                                └─ refused
//! ```
//!
//! The tower layer has header maps, and a server that keeps heads in buffers has bytes. Both follow the steps of this
//! module, so neither admits, delays, refuses or refunds a request differently. Only the [`RequestForm`] differs.
//!
//! A request takes a place in the tarpit when its turn in the queues has come: the places are few, and the queues may be
//! long. It takes its slots after that, when it is to start.
//!
//! Not here: the wait for a store and in line for a slot (`DetachedPending::finish_waiting`), the path of a request
//! (`service`, `raw_answer`).
//!
//! Invariant: a delayed request that is dropped before it has started is refunded, by its deferred work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::policy::HeaderSettings;
use tollgate::{
    Decision, DecisionId, HeldDecision, HoldEnd, InFlightGuard, Limiter, NodeShedder, NotHeld, Request,
    SlotWait, Store,
};

use crate::deferred::{Deferred, Owing};
use crate::headers::{RetryAfter, is_limited};
use crate::layer::Wiring;
use crate::places::TimedPlace;
use crate::rejection::Rejection;
use crate::slot_guard::SlotGuard;
use crate::soft::Soft;
use crate::waiting_room::{HeldRequest, HoldTime, ShuttingDown};

/// The form in which a server keeps a request and its response: as header maps, or as bytes.
pub(crate) trait RequestForm<S> {
    /// The additions to an admitted request and its response.
    type Admission: Admission;
    /// The response to a refused request.
    type Refusal;

    /// Returns the request as the policy of the limiter reads it.
    fn view(&self, limiter: &Limiter<S>) -> impl Request + Send + Sync;

    /// Returns the slots of an outer layer.
    fn outer_slots(&self) -> Option<&SlotGuard>;

    /// Creates the admission of a decision. Without an `id`, no limit applied to the request.
    fn admit(
        &self,
        limiter: &Limiter<S>,
        decision: &Decision<'_>,
        id: Option<DecisionId>,
        work: (Option<Owing>, Option<InFlightGuard>),
    ) -> Self::Admission;

    /// Creates the response to a refused request.
    fn refuse(&mut self, rejection: &Rejection<'_, '_>, settings: &HeaderSettings) -> Self::Refusal;

    /// Creates the response to a request that waits while the server stops. `admission`: it was admitted.
    fn refuse_at_shutdown(&mut self, admission: Option<&mut Self::Admission>) -> Self::Refusal;
}

/// The additions to an admitted request and its response.
pub(crate) trait Admission {
    /// The work deferred to the end of the request.
    fn deferred(&mut self) -> &mut Option<Owing>;

    /// Counts the request as in flight until the guard is dropped.
    fn set_in_flight(&mut self, in_flight: Option<InFlightGuard>);

    /// Marks the request with the soft thresholds that it reached. It is delayed for `held`.
    fn mark(&mut self, soft: Soft, held: Duration);
}

/// The outcome of a decision for its request.
#[derive(Debug)]
pub enum Conclusion<S, A, R> {
    /// The request passes.
    Passes(A),
    /// The request passes after a wait, or takes its slots first. Boxed because this is rare.
    Delayed(Box<Delayed<S, A>>),
    /// The request is refused.
    Refused(R),
}

/// The outcome of a decision for a request of a form.
pub(crate) type ConclusionOf<S, F> =
    Conclusion<S, <F as RequestForm<S>>::Admission, <F as RequestForm<S>>::Refusal>;

/// A request that is held before it starts. If it is dropped before, its place is free and its charges are refunded.
pub struct Delayed<S, A> {
    pub(crate) admission: A,
    /// Its wait in the queues of its limits.
    queued: Option<HeldRequest>,
    /// The soft thresholds that it reached, until its turn in the queues comes.
    soft: Option<Soft>,
    /// Its place in the tarpit.
    tarpit: Option<TimedPlace<()>>,
    /// Its decision, if a more important request may take its place while it waits. Boxed, because it is large.
    displaceable: Option<Box<HeldDecision<S>>>,
    /// Counts it as in flight when it starts: the number of held requests has bounds of its own.
    shedder: Option<NodeShedder>,
    /// Takes its slots when it starts.
    start: Option<Start<S>>,
}

impl<S, A> fmt::Debug for Delayed<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delayed").finish_non_exhaustive()
    }
}

/// An admitted request that takes its slots when it starts.
struct Start<S> {
    /// The limiter that admitted it.
    limiter: Arc<Limiter<S>>,
    /// The id of the admission.
    id: DecisionId,
}

#[allow(private_bounds, reason = "the methods are private, too")]
impl<S: Store, A: Admission> Delayed<S, A> {
    /// Waits for the turn of the request in the queues of its limits, and then for the delay of the tarpit. Returns how the
    /// wait ended, for [`Wiring::start`].
    pub(crate) async fn wait(&mut self, wiring: &Wiring<S>) -> Result<HoldEnd, ShuttingDown> {
        if let Some(queued) = self.queued.take() {
            match queued.wait().await {
                Ok(HoldEnd::TimeOver) => {}
                end => return end,
            }
        }
        if let Some(soft) = self.soft.take() {
            self.tarpit = wiring.soften(soft, &mut self.admission);
        }
        if let Some(tarpit) = self.tarpit.take() {
            tarpit.wait().await;
        }
        Ok(HoldEnd::TimeOver)
    }

    /// Returns the admission of a request that starts now.
    pub(crate) fn into_admission(self) -> A {
        let Self { mut admission, shedder, .. } = self;
        admission.set_in_flight(shedder.map(|shedder| shedder.enter()));
        admission
    }
}

impl<S: Store> Wiring<S> {
    /// Determines the outcome of a decision for its request.
    pub(crate) fn conclude<F: RequestForm<S>>(
        &self,
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        form: &mut F,
    ) -> ConclusionOf<S, F> {
        let mut id = None;
        if is_limited(decision) {
            let (known, settings) = (limiter.id_of(decision), limiter.policy().headers());
            let retry_after = RetryAfter::jittered(decision, settings, &*self.rng);
            if let Some(rejection) = Rejection::of(decision, known, retry_after) {
                return Conclusion::Refused(form.refuse(&rejection, settings));
            }
            let (wait, soft) = (decision.wait(), Soft::of(decision));
            if !wait.is_zero() || soft.is_some() || limiter.takes_slots_at_start(decision) {
                return self.hold(limiter, (decision, known), (wait, soft), form);
            }
            id = Some(known);
        }
        let deferred = self.deferred(limiter, decision, form, false);
        Conclusion::Passes(form.admit(limiter, decision, id, (deferred, limiter.track_in_flight())))
    }

    /// Determines the outcome of a decision that admits a request after a wait, over a soft threshold, or before its slots
    /// are taken.
    #[cold]
    fn hold<F: RequestForm<S>>(
        &self,
        limiter: &Arc<Limiter<S>>,
        (decision, id): (&Decision<'_>, DecisionId),
        (wait, mut soft): (Duration, Option<Soft>),
        form: &mut F,
    ) -> ConclusionOf<S, F> {
        let start =
            limiter.takes_slots_at_start(decision).then(|| Start { limiter: Arc::clone(limiter), id });
        let is_queued = !wait.is_zero() || start.is_some();
        let deferred = self.deferred(limiter, decision, form, is_queued);
        let mut admission = form.admit(limiter, decision, Some(id), (deferred, None));
        let (mut tarpit, mut queued, mut displaceable) = (None, None, None);
        if wait.is_zero() {
            tarpit = soft.take().and_then(|soft| self.soften(soft, &mut admission));
            if start.is_none() && tarpit.is_none() {
                admission.set_in_flight(limiter.track_in_flight());
                return Conclusion::Passes(admission);
            }
        } else {
            let rank = decision.rank();
            queued = self.waiting_room.enter(HoldTime::Exactly(wait), rank);
            if queued.is_none() {
                // The deferred work refunds all charges when it is dropped.
                return Conclusion::Refused(self.refuse_unheld(limiter, (decision, id), form));
            }
            // No request displaces one of the most important class.
            displaceable = (rank > 0).then(|| Box::new(limiter.hold_decision(decision, id)));
        }
        let shedder = limiter.policy().node_shed().map(|_| limiter.node_shedder().clone());
        Conclusion::Delayed(Box::new(Delayed {
            admission,
            queued,
            soft,
            tarpit,
            displaceable,
            shedder,
            start,
        }))
    }

    /// Starts a request whose wait has ended: takes its slots, if they were not taken before. Returns the refusal of a
    /// request that does not start. Its charges are refunded when it is dropped.
    pub(crate) async fn start<F: RequestForm<S>>(
        &self,
        delayed: &mut Delayed<S, F::Admission>,
        end: Result<HoldEnd, ShuttingDown>,
        form: &mut F,
    ) -> Result<(), F::Refusal> {
        let start = match (end, &delayed.displaceable) {
            (Ok(HoldEnd::TimeOver), _) => delayed.start.take(),
            (Ok(HoldEnd::Displaced), Some(held)) => return Err(self.displace(held, form)),
            _ => return Err(form.refuse_at_shutdown(Some(&mut delayed.admission))),
        };
        match start {
            // Boxed, so that a request that waits stays small.
            Some(start) => Box::pin(self.take_slots(start, &mut delayed.admission, form)).await,
            None => Ok(()),
        }
    }

    /// Returns the wait of a request for a slot; `None` if it finds no place.
    pub(crate) fn hold_for_slot(
        &self,
        wait: SlotWait,
    ) -> Option<impl Future<Output = Result<HoldEnd, ShuttingDown>> + use<S>> {
        self.waiting_room.enter(HoldTime::AtMost(wait.max_wait), wait.rank).map(HeldRequest::wait)
    }

    /// Marks a request, and takes a place in the tarpit if the request is to be delayed.
    fn soften(&self, soft: Soft, admission: &mut impl Admission) -> Option<TimedPlace<()>> {
        let time = soft.tarpit;
        let place = self.tarpit.as_ref().and_then(|tarpit| tarpit.enter(time));
        admission.mark(soft, if place.is_some() { time } else { Duration::ZERO });
        place
    }

    /// Refuses a request that finds no place in the waiting room.
    fn refuse_unheld<F: RequestForm<S>>(
        &self,
        limiter: &Limiter<S>,
        (decision, id): (&Decision<'_>, DecisionId),
        form: &mut F,
    ) -> F::Refusal {
        let mut refused = decision.clone();
        limiter.refuse_wait(Some(&form.view(limiter)), &mut refused, Duration::ZERO, NotHeld::NoPlace);
        self.refuse_by_full_room(limiter, (&refused, id), form)
    }

    /// Refuses a request that has lost its place in the waiting room.
    fn displace<F: RequestForm<S>>(&self, held: &HeldDecision<S>, form: &mut F) -> F::Refusal {
        let limiter = held.limiter();
        let decision = held.displace(Some(&form.view(limiter)));
        self.refuse_by_full_room(limiter, (&decision, limiter.id_of(&decision)), form)
    }

    fn refuse_by_full_room<F: RequestForm<S>>(
        &self,
        limiter: &Limiter<S>,
        (decision, id): (&Decision<'_>, DecisionId),
        form: &mut F,
    ) -> F::Refusal {
        let settings = limiter.policy().headers();
        let retry_after = RetryAfter::jittered(decision, settings, &*self.rng);
        form.refuse(&Rejection::by_full_room(decision, id, retry_after), settings)
    }

    /// Takes the slots of an admitted request, or returns the refusal.
    async fn take_slots<F: RequestForm<S>>(
        &self,
        Start { limiter, id }: Start<S>,
        admission: &mut F::Admission,
        form: &mut F,
    ) -> Result<(), F::Refusal> {
        let hold = |wait: SlotWait| self.hold_for_slot(wait);
        let taken = limiter.take_slots(&form.view(&limiter), id, hold).await;
        let Ok(decision) = taken else { return Err(form.refuse_at_shutdown(None)) };
        let settings = limiter.policy().headers();
        let retry_after = RetryAfter::jittered(&decision, settings, &*self.rng);
        if let Some(rejection) = Rejection::of(&decision, id, retry_after) {
            return Err(form.refuse(&rejection, settings));
        }
        let slots = self.deferred(&limiter, &decision, form, false);
        let deferred = admission.deferred();
        *deferred = Owing::join(deferred.take(), slots);
        Ok(())
    }

    fn deferred<F: RequestForm<S>>(
        &self,
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        form: &F,
        is_queued: bool,
    ) -> Option<Owing> {
        let wiring = (&self.limiter, &self.clock, &self.spawn);
        Deferred::of(limiter, decision, wiring, form.outer_slots(), is_queued)
    }
}
