//! Work deferred to the end of an admitted request: releasing slots and settling costs, or a refund
//! of all charges if the request ends before it starts.
//!
//! A request ends when its response has been sent or when the caller stops waiting. The deferred
//! work therefore travels with the response body and runs once, when it is dropped. A request that
//! waits in the queue of a limit has not started: if it is dropped then, its place is given back and
//! it has cost nothing, as a refused request. `Drop` cannot
//! wait: a store in memory finishes immediately, and the work of a store that waits goes to the hook
//! of [`LimitLayer::spawning`](crate::LimitLayer::spawning).
//!
//! Not here: acquiring slots and reserves (`tollgate`), measuring costs (`meter`), slots that
//! outlive their caller (`slot_guard`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;
use tollgate::{
    Clock, Decision, InFlight, Limiter, Policy, Receipt, RequestOutcome, SharedLimiter, SlotRenewal, Store,
};

use crate::meter::{Costs, MeteredParts, Meters};
use crate::service_timer::ServiceTimer;
use crate::slot_guard::SlotGuard;

/// A future that outlives its request.
pub(crate) type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the deferred work of a store that waits.
#[derive(Clone)]
pub(crate) enum Spawn {
    /// No work is left: the store is in memory.
    Unneeded,
    /// A hook that runs a future in the background.
    Hook(Arc<dyn Fn(Background) + Send + Sync>),
}

/// Deferred work for a store of any type, run on drop.
pub(crate) struct Deferred(Box<dyn DeferredWork>);

/// Deferred work for a store of a known type.
trait DeferredWork: Send {
    fn meters(&mut self) -> &mut Meters;

    /// Returns the parts of the response that the meters read.
    fn metered(&self) -> MeteredParts;

    /// Records that the inner service is called: from now on, the charges are kept.
    fn start(&mut self);

    /// Records the answer of the service, for limits with a learned number of slots.
    fn complete(&self, outcome: RequestOutcome);

    /// Returns the timer of the service, if a limit with a learned number of slots measures it.
    fn service_timer(&self) -> Option<ServiceTimer>;

    /// Adds the deferred work of the admission to that of the slots, which were taken later.
    fn add_admission(&mut self, admission: Owing);

    /// Keeps the slots until their `ttl` instead of releasing them.
    fn leave_slots(&mut self);
}

struct DeferredFor<S: Store> {
    /// The limiter that made the decision; it knows the slots even after the policy is replaced.
    limiter: Arc<Limiter<S>>,
    /// The current limiter: costs are settled under the limits in force at the end of the request.
    in_force: SharedLimiter<S>,
    receipt: Option<Receipt>,
    /// The request in flight under limits with a learned number of slots. It ends when this is dropped,
    /// and its latency when the service has answered.
    in_flight: Option<Arc<InFlight>>,
    /// Renews the slots, so that a request that outlives their `ttl` is still counted.
    renewal: Option<SlotRenewal<S>>,
    meters: Meters,
    spawn: Spawn,
    /// Whether the request waits in a queue and has not started.
    is_queued: bool,
    /// Whether the slots are kept until their `ttl` instead of being released.
    leaves_slots: bool,
    /// The work of the admission, if this is the work of slots that were taken when the request started.
    admission: Option<Owing>,
}

/// The deferred work of a request, as its response carries it.
pub(crate) enum Owing {
    /// Runs when the response ends or the caller disconnects.
    Alone(Deferred),
    /// Runs when, in addition, the inner service has dropped its guard.
    Shared(SlotGuard),
}

impl Owing {
    /// Calls `call` with the meters of the request.
    pub(crate) fn with_meters<T>(&mut self, call: impl FnOnce(&mut Meters) -> T) -> T {
        match self {
            Self::Alone(deferred) => call(deferred.meters()),
            Self::Shared(guard) => call(guard.lock().meters()),
        }
    }

    /// Returns the parts of the response that the meters of the request read.
    pub(crate) fn metered(&self) -> MeteredParts {
        match self {
            Self::Alone(deferred) => deferred.0.metered(),
            Self::Shared(guard) => guard.lock().0.metered(),
        }
    }

    /// Records the answer of the service, for limits with a learned number of slots.
    pub(crate) fn complete(&self, outcome: RequestOutcome) {
        match self {
            Self::Alone(deferred) => deferred.complete(outcome),
            Self::Shared(guard) => guard.lock().complete(outcome),
        }
    }

