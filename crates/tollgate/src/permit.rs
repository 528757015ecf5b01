//! An admitted request, as a guard that releases its slots.
//!
//! A store in memory releases the slots in `drop`. A store that waits cannot: `drop` defers the
//! release, and [`Limiter::reconcile`] applies it, which a program on such a store calls every
//! second. [`Permit::release`] releases without that delay. A permit whose release is lost, because
//! its process ends, is bounded by the `ttl` of its slots.
//!
//! Under limits with a learned number of slots, the permit is the request in flight, and its life is the
//! measured latency.
//!
//! The slots are renewed while the permit exists (`renewals`), so that work that outlives the `ttl` is
//! still counted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_policy::Input;
use tollgate_store::{Clock, MemoryStore, Store, StoreError};

use crate::adaptive::{InFlight, RequestOutcome};
use crate::decision::Decision;
use crate::limiter::Limiter;
use crate::receipt::Receipt;
use crate::renewals::SlotRenewal;

/// An admitted request, whose slots are released when the permit is dropped.
///
/// It owns its data, so that it can move into the task that does the work. While it exists, its slots are
/// renewed, also beyond their `ttl` ([`Limiter::keep_slots`]).
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
    /// The request in flight under limits with a learned number of slots.
    in_flight: Option<Arc<InFlight>>,
    renewal: Option<SlotRenewal<S>>,
}

impl<S: Store> Limiter<S> {
    /// Decides about an input, and returns a permit that releases its slots when it is dropped. The
    /// error is the decision that refused.
    ///
    /// The future does not wait for room. A request that would have to wait in the queue of a limit is
    /// refused ([`acquire_when_ready`](Self::acquire_when_ready) waits). If the future is dropped before its end, no slot
    /// stays taken: the store takes back a slot that it was taking, or [`reconcile`](Self::reconcile)
    /// releases it.
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
    pub async fn acquire<I: Input + Sync>(&self, input: &I) -> Result<Permit<S>, Box<Decision<'_>>> {
        self.immediate_permit(self.decide(input).await)
    }

    /// Refuses a request that would have to wait, and releases its place.
    fn immediate_permit<'l>(&self, mut decision: Decision<'l>) -> Result<Permit<S>, Box<Decision<'l>>> {
        if let Some(place) = self.queue_place(&decision) {
            drop(place);
            decision.refuse_wait(Duration::ZERO);
        }
        self.permit(decision)
    }

    pub(crate) fn permit<'l>(&self, mut decision: Decision<'l>) -> Result<Permit<S>, Box<Decision<'l>>> {
        if !decision.is_allowed() {
            return Err(Box::new(decision));
        }
        let receipt = decision.receipt();
        Ok(Permit::new(self.clone(), receipt, decision.in_flight.take()))
    }
}

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Decides as [`acquire`](Self::acquire) does, synchronously.
    pub fn acquire_now<I: Input>(&self, input: &I) -> Result<Permit<MemoryStore<C>>, Box<Decision<'_>>> {
        self.immediate_permit(self.check(input))
    }
}

impl<S: Store> Permit<S> {
    pub(crate) fn new(
        limiter: Limiter<S>,
        receipt: Option<Receipt>,
        in_flight: Option<Arc<InFlight>>,
    ) -> Self {
        if let Some(in_flight) = &in_flight {
            in_flight.start();
        }
        let renewal = receipt.as_ref().and_then(|receipt| limiter.keep_slots(receipt));
        Self { limiter, receipt, in_flight, renewal }
    }

    /// Records how the work ended, for limits with a learned number of slots (`slots: adaptive`). They
    /// learn from the time since the permit was acquired, and only the first call counts. A permit that is
    /// dropped without this call counts as answered: call it with
    /// [`Failed`](RequestOutcome::Failed) if the service behind refused or timed out, and with
    /// [`Ignored`](RequestOutcome::Ignored) for work that did not reach it.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter, RequestOutcome};
    /// # fn query() -> Result<(), ()> { Ok(()) }
    /// let limiter = Limiter::from_policy("limits: [{name: database, by: global, slots: adaptive}]")?;
    /// let permit = limiter.acquire_now(&Call::new("GET", "/")).expect("20 slots before it has learned");
    /// if query().is_err() {
    ///     permit.complete(RequestOutcome::Failed);
    /// }
    /// assert_eq!(limiter.adaptive_views(1)[0].in_flight, 1);
    /// drop(permit);
    /// assert_eq!(limiter.adaptive_views(1)[0].in_flight, 0);
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn complete(&self, outcome: RequestOutcome) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.complete(outcome);
        }
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
        self.complete(RequestOutcome::Ignored);
        if let Some(receipt) = &self.receipt {
            self.limiter.refund_receipt(receipt).await?;
        }
        self.receipt = None;
        Ok(())
    }

    /// Keeps the slots until their leases end, for work whose end this process does not see.
    pub fn forget(mut self) {
        self.in_flight = None;
        self.receipt = None;
        self.renewal = None;
    }
}

impl<C: Clock> Permit<MemoryStore<C>> {
    /// Settles as [`settle`](Self::settle) does, synchronously.
    pub fn settle_now(self, cost: u64) {
        let _done = self.receipt.as_ref().is_none_or(|it| self.limiter.try_settle_receipt(it, cost));
    }

    /// Refunds as [`refund`](Self::refund) does, synchronously.
    pub fn refund_now(mut self) {
        self.complete(RequestOutcome::Ignored);
        if let Some(receipt) = self.receipt.take() {
            let _done = self.limiter.try_refund_receipt(&receipt);
        }
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        self.complete(RequestOutcome::Answered);
        self.renewal = None;
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
