//! A place in a queue, as a guard that gives it back.
//!
//! A limit with a queue admits a request that has to wait ([`Decision::wait`]). The decision is made
//! and charged: the place is taken, and the start of the request does not change any more. A caller
//! that leaves before gives the place back by dropping its [`QueuePlace`]: the whole charge of the
//! request is refunded, and slots are released. Those who wait keep their times.
//!
//! A store in memory takes the refund in `drop`. For a store that waits, `drop` defers it to
//! [`Limiter::reconcile`], and [`QueuePlace::leave`] refunds without that delay.
//!
//! Holding requests in a server, with a bound on their number, is in `tollgate_http`.

use std::fmt;
use std::time::Duration;

use tollgate_policy::Request;
use tollgate_store::{MemoryStore, Store, StoreError};

use crate::decision::Decision;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::receipt::Receipt;
use crate::timer::Sleeper;

/// The place of an admitted request in the queues of its limits. It is given back when it is dropped
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
#[must_use = "a place that is dropped is given back"]
pub struct QueuePlace<S: Store = MemoryStore> {
    limiter: Limiter<S>,
    /// `None` once the request has started or has left.
    receipt: Option<Receipt>,
    wait: Duration,
}

impl<S: Store> Limiter<S> {
    /// Returns the place of a decision in the queues of its limits, or `None` if the request is
    /// refused or starts immediately.
    pub fn queue_place(&self, decision: &Decision<'_>) -> Option<QueuePlace<S>> {
        let wait = decision.wait();
        if wait.is_zero() {
            return None;
        }
        Some(QueuePlace { limiter: self.clone(), receipt: Some(decision.receipt()?), wait })
    }

    /// Decides about a request, and waits until it may start: its limits may have queues. Returns a
    /// permit that releases its slots when it is dropped. The error is the decision that refused.
    ///
    /// A future that is dropped while it waits gives its place back. It sleeps on a thread of this
    /// process; [`QueuePlace::wait_with`] takes the timer of a runtime.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy(
    ///     "limits: [{by: user, algorithm: leaky-queue, rate: 100/second, queue: {length: 50}}]",
    /// ).unwrap();
    /// let call = Call::new("GET", "/").user("ann");
    /// for _ in 0..3 {
    ///     limiter.until_ready(&call).await.expect("a place in the queue");
    ///     // Ten milliseconds apart.
    /// }
    /// # });
    /// ```
    pub async fn until_ready<R>(&self, request: &R) -> Result<Permit<S>, Box<Decision<'_>>>
    where
        R: Request + ?Sized + Sync,
    {
        let decision = self.decide(request).await;
        let Some(place) = self.queue_place(&decision) else { return self.permit(decision) };
        // It has kilobytes, and the wait may be long.
        drop(decision);
        Ok(place.wait().await)
    }
}

impl<S: Store> QueuePlace<S> {
    /// Returns the time from the decision to the start of the request.
    pub const fn wait_time(&self) -> Duration {
        self.wait
    }

    /// Waits until the request may start, on a thread of this process. A future that is dropped
    /// before gives the place back.
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
        Permit::new(self.limiter.clone(), self.receipt.take())
    }

    /// Gives the place back, and waits for the store.
    pub async fn leave(mut self) -> Result<(), StoreError> {
        match self.receipt.take() {
            // A refund that the store does not confirm, and one that is canceled, is deferred.
            Some(receipt) => self.limiter.refund_receipt(&receipt).await,
            None => Ok(()),
        }
    }
}

impl<S: Store> Drop for QueuePlace<S> {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take()
            && !self.limiter.try_refund_receipt(&receipt)
        {
            self.limiter.refund_later(&receipt);
        }
    }
}

impl<S: Store> fmt::Debug for QueuePlace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePlace").field("wait", &self.wait).finish_non_exhaustive()
    }
}
