//! Synchronous operations after a request, on the store in memory.
//!
//! The same operations on any store are in `settle`.

use tollgate_store::{Clock, MemoryStore};

use super::Limiter;
use crate::decision::Decision;

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Refunds as [`refund`](Self::refund) does, synchronously.
    pub fn refund_now(&self, decision: &Decision<'_>) {
        let _done = decision.receipt().is_none_or(|receipt| self.try_refund_receipt(&receipt));
    }

    /// Settles as [`settle`](Self::settle) does, synchronously.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// let limiter = Limiter::from_policy("limits: [{by: user, bucket: 1000/minute}]")?;
    /// let call = Call::new("POST", "/chat").user("ann").cost(500);
    /// let decision = limiter.check(&call);
    /// limiter.settle_now(&decision, 120);
    /// let next = limiter.check(&Call::new("POST", "/chat").user("ann"));
    /// assert_eq!(next.limiting().map(|limit| limit.remaining()), Some(879));
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn settle_now(&self, decision: &Decision<'_>, cost: u64) {
        let _done = decision.receipt().is_none_or(|receipt| self.try_settle_receipt(&receipt, cost));
    }

    /// Releases slots as [`release`](Self::release) does, synchronously.
    pub fn release_now(&self, decision: &Decision<'_>) {
        let _done = decision.receipt().is_none_or(|receipt| self.try_release_receipt(&receipt));
    }
}