    /// Returns the timer of the service, if a limit with a learned number of slots measures it.
    pub(crate) fn service_timer(&self) -> Option<ServiceTimer> {
        match self {
            Self::Alone(deferred) => deferred.0.service_timer(),
            Self::Shared(guard) => guard.lock().0.service_timer(),
        }
    }

    /// Returns the work of an admission and of the slots that were taken after it.
    pub(crate) fn join(admission: Option<Self>, slots: Option<Self>) -> Option<Self> {
        match (admission, slots) {
            (Some(admission), Some(mut slots)) => {
                match &mut slots {
                    Self::Alone(deferred) => deferred.0.add_admission(admission),
                    Self::Shared(guard) => guard.lock().0.add_admission(admission),
                }
                Some(slots)
            }
            (admission, slots) => admission.or(slots),
        }
    }

    /// Records that the inner service is called.
    pub(crate) fn start(&mut self) {
        match self {
            Self::Alone(deferred) => deferred.start(),
            Self::Shared(guard) => guard.lock().start(),
        }
    }
}

impl Deferred {
    /// Returns the deferred work of a decision, if there is any. Most decisions have none and
    /// return before anything is copied. `outer` holds the slots of an outer layer. A request
    /// `is_queued` if it has to wait before it starts.
    pub(crate) fn of<S: Store>(
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        (in_force, clock, spawn): (&SharedLimiter<S>, &Arc<dyn Clock>, &Spawn),
        outer: Option<&SlotGuard>,
        is_queued: bool,
    ) -> Option<Owing> {
        let in_flight = decision.in_flight().cloned();
        // Most decisions return here.
        let may_owe = is_queued || decision.owner().is_some() || may_settle(limiter.policy(), decision);
        if !may_owe && in_flight.is_none() {
            return None;
        }
        let receipt = if may_owe { decision.receipt() } else { None };
        let meters = Meters::of(receipt.as_ref(), limiter.policy(), clock);
        let receipt = receipt.filter(|it| is_queued || it.slots() > 0 || !meters.is_empty());
        if receipt.is_none() && in_flight.is_none() {
            return None;
        }
        let of_slots = receipt.as_ref().and_then(|it| it.hold_on_hangup(limiter.policy()));
        let ttl = of_slots.max(in_flight.as_ref().and_then(|it| it.hold_on_hangup()));
        let (limiter, in_force, spawn) = (Arc::clone(limiter), in_force.clone(), spawn.clone());
        let renewal = receipt.as_ref().and_then(|receipt| limiter.keep_slots(receipt));
        let leaves_slots = false;
        let deferred = Self(Box::new(DeferredFor {
            limiter,
            in_force,
            receipt,
            in_flight,
            renewal,
            meters,
            spawn,
            is_queued,
            leaves_slots,
            admission: None,
        }));
        Some(match ttl {
            Some(ttl) => Owing::Shared(SlotGuard::new(deferred, ttl, clock, outer)),
            None => Owing::Alone(deferred),
        })
    }

    /// Keeps the slots until their `ttl` instead of releasing them.
    pub(crate) fn leave_slots(&mut self) {
        self.0.leave_slots();
    }

    /// Records that the inner service is called.
    pub(crate) fn start(&mut self) {
        self.0.start();
    }

    /// Records the answer of the service, for limits with a learned number of slots.
    pub(crate) fn complete(&self, outcome: RequestOutcome) {
        self.0.complete(outcome);
    }

    /// The meters of the request.
    pub(crate) fn meters(&mut self) -> &mut Meters {
        self.0.meters()
    }
}

/// Whether a limit of the request may settle. A degraded decision does not list every limit that
/// was counted locally, so for it the receipt decides.
fn may_settle(policy: &Policy, decision: &Decision<'_>) -> bool {
    policy.settles() && (decision.is_degraded() || decision.limits().any(|it| it.limit().settle().is_some()))
}

impl<S: Store> DeferredWork for DeferredFor<S> {
    fn meters(&mut self) -> &mut Meters {
        match &mut self.admission {
            // An admission without slots is not shared.
            Some(Owing::Alone(admission)) => admission.meters(),
            _ => &mut self.meters,
        }
    }

    fn metered(&self) -> MeteredParts {
        match &self.admission {
            Some(admission) => admission.metered(),
            None => self.meters.parts(),
        }
    }

    fn start(&mut self) {
        self.is_queued = false;
        self.meters.start();
        if let Some(admission) = &mut self.admission {
            admission.start();
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.start();
        }
    }

