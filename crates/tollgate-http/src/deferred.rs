//! What an admitted request owes when it is over: slots to give back, costs to settle.
//!
//! A request is over when its answer has been sent, or when somebody stopped
//! waiting for it: so what is owed travels with the answer's body, and dropping it
//! pays. That happens once, whatever the end. Dropping cannot wait. A store in this process is
//! done at once; what a remote one has not finished goes to the hook given to
//! [`LimitLayer::with_spawn`](crate::LimitLayer::with_spawn). Without a hook
//! the slot ends with its lease, and the cost stays what was reserved.
//!
//! Not here: taking slots and reserves (`tollgate`), finding out costs (`meter`), slots that outlive their
//! caller (`slot_guard`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use tollgate::{Clock, Decision, Limiter, Policy, Receipt, Store};

use crate::meter::{Costs, Meters};
use crate::shared::SharedLimiter;
use crate::slot_guard::SlotGuard;

/// Work that outlives the request it belongs to.
pub(crate) type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs work in the background.
pub(crate) type Spawn = Arc<dyn Fn(Background) + Send + Sync>;

/// What is owed to any store, paid when dropped.
pub(crate) struct Deferred(Box<dyn DeferredWork>);

/// What is owed to one store.
trait DeferredWork: Send {
    fn meters(&mut self) -> &mut Meters;

    /// Does not release the slots: they end with their `ttl`.
    fn leave_slots(&mut self);
}

struct DeferredFor<S: Store> {
    /// Decided about the request, and knows its slots whatever comes after it.
    limiter: Arc<Limiter<S>>,
    /// Costs are settled under the numbers that count by then.
    in_force: SharedLimiter<S>,
    receipt: Option<Receipt>,
    meters: Meters,
    spawn: Option<Spawn>,
    /// Whether the slots end with their `ttl` instead of being released.
    leaves_slots: bool,
}

/// The debt of a request as its answer carries it.
pub(crate) enum Owing {
    /// Paid when the answer has ended or its caller is gone.
    Alone(Deferred),
    /// Paid when the service behind is done with it, too.
    Shared(SlotGuard),
}

impl Owing {
    /// Calls this with what is found out about the answer.
    pub(crate) fn with_meters<T>(&mut self, call: impl FnOnce(&mut Meters) -> T) -> T {
        match self {
            Self::Alone(deferred) => call(deferred.meters()),
            Self::Shared(guard) => call(guard.lock().meters()),
        }
    }
}

impl Deferred {
    /// What a decision leaves to be paid, if anything. Nearly none does, so what
    /// is copied here costs the others nothing. `outer`: the slots that a layer further out holds.
    pub(crate) fn of<S: Store>(
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        (in_force, clock, spawn): (&SharedLimiter<S>, &Arc<dyn Clock>, Option<&Spawn>),
        outer: Option<&SlotGuard>,
    ) -> Option<Owing> {
        if decision.owner().is_none() && !may_settle(limiter.policy(), decision) {
            return None;
        }
        let receipt = decision.receipt()?;
        let meters = Meters::of(&receipt, limiter.policy(), clock);
        if receipt.slots() == 0 && meters.is_empty() {
            return None;
        }
        let ttl = receipt.hold_on_hangup(limiter.policy());
        let (limiter, in_force, spawn) = (Arc::clone(limiter), in_force.clone(), spawn.cloned());
        let receipt = Some(receipt);
        let deferred =
            Self(Box::new(DeferredFor { limiter, in_force, receipt, meters, spawn, leaves_slots: false }));
        Some(match ttl {
            Some(ttl) => Owing::Shared(SlotGuard::new(deferred, ttl, clock, outer)),
            None => Owing::Alone(deferred),
        })
    }

    /// Does not release the slots: they end with their `ttl`.
    pub(crate) fn leave_slots(&mut self) {
        self.0.leave_slots();
    }

    /// What is found out about the answer.
    pub(crate) fn meters(&mut self) -> &mut Meters {
        self.0.meters()
    }
}

/// Whether a limit of the request may settle. Of those that were counted without the store
/// not all are in the decision; the receipt tells.
fn may_settle(policy: &Policy, decision: &Decision<'_>) -> bool {
    policy.settles() && (decision.is_degraded() || decision.limits().any(|it| it.limit().settle().is_some()))
}

impl<S: Store> DeferredWork for DeferredFor<S> {
    fn meters(&mut self) -> &mut Meters {
        &mut self.meters
    }

    fn leave_slots(&mut self) {
        self.leaves_slots = true;
    }
}

/// Work that goes on after its answer, such as a tunnel: it holds the slots of
/// its request until it ends, and costs are settled then.
///
/// A service puts one clone into the extensions of its answer and keeps another;
/// the request is over with the last clone.
#[derive(Clone, Default)]
pub struct Detached(Arc<Mutex<Vec<Owing>>>);

impl Detached {
    pub(crate) fn keep(&self, deferred: Owing) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
    }
}

/// Marks an answer, in its extensions, to a request that the service behind never saw: a
/// gateway answers for one that cannot be reached. What limits have reserved whose cost is
/// settled afterwards is given back. Limits that settle nothing keep what they were charged.
#[derive(Clone, Copy, Debug)]
pub struct NotForwarded;

async fn pay<S: Store>(
    limiter: Arc<Limiter<S>>,
    in_force: SharedLimiter<S>,
    receipt: Receipt,
    costs: Costs,
    leaves_slots: bool,
) {
    if receipt.slots() > 0 && !leaves_slots {
        // A store that fails now forgets the slot when its lease ends.
        let _outage = limiter.release_receipt(&receipt).await;
    }
    if !costs.is_empty() {
        let costs: Vec<_> = costs.iter().map(|(name, cost)| (&**name, *cost)).collect();
        // A store that fails now keeps what was reserved.
        let _outage = in_force.load().settle_limits(&receipt, &costs).await;
    }
}

impl<S: Store> Drop for DeferredFor<S> {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take() else { return };
        let (limiter, in_force) = (Arc::clone(&self.limiter), self.in_force.clone());
        let mut paying: Background =
            Box::pin(pay(limiter, in_force, receipt, self.meters.costs(), self.leaves_slots));
        let done = paying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if let (false, Some(spawn)) = (done, &self.spawn) {
            spawn(paying);
        }
    }
}
