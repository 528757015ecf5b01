//! What an admitted request owes when it is over: slots to give back, costs to settle.
//!
//! A request is over when its answer has been sent, or when somebody stopped
//! waiting for it: so what is owed travels with the answer's body, and dropping it
//! pays. That happens once, whatever the end. Dropping cannot wait. A store in this process is
//! done at once; what a remote one has not finished goes to the hook given to
//! [`LimitLayer::with_spawn`](crate::LimitLayer::with_spawn). Without a hook
//! the slot ends with its lease, and the cost stays what was reserved.
//!
//! Not here: taking slots and reserves (`tollgate`), finding out costs (`meter`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use tollgate::{Clock, Decision, Limiter, Policy, Receipt, Store};

use crate::meter::{Costs, Meters};
use crate::shared::SharedLimiter;

/// Work that outlives the request it belongs to.
pub(crate) type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs work in the background.
pub(crate) type Spawn = Arc<dyn Fn(Background) + Send + Sync>;

/// What is owed to any store, paid when dropped.
pub(crate) struct Owed(Box<dyn Debt>);

/// What is owed to one store.
trait Debt: Send {
    fn meters(&mut self) -> &mut Meters;
}

struct OwedTo<S: Store> {
    /// Decided about the request, and knows its slots whatever comes after it.
    limiter: Arc<Limiter<S>>,
    /// Costs are settled under the numbers that count by then.
    in_force: SharedLimiter<S>,
    receipt: Option<Receipt>,
    meters: Meters,
    spawn: Option<Spawn>,
}

impl Owed {
    /// What a decision leaves to be paid, if anything. Nearly none does, so what
    /// is copied here costs the others nothing.
    pub(crate) fn of<S: Store>(
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        (in_force, clock, spawn): (&SharedLimiter<S>, &Arc<dyn Clock>, Option<&Spawn>),
    ) -> Option<Self> {
        if decision.owner().is_none() && !may_settle(limiter.policy(), decision) {
            return None;
        }
        let receipt = decision.receipt()?;
        let meters = Meters::of(&receipt, limiter.policy(), clock);
        if receipt.slots() == 0 && meters.is_empty() {
            return None;
        }
        let (limiter, in_force) = (Arc::clone(limiter), in_force.clone());
        let owed = OwedTo { limiter, in_force, receipt: Some(receipt), meters, spawn: spawn.cloned() };
        Some(Self(Box::new(owed)))
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

impl<S: Store> Debt for OwedTo<S> {
    fn meters(&mut self) -> &mut Meters {
        &mut self.meters
    }
}

/// Work that goes on after its answer, such as a tunnel: it holds the slots of
/// its request until it ends, and costs are settled then.
///
/// A service puts one clone into the extensions of its answer and keeps another;
/// the request is over with the last clone.
#[derive(Clone, Default)]
pub struct Outliving(Arc<Mutex<Vec<Owed>>>);

impl Outliving {
    pub(crate) fn keep(&self, owed: Owed) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(owed);
    }
}

/// Marks an answer, in its extensions, to a request that the service behind never saw: a
/// gateway answers for one that cannot be reached. What limits have reserved whose cost is
/// settled afterwards is given back. Limits that settle nothing keep what they were charged.
#[derive(Clone, Copy, Debug)]
pub struct Unreached;

async fn pay<S: Store>(limiter: Arc<Limiter<S>>, in_force: SharedLimiter<S>, receipt: Receipt, costs: Costs) {
    if receipt.slots() > 0 {
        // A store that fails now forgets the slot when its lease ends.
        let _outage = limiter.release_receipt(&receipt).await;
    }
    if !costs.is_empty() {
        let costs: Vec<_> = costs.iter().map(|(name, cost)| (&**name, *cost)).collect();
        // A store that fails now keeps what was reserved.
        let _outage = in_force.load().settle_limits(&receipt, &costs).await;
    }
}

impl<S: Store> Drop for OwedTo<S> {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take() else { return };
        let (limiter, in_force) = (Arc::clone(&self.limiter), self.in_force.clone());
        let mut paying: Background = Box::pin(pay(limiter, in_force, receipt, self.meters.costs()));
        let done = paying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if let (false, Some(spawn)) = (done, &self.spawn) {
            spawn(paying);
        }
    }
}
