//! An admitted request, as a guard that releases its slots.
//!
//! A store in memory releases the slots in `drop`. A store that waits cannot: `drop` defers the
//! release, and [`Limiter::reconcile`] applies it, which a program on such a store calls every
//! second. [`Permit::release`] releases without that delay. A permit whose release is lost, because
//! its process ends, is bounded by the `ttl` of its slots.
//!
//! Renewal of leases is not here: work that outlives its `ttl` is no longer counted.

use std::fmt;

use tollgate_policy::Request;
use tollgate_store::{Clock, MemoryStore, Store, StoreError};

use crate::decision::Decision;
use crate::limiter::Limiter;
use crate::receipt::Receipt;

/// An admitted request, whose slots are released when the permit is dropped.
///
/// It owns its data, so that it can move into the task that does the work.
///
/// ```
/// use tollgate::{Call, Limiter};
///
/// let limiter = Limiter::from_policy("limits: [{name: reports, by: user, slots: 1}]")?;
/// let call = Call::new("POST", "/reports").user("ann");
/// let permit = limiter.acquire_now(&call).expect("the first report of ann");
/// let refused = limiter.acquire_now(&call).expect_err("one report at a time");
/// assert_eq!(refused.limiting().map(|limit| limit.name()), Some("reports"));
/// drop(permit);
/// assert!(limiter.acquire_now(&call).is_ok());
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[must_use = "a permit that is dropped releases its slots"]
pub struct Permit<S: Store = MemoryStore> {
    limiter: Limiter<S>,
    /// `None` if nothing was charged, and once the slots are released.
    receipt: Option<Receipt>,
}

impl<S: Store> Limiter<S> {
    /// Decides about a request, and returns a permit that releases its slots when it is dropped. The
    /// error is the decision that refused.
    ///
    /// The future does not wait for room, nor in the queue of a limit
    /// ([`until_ready`](Self::until_ready) does). A future that is dropped before its end may leave slots
    /// until their leases end.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: user, slots: 2}]").unwrap();
    /// let call = Call::new("GET", "/").user("ann");
    /// match limiter.acquire(&call).await {
    ///     Ok(_permit) => println!("working"),
    ///     Err(refused) => println!("come back in {:?}", refused.advised_wait()),
    /// }
    /// # });
    /// ```
    pub async fn acquire<R>(&self, request: &R) -> Result<Permit<S>, Box<Decision<'_>>>
    where
        R: Request + ?Sized + Sync,
    {
        self.permit(self.decide(request).await)
    }

    pub(crate) fn permit<'l>(&self, decision: Decision<'l>) -> Result<Permit<S>, Box<Decision<'l>>> {
        if !decision.is_allowed() {
            return Err(Box::new(decision));
        }
        Ok(Permit::new(self.clone(), decision.receipt()))
    }
}

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Decides as [`acquire`](Self::acquire) does, synchronously.
    pub fn acquire_now<R>(&self, request: &R) -> Result<Permit<MemoryStore<C>>, Box<Decision<'_>>>
    where
        R: Request + ?Sized,
    {
        self.permit(self.check(request))
    }
}

impl<S: Store> Permit<S> {
    pub(crate) const fn new(limiter: Limiter<S>, receipt: Option<Receipt>) -> Self {
        Self { limiter, receipt }
    }

    /// Returns the charge, or `None` if nothing was charged.
    pub const fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// Returns the number of slots that were taken.
    pub fn slots(&self) -> usize {
        self.receipt.as_ref().map_or(0, Receipt::slots)
    }

    /// Releases the slots, and waits for the store.
    pub async fn release(mut self) -> Result<(), StoreError> {
        match &self.receipt {
            Some(receipt) => self.limiter.release_receipt(receipt).await?,
            None => return Ok(()),
        }
        self.receipt = None;
        Ok(())
    }

    /// Charges the actual cost of the request, in place of the estimate, and releases the slots.
    /// See [`Limiter::settle`].
    pub async fn settle(self, cost: u64) -> Result<(), StoreError> {
        if let Some(receipt) = &self.receipt {
            self.limiter.settle_receipt(receipt, cost).await?;
        }
        self.release().await
    }

    /// Refunds the charge and releases the slots, as if the request had not been made.
    pub async fn refund(mut self) -> Result<(), StoreError> {
        if let Some(receipt) = &self.receipt {
            self.limiter.refund_receipt(receipt).await?;
        }
        self.receipt = None;
        Ok(())
    }

    /// Keeps the slots until their leases end, for work whose end this process does not see.
    pub fn forget(mut self) {
        self.receipt = None;
    }
}

impl<C: Clock> Permit<MemoryStore<C>> {
    /// Settles as [`settle`](Self::settle) does, synchronously.
    pub fn settle_now(self, cost: u64) {
        let _done = self.receipt.as_ref().is_none_or(|it| self.limiter.try_settle_receipt(it, cost));
    }

    /// Refunds as [`refund`](Self::refund) does, synchronously.
    pub fn refund_now(mut self) {
        if let Some(receipt) = self.receipt.take() {
            let _done = self.limiter.try_refund_receipt(&receipt);
        }
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take().filter(|receipt| receipt.slots() > 0) else { return };
        if !self.limiter.try_release_receipt(&receipt) {
            self.limiter.release_later(&receipt);
        }
    }
}

impl<S: Store> fmt::Debug for Permit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("receipt", &self.receipt).finish_non_exhaustive()
    }
}
