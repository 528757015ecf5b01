//! Operations after a request on a store that answers without waiting, as the store in memory does.
//!
//! The same operations on any store are in `settle`.

use tollgate_core::{Adjustment, Overdraft};
use tollgate_store::{Clock, MemoryStore, Store};

use super::Limiter;
use crate::decision::Decision;
use crate::outage::{Change, ChargeStatus};
use crate::receipt::{Charge, Receipt};

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

impl<S: Store> Limiter<S> {
    /// Refunds as [`refund_receipt`](Self::refund_receipt) does, if the store answers without
    /// waiting. Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_refund_receipt(&self, receipt: &Receipt) -> bool {
        self.try_settle_charges(receipt, 0, |_| true) && self.try_release_receipt(receipt)
    }

    /// Settles as [`settle_receipt`](Self::settle_receipt) does, if the store answers without
    /// waiting. Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_settle_receipt(&self, receipt: &Receipt, cost: u64) -> bool {
        let settles = |name: &str| self.policy.limit(name).is_some_and(|it| it.settle().is_some());
        let only_some = self.policy.settles() && receipt.limits().any(settles);
        self.try_settle_charges(receipt, cost, |charge| !only_some || settles(charge.limit()))
    }

    /// Releases as [`release_receipt`](Self::release_receipt) does, if the store answers without
    /// waiting. Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_release_receipt(&self, receipt: &Receipt) -> bool {
        let Some(owner) = receipt.owner else { return true };
        let release = Adjustment::Release { owner };
        receipt.slots_in(&self.policy).all(|(charge, rule)| {
            let in_store = charge.in_outage.is_none();
            in_store && self.store.try_adjust(rule, charge.key.as_bytes(), release).is_some()
        })
    }

    /// Releases as [`release_receipt`](Self::release_receipt) does, at the next
    /// [`reconcile`](Self::reconcile).
    pub(crate) fn release_later(&self, receipt: &Receipt) {
        let Some(owner) = receipt.owner else { return };
        let adjustment = Adjustment::Release { owner };
        for (charge, rule) in receipt.slots_in(&self.policy) {
            if let Some(in_outage) = &charge.in_outage {
                self.outage.adjust_local(&in_outage.share, &charge.key, adjustment);
                if in_outage.charge_status == ChargeStatus::NotCharged {
                    continue;
                }
            }
            let (limit, key, reserve, taken_at) = (charge.limit(), &charge.key, charge.units, receipt.at);
            let change = Change { limit, rule, key, adjustment, reserve, taken_at };
            // A release that finds no room is counted as lost; the slot ends with its lease.
            let _kept = self.outage.correct_later(&change, None);
        }
    }

    fn try_settle_charges(&self, receipt: &Receipt, cost: u64, settles: impl Fn(&Charge) -> bool) -> bool {
        receipt.units_in(&self.policy).filter(|(charge, _)| settles(charge)).all(|(charge, rule)| {
            let adjustment = if cost <= charge.units {
                Adjustment::Refund { units: charge.units - cost, taken_at: receipt.at }
            } else {
                Adjustment::Charge { units: cost - charge.units, overdraft: Overdraft::OneCapacity }
            };
            let in_store = charge.in_outage.is_none();
            let done = in_store && self.store.try_adjust(rule, charge.key.as_bytes(), adjustment).is_some();
            if done && cost != charge.units {
                self.notify_settled(receipt, charge, cost);
            }
            done
        })
    }
}
