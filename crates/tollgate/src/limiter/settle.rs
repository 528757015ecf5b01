//! Operations after an admitted request: final cost, refund, release of slots.
//!
//! The charge of a decision is in the store or, if the store gave no answer, on this node and in
//! the ledger until the store has been charged with it. A correction goes to wherever the charge
//! is. While a replayed charge is in progress, a refund may arrive before it and find nothing to
//! refund: the key then misses that refund.
//!
//! A correction that the store does not confirm is deferred ([`Limiter::reconcile`]), also if the
//! store may have applied it: the id of the decision and the index of the charge identify it, and
//! the store applies it once ([`Store::adjust_once`]). A caller may therefore repeat a call that
//! returned an error.

use tollgate_core::{Adjustment, Outcome, Overdraft, Quota, Rule, Timestamp};
use tollgate_policy::Key;
use tollgate_store::{AdjustmentId, Store, StoreError};

use super::Limiter;
use crate::decision::Decision;
use crate::id::DecisionId;
use crate::observer::Settlement;
use crate::outage::{Change, ChargeStatus};
use crate::receipt::{Charge, Receipt};

impl<S: Store> Limiter<S> {
    /// Refunds everything that a decision charged, as if the request had not been made.
    pub async fn refund(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.refund_receipt(&receipt).await,
            None => Ok(()),
        }
    }

    /// Charges the actual cost of a request, in place of the estimate. An excess is refunded; a
    /// shortfall is charged even if the units are not available, and repaid before the next request
    /// passes.
    ///
    /// If limits of the policy say `settle`, only those are settled: other limits, such as one that
    /// counts requests, keep their charge.
    ///
    /// Call it once per decision: each call applies the difference to the initial charge. If the
    /// store gives no answer, [`reconcile`](Self::reconcile) applies the change when it is back. An
    /// error means that it could not be kept for that either, because too many changes wait. It may
    /// then be settled again at the same cost, by one [receipt](Self::settle_receipt) with an id.
    pub async fn settle(&self, decision: &Decision<'_>, cost: u64) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.settle_receipt(&receipt, cost).await,
            None => Ok(()),
        }
    }

    /// Releases the slots of a decision when its request is done.
    pub async fn release(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.release_receipt(&receipt).await,
            None => Ok(()),
        }
    }

    /// Refunds as [`refund`](Self::refund) does, by receipt.
    pub async fn refund_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        let base = self.base_id(receipt);
        let mut refunded = Ok(());
        for (at, charge, rule) in receipt.units_in(&self.policy) {
            let refund = Adjustment::Refund { units: charge.units, taken_at: receipt.at };
            let of_this = self.correct(receipt.at, charge, rule, (refund, nth(base, at))).await;
            if of_this.is_ok() {
                self.notify_settled(receipt, charge, 0);
            }
            refunded = refunded.and(of_this);
        }
        refunded.and(self.release_receipt(receipt).await)
    }

    /// Settles as [`settle`](Self::settle) does, by receipt. Call it once: the keeper of the
    /// receipts tracks which are settled. Units that came back later are indistinguishable from the
    /// usage of other requests, so a second cost could not be corrected. If the store fails for one
    /// limit, the others are still settled; after an error, call it again with the same cost.
    pub async fn settle_receipt(&self, receipt: &Receipt, cost: u64) -> Result<(), StoreError> {
        let settles = |name: &str| self.policy.limit(name).is_some_and(|it| it.settle().is_some());
        let only_some = self.policy.settles() && receipt.limits().any(settles);
        self.settle_each(receipt, |limit| (!only_some || settles(limit)).then_some(cost)).await
    }

    /// Settles as [`settle_receipt`](Self::settle_receipt) does, per limit: `costs` are the names
    /// of limits with the cost for each. Limits that are not named keep their charge. If the store
    /// fails for one limit, the others are still settled.
    pub async fn settle_limits(&self, receipt: &Receipt, costs: &[(&str, u64)]) -> Result<(), StoreError> {
        let cost_of = |limit: &str| costs.iter().find(|(name, _)| *name == limit).map(|(_, cost)| *cost);
        self.settle_each(receipt, cost_of).await
    }

    /// Settles every charge that has a final cost, and returns the first error.
    async fn settle_each(
        &self,
        receipt: &Receipt,
        cost_of: impl Fn(&str) -> Option<u64>,
    ) -> Result<(), StoreError> {
        let base = self.base_id(receipt);
        let mut settled = Ok(());
        for (at, charge, rule) in receipt.units_in(&self.policy) {
            let Some(cost) = cost_of(charge.limit()).filter(|cost| *cost != charge.units) else { continue };
            let adjustment = if cost < charge.units {
                Adjustment::Refund { units: charge.units - cost, taken_at: receipt.at }
            } else {
                Adjustment::Charge { units: cost - charge.units, overdraft: Overdraft::OneCapacity }
            };
            let of_this = self.correct(receipt.at, charge, rule, (adjustment, nth(base, at))).await;
            if of_this.is_ok() {
                self.notify_settled(receipt, charge, cost);
            }
            settled = settled.and(of_this);
        }
        settled
    }

    /// Adjusts a key for which there is no receipt, such as a refund that names a key. Returns its
    /// state, or `None` if the store gave no answer and the change is deferred to
    /// [`reconcile`](Self::reconcile). Do not repeat it then.
    ///
    /// `limit` is the name of the limit of the rule.
    pub async fn adjust(
        &self,
        limit: &str,
        rule: &Rule,
        key: &Key,
        adjustment: Adjustment,
    ) -> Result<Option<Outcome>, StoreError> {
        let (id, taken_at) = (nth(self.outage.next_id(), 0), self.outage.now());
        self.adjust_or_defer(Change { limit, rule, key, adjustment, id, reserve: 0, taken_at }).await
    }

    /// Returns the id that the adjustments of a receipt have in common: that of the decision, or a
    /// new one.
    fn base_id(&self, receipt: &Receipt) -> DecisionId {
        receipt.id.unwrap_or_else(|| self.outage.next_id())
    }

    /// Notifies the observer of the final cost of a charge.
    pub(super) fn notify_settled(&self, receipt: &Receipt, charge: &Charge, cost: u64) {
        if let (Some(watched), Some(id)) = (&self.watched, receipt.id) {
            let (rule, key, reserved) = (charge.rule(), &charge.key, charge.units);
            watched.settled(&Settlement { id, rule, key, reserved, cost });
        }
    }

    /// Releases slots as [`release`](Self::release) does, by receipt. Idempotent.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        let Some(owner) = receipt.owner else { return Ok(()) };
        let release = Adjustment::Release { owner };
        let base = self.base_id(receipt);
        let mut released = Ok(());
        for (at, charge, rule) in receipt.slots_in(&self.policy) {
            let Some(in_outage) = &charge.in_outage else {
                let change = charge.change(receipt.at, rule, (release, nth(base, at)));
                released = released.and(self.adjust_or_defer(change).await.map(drop));
                continue;
            };
            self.outage.adjust_local(&in_outage.share, &charge.key, release);
            if in_outage.charge_status == ChargeStatus::Unknown {
                // The local slot is free. If the store holds one as well and does not answer now,
                // that slot ends with its lease.
                let _in_doubt = self.store.adjust(rule, charge.key.as_bytes(), release).await;
            }
        }
        released
    }

    /// Adjusts a key in the store, and returns its state. If the store does not confirm it, or if
    /// the caller stops waiting, the adjustment is deferred to [`reconcile`](Self::reconcile). An
    /// error means that it is not deferred: it was not applied, or may have been.
    async fn adjust_or_defer(&self, change: Change<'_>) -> Result<Option<Outcome>, StoreError> {
        if self.outage.is_breaker_open() && self.outage.defer(&change) {
            return Ok(None);
        }
        let Change { rule, key, adjustment, id, .. } = change;
        let pending = self.outage.start_change(change, self.store.recognizes_adjustments());
        match self.adjust_once(rule, key, adjustment, id).await {
            Ok(outcome) => {
                pending.finish();
                Ok(Some(outcome))
            }
            Err(error) => {
                if pending.failed(&error) {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
        }
    }

    /// Adjusts a key in the store, once. Releasing a slot is idempotent and needs no id.
    pub(super) async fn adjust_once(
        &self,
        rule: &Rule,
        key: &Key,
        adjustment: Adjustment,
        id: AdjustmentId,
    ) -> Result<Outcome, StoreError> {
        match adjustment {
            Adjustment::Release { .. } => self.store.adjust(rule, key.as_bytes(), adjustment).await,
            _ => self.store.adjust_once(rule, key.as_bytes(), adjustment, id).await,
        }
    }

    /// Adjusts a charge in the store, on this node or in the ledger, wherever it is.
    async fn correct(
        &self,
        at: Timestamp,
        charge: &Charge,
        rule: &Rule,
        (adjustment, id): (Adjustment, AdjustmentId),
    ) -> Result<(), StoreError> {
        let key = &charge.key;
        let Some(in_outage) = &charge.in_outage else {
            return self.adjust_or_defer(charge.change(at, rule, (adjustment, id))).await.map(drop);
        };
        let share = &in_outage.share;
        match (in_outage.record_id, adjustment) {
            (Some(record_id), _) => {
                if !self.outage.correct(share, key, record_id, adjustment) {
                    // The store has been charged with it since.
                    let adjustment = once_replayed(adjustment, rule, self.outage.now());
                    self.adjust_or_defer(charge.change(at, rule, (adjustment, id))).await?;
                }
            }
            (None, Adjustment::Charge { units: units @ 1.., .. }) => {
                self.outage.charge_later(share, key, units);
            }
            // It is not known whether the store was charged: nothing is refunded there.
            (None, _) => {}
        }
        // Last, because it cannot fail: a retry then applies no change twice.
        if in_outage.counted {
            self.outage.adjust_local(share, key, adjustment);
        }
        Ok(())
    }
}

/// Returns the id of the adjustment of one charge of a decision.
pub(super) const fn nth(base: DecisionId, at: usize) -> AdjustmentId {
    AdjustmentId((base.0 as u128) << 64 | at as u128)
}

/// Converts an adjustment of a replayed charge. The store recorded the charge at the time of the
/// replay, which the receipt does not know: the newest units that still count are refunded.
fn once_replayed(adjustment: Adjustment, rule: &Rule, now: Timestamp) -> Adjustment {
    match (adjustment, &rule.quota) {
        (
            Adjustment::Refund { units, taken_at },
            Quota::SlidingLog(_) | Quota::SlidingWindow(_) | Quota::SlidingParts(_),
        ) if taken_at + rule.quota.period() > now => Adjustment::Grant { units },
        _ => adjustment,
    }
}
