//! What comes after an admitted request: its final cost, its slots, its undoing.
//!
//! What a decision charged is in the store, or, if the store gave no answer then, on
//! this node and in the ledger until the store has been charged with it. It is
//! corrected where it is. Between the two, while the charge is under way, a refund may
//! come before it and find nothing to give back: the key is then short of that refund.

use tollgate_core::{Adjustment, Overdraft, Quota, Rule, Timestamp};
use tollgate_store::{Store, StoreError};

use super::Limiter;
use crate::decision::Decision;
use crate::observer::Settlement;
use crate::outage::{Change, ChargeStatus};
use crate::receipt::{Charge, Receipt};

impl<S: Store> Limiter<S> {
    /// Gives back all that a decision charged, as if the request had not been made.
    pub async fn refund(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.refund_receipt(&receipt).await,
            None => Ok(()),
        }
    }

    /// Charges what a request turned out to cost, instead of what was charged
    /// before it ran. What was too much is given back; what was too little is
    /// charged even if it is not there, and repaid before the next request passes.
    ///
    /// Where limits say `settle` in the policy, it is the cost of those: limits beside them
    /// that say nothing, such as one that counts requests, keep what they were charged.
    ///
    /// Once for each decision: the difference to what was charged before it ran is
    /// taken each time. A store that gives no answer is told by [`reconcile`](Self::reconcile), when it is back.
    pub async fn settle(&self, decision: &Decision<'_>, cost: u64) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.settle_receipt(&receipt, cost).await,
            None => Ok(()),
        }
    }

    /// Frees the slots that a decision took, once its request is done.
    pub async fn release(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.release_receipt(&receipt).await,
            None => Ok(()),
        }
    }

    /// As [`refund`](Self::refund), of a decision that is gone.
    pub async fn refund_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        for (charge, rule) in receipt.units_in(&self.policy) {
            let adjustment = Adjustment::Refund { units: charge.units, taken_at: receipt.at };
            self.correct(receipt.at, charge, rule, adjustment).await?;
            self.notify_settled(receipt, charge, 0);
        }
        self.release_receipt(receipt).await
    }

    /// As [`settle`](Self::settle), of a decision that is gone. Once, too: whoever keeps
    /// receipts remembers which are settled. What came back later cannot be told apart
    /// from what others spent since, so a second cost could not be put right.
    pub async fn settle_receipt(&self, receipt: &Receipt, cost: u64) -> Result<(), StoreError> {
        let settles = |name: &str| self.policy.limit(name).is_some_and(|it| it.settle().is_some());
        let only_some = self.policy.settles() && receipt.limits().any(settles);
        for (charge, rule) in receipt.units_in(&self.policy) {
            if !only_some || settles(charge.limit()) {
                self.settle_charge(receipt, charge, rule, cost).await?;
            }
        }
        Ok(())
    }

    /// As [`settle_receipt`](Self::settle_receipt), limit by limit: `costs` are names of limits
    /// and what the request cost each. Limits that are not named keep what they were charged.
    /// Where the store fails for one, the others are settled all the same.
    pub async fn settle_limits(&self, receipt: &Receipt, costs: &[(&str, u64)]) -> Result<(), StoreError> {
        let mut settled = Ok(());
        for (charge, rule) in receipt.units_in(&self.policy) {
            if let Some((_, cost)) = costs.iter().find(|(name, _)| *name == charge.limit()) {
                let of_this = self.settle_charge(receipt, charge, rule, *cost).await;
                settled = settled.and(of_this);
            }
        }
        settled
    }

    /// Puts what was charged right, and tells the observer.
    async fn settle_charge(
        &self,
        receipt: &Receipt,
        charge: &Charge,
        rule: &Rule,
        cost: u64,
    ) -> Result<(), StoreError> {
        if cost == charge.units {
            return Ok(());
        }
        let adjustment = if cost < charge.units {
            Adjustment::Refund { units: charge.units - cost, taken_at: receipt.at }
        } else {
            Adjustment::Charge { units: cost - charge.units, overdraft: Overdraft::OneCapacity }
        };
        self.correct(receipt.at, charge, rule, adjustment).await?;
        self.notify_settled(receipt, charge, cost);
        Ok(())
    }

    /// Tells the observer what a charge cost in the end.
    fn notify_settled(&self, receipt: &Receipt, charge: &Charge, cost: u64) {
        if let (Some(watched), Some(id)) = (&self.watched, receipt.id) {
            let (rule, key, reserved) = (charge.rule(), &charge.key, charge.units);
            watched.settled(&Settlement { id, rule, key, reserved, cost });
        }
    }

    /// As [`release`](Self::release), of a decision that is gone. Doing so twice does no harm.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        let Some(owner) = receipt.owner else { return Ok(()) };
        let release = Adjustment::Release { owner };
        for (charge, rule) in receipt.slots_in(&self.policy) {
            let Some(synonyms) = &charge.synonyms else {
                self.adjust_or_defer(receipt.at, charge, rule, release).await?;
                continue;
            };
            self.outage.adjust_local(&synonyms.share, &charge.key, release);
            if synonyms.landed == ChargeStatus::Perhaps {
                // The slot that was told of is free. If the store holds one as well and
                // does not answer now, that one ends with its lease.
                let _in_doubt = self.store.adjust(rule, charge.key.as_bytes(), release).await;
            }
        }
        Ok(())
    }

    /// Changes a key in the store. While the store gives no answer, the change is kept and made by
    /// [`reconcile`](Self::reconcile). An error: it is neither made nor kept, or may have been made.
    async fn adjust_or_defer(
        &self,
        taken_at: Timestamp,
        charge: &Charge,
        rule: &Rule,
        adjustment: Adjustment,
    ) -> Result<(), StoreError> {
        let (limit, key, reserve) = (charge.limit(), &charge.key, charge.units);
        let change = Change { limit, rule, key, adjustment, reserve, taken_at };
        if self.outage.is_left_alone() && self.outage.correct_later(&change, None) {
            return Ok(());
        }
        match self.store.adjust(rule, charge.key.as_bytes(), adjustment).await {
            Ok(_) => Ok(()),
            Err(error) if self.outage.correct_later(&change, Some(&error)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Changes what a request was charged, wherever that is now.
    async fn correct(
        &self,
        at: Timestamp,
        charge: &Charge,
        rule: &Rule,
        adjustment: Adjustment,
    ) -> Result<(), StoreError> {
        let key = &charge.key;
        let Some(synonyms) = &charge.synonyms else {
            return self.adjust_or_defer(at, charge, rule, adjustment).await;
        };
        let share = &synonyms.share;
        match (synonyms.writing, adjustment) {
            (Some(writing), _) => {
                if !self.outage.correct(share, key, writing, adjustment) {
                    // The store has been charged with it by now.
                    let adjustment = once_replayed(adjustment, rule, self.outage.now());
                    self.adjust_or_defer(at, charge, rule, adjustment).await?;
                }
            }
            (None, Adjustment::Charge { units: units @ 1.., .. }) => {
                self.outage.charge_later(share, key, units);
            }
            // Whether the store was ever charged is not known: it gives nothing back.
            (None, _) => {}
        }
        // Last, since it cannot fail: whoever tries again changes nothing twice.
        if synonyms.counted {
            self.outage.adjust_local(share, key, adjustment);
        }
        Ok(())
    }
}

/// What was charged to the store after an outage is filed there under the time of that
/// charge, which a receipt does not know: of what still counts, the newest is given back.
fn once_replayed(adjustment: Adjustment, rule: &Rule, now: Timestamp) -> Adjustment {
    match (adjustment, &rule.quota) {
        (
            Adjustment::Refund { units, taken_at },
            Quota::SlidingLog(_) | Quota::SlidingWindow(_) | Quota::SlidingParts(_),
        ) if taken_at + rule.quota.period() > now => Adjustment::Grant { units },
        _ => adjustment,
    }
}