    fn complete(&self, outcome: RequestOutcome) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.complete(outcome);
        }
    }

    fn service_timer(&self) -> Option<ServiceTimer> {
        self.in_flight.as_ref().map(ServiceTimer::new)
    }

    fn add_admission(&mut self, admission: Owing) {
        self.admission = Some(admission);
    }

    fn leave_slots(&mut self) {
        self.leaves_slots = true;
    }
}

/// Work that continues after its response, such as a tunnel.
///
/// It holds the slots of its request until it ends, and costs are settled then. A service puts one
/// clone into the extensions of its response and keeps another. The request ends when the last
/// clone is dropped.
#[derive(Clone, Default)]
pub struct Detached(Arc<Mutex<Vec<Owing>>>);

impl Detached {
    pub(crate) fn keep(&self, deferred: Owing) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").finish_non_exhaustive()
    }
}

/// Marks a response, in its extensions, to a request that never reached the upstream service.
///
/// A gateway uses it when the upstream cannot be reached. Limits that settle their cost refund the
/// reserve. Other limits keep the charge.
#[derive(Clone, Copy, Debug)]
pub struct NotForwarded;

/// Marks a response, in its extensions, that says nothing about the load of the service: the request was
/// refused as malformed, or failed because of its client. Limits with a learned number of slots do not
/// measure its latency.
#[derive(Clone, Copy, Debug)]
pub struct Unmeasured;

/// Marks a response, in its extensions, that a gateway wrote instead of the upstream service. It states no cost: limits
/// that settle their cost by a header or by the body keep their charge.
#[derive(Clone, Copy, Debug)]
pub struct OwnResponse;

/// The receipt of a request that has ended, and how it ended.
struct EndedRequest<S> {
    limiter: Arc<Limiter<S>>,
    in_force: Arc<Limiter<S>>,
    receipt: Receipt,
    end: End,
}

enum End {
    /// It left before the inner service was called: nothing is charged.
    Left,
    Served {
        costs: Costs,
        releases_slots: bool,
    },
}

impl End {
    /// Whether slots are released. Those of a request that left are released by the limiter that
    /// took them, in addition to the refund: the limits in force may not know them any more.
    const fn releases_slots(&self) -> bool {
        match self {
            Self::Left => true,
            Self::Served { releases_slots, .. } => *releases_slots,
        }
    }
}

fn borrowed(costs: &Costs) -> SmallVec<[(&str, u64); 2]> {
    costs.iter().map(|(name, cost)| (&**name, *cost)).collect()
}

impl<S: Store> EndedRequest<S> {
    fn releases_slots(&self) -> bool {
        self.receipt.slots() > 0 && self.end.releases_slots()
    }

    /// Releases, settles and refunds without waiting. Returns `false` if nothing was settled or
    /// refunded; slots may be released twice.
    fn try_pay(&self) -> bool {
        (!self.releases_slots() || self.limiter.try_release_receipt(&self.receipt))
            && match &self.end {
                End::Left => self.in_force.try_refund_receipt(&self.receipt),
                End::Served { costs, .. } => {
                    costs.is_empty() || self.in_force.try_settle_limits(&self.receipt, &borrowed(costs))
                }
            }
    }

    /// Works as [`try_pay`](Self::try_pay), and waits for the store. If the store fails, the limiter
    /// makes up for it when the store is back.
    async fn pay(self) {
        if self.releases_slots() {
            let _outage = self.limiter.release_receipt(&self.receipt).await;
        }
        match &self.end {
            End::Left => drop(self.in_force.refund_receipt(&self.receipt).await),
            End::Served { costs, .. } if costs.is_empty() => {}
            End::Served { costs, .. } => {
                let _outage = self.in_force.settle_limits(&self.receipt, &borrowed(costs)).await;
            }
        }
    }
}

impl<S: Store> Drop for DeferredFor<S> {
    fn drop(&mut self) {
        self.renewal = None;
        let Some(receipt) = self.receipt.take() else { return };
        let (limiter, in_force) = (Arc::clone(&self.limiter), self.in_force.load());
        let end = if self.is_queued {
            End::Left
        } else {
            End::Served { costs: self.meters.costs(), releases_slots: !self.leaves_slots }
        };
        let ended = EndedRequest { limiter, in_force, receipt, end };
        if let (false, Spawn::Hook(spawn)) = (ended.try_pay(), &self.spawn) {
            spawn(Box::pin(ended.pay()));
        }
    }
}
