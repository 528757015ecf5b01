//! A place in a queue, as a guard that releases it.
//!
//! A limit with a queue admits a request that has to wait ([`Decision::wait`]). The decision is made
//! and charged: the place is taken, and the start of the request does not change any more. A caller
//! that leaves before releases the place by dropping its [`QueuePlace`]: the whole charge of the
//! request is refunded, and slots are released. The requests that wait keep their times. Slots that the
//! request has taken are renewed while it waits, so that a wait longer than their `ttl` does not lose them.
//!
//! A store in memory takes the refund in `drop`. For a store that waits, `drop` passes it to the
//! [`Spawner`](crate::Spawner) of the limiter, so that many callers that leave share calls to the store.
//! Without one, `drop` defers it to [`Limiter::reconcile`]. [`QueuePlace::leave`] waits for the store.
//!
//! Holding requests in a server, with a bound on their number, is in `tollgate_http`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_policy::Input;
use tollgate_store::{MemoryStore, Store, StoreError};

use crate::adaptive::InFlight;
use crate::decision::Decision;
use crate::limiter::Limiter;
use crate::observer::NotHeld;
use crate::permit::Permit;
use crate::receipt::Receipt;
use crate::renewals::SlotRenewal;
use crate::timer::Sleeper;

/// The place of an admitted request in the queues of its limits. It is released when it is dropped
/// before the request has started.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{Call, Limiter};
/// let limiter = Limiter::from_policy(
///     "limits: [{by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 1}}]",
/// )?;
/// let call = Call::new("GET", "/").user("ann");
/// let first = limiter.check(&call);
/// assert!(limiter.queue_place(&first).is_none());              // it starts immediately
/// let second = limiter.check(&call);
/// let place = limiter.queue_place(&second).expect("it waits");
/// assert!(place.wait_time() > Duration::from_millis(50));
/// assert!(!limiter.check(&call).is_allowed());                 // the queue is full
/// drop(place);
/// assert!(limiter.check(&call).is_allowed());
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[must_use = "a place that is dropped is refunded"]
pub struct QueuePlace<S: Store = MemoryStore> {
    limiter: Limiter<S>,
    /// `None` once the request has started or has left.
    receipt: Option<Receipt>,
    in_flight: Option<Arc<InFlight>>,
    /// Renews the slots of the request while it waits.
    renewal: Option<SlotRenewal<S>>,
    wait: Duration,
}

impl<S: Store> Limiter<S> {
    /// Returns the place of a decision in the queues of its limits, or `None` if the request is
    /// refused or starts immediately.
    pub fn queue_place(&self, decision: &Decision<'_>) -> Option<QueuePlace<S>> {
        if decision.wait().is_zero() { None } else { self.charged_place(decision) }
    }

    /// Returns the charge of a decision as a place that is refunded on drop, even if the request did not wait.
    /// `None` if nothing was charged.
    pub(crate) fn charged_place(&self, decision: &Decision<'_>) -> Option<QueuePlace<S>> {
        let wait = decision.wait();
        let (receipt, in_flight) = (decision.receipt()?, decision.in_flight().cloned());
        let renewal = self.keep_slots(&receipt);
        Some(QueuePlace { limiter: self.clone(), receipt: Some(receipt), in_flight, renewal, wait })
    }
}

impl<S> Limiter<S> {
    /// Refuses an admitted request that cannot be held for its [wait](Decision::wait), as
    /// [`Decision::refuse_wait`] does, and reports that to the observer, which knows the request as
    /// admitted. `input` is the one that was decided.
    ///
    /// The caller takes the [place](Self::queue_place) of the request before, and releases it.
    pub fn refuse_wait(
        &self,
        input: Option<&dyn Input>,
        decision: &mut Decision<'_>,
        max_wait: Duration,
        reason: NotHeld,
    ) {
        if decision.wait() <= max_wait {
            return;
        }
        decision.refuse_wait(max_wait);
        decision.not_held = Some(reason);
        if let (Some(watched), Some(id)) = (self.watched(), decision.id) {
            watched.not_held(id, input.map(Input::subject), decision, reason);
        }
    }
}

impl<S: Store> QueuePlace<S> {
    /// Returns the time from the decision to the start of the request.
    pub const fn wait_time(&self) -> Duration {
        self.wait
    }

    /// Waits until the request may start, on a thread of this process. A future that is dropped
    /// before releases the place.
    pub async fn wait(self) -> Permit<S> {
        self.wait_with(&Sleeper::default()).await
    }

    /// Waits as [`wait`](Self::wait) does, with the timer of a runtime.
    pub async fn wait_with(self, sleeper: &Sleeper) -> Permit<S> {
        sleeper.sleep(self.wait).await;
        self.start()
    }

    /// Ends the wait, for a caller that has waited itself. The charge is kept.
    pub fn start(mut self) -> Permit<S> {
        Permit::new(self.limiter.clone(), self.receipt.take(), self.in_flight.take())
    }

    /// Gives the place back, and waits for the store.
    pub async fn leave(mut self) -> Result<(), StoreError> {
        self.renewal = None;
        match self.receipt.take() {
            // A refund that the store does not confirm, and one that is canceled, is deferred.
            Some(receipt) => self.limiter.refund_receipt(&receipt).await,
            None => Ok(()),
        }
    }
}

impl<S: Store> Drop for QueuePlace<S> {
    fn drop(&mut self) {
        self.renewal = None;
        let Some(receipt) = self.receipt.take() else { return };
        if self.limiter.try_refund_receipt(&receipt) {
            return;
        }
        let mut refund = Refund { limiter: self.limiter.clone(), receipt: Some(receipt) };
        if let Some(spawner) = self.limiter.spawner() {
            spawner.spawn(async move {
                if let Some(receipt) = refund.receipt.take() {
                    // A refund that the store does not confirm, and one that is canceled, is deferred.
                    let _deferred = refund.limiter.refund_receipt(&receipt).await;
                }
            });
        }
    }
}

/// A refund that has not been started. It is deferred when it is dropped: a runtime that shuts down
/// drops its tasks.
struct Refund<S: Store> {
    limiter: Limiter<S>,
    receipt: Option<Receipt>,
}

impl<S: Store> Drop for Refund<S> {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            self.limiter.refund_later(&receipt);
        }
    }
}

impl<S: Store> fmt::Debug for QueuePlace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePlace").field("wait", &self.wait).finish_non_exhaustive()
    }
}
