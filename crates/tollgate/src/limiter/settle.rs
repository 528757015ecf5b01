//! Operations after an admitted request: final cost, refund, release of slots.
//!
//! The charge of a decision is in the store or, if the store gave no answer, on this node and in
//! the ledger until the store has been charged with it. A correction goes to wherever the charge
//! is. While a replayed charge is in progress, a refund may arrive before it and find nothing to
//! refund: the key then misses that refund.

use std::cmp::Ordering;

use tollgate_core::{Adjustment, Overdraft, Quota, Rule, Timestamp};
use tollgate_store::{Store, StoreError};

use super::Limiter;
use crate::decision::Decision;
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
    /// store gives no answer, [`reconcile`](Self::reconcile) applies the change when it is back.
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
        for correction in self.refunds(receipt) {
            self.apply(receipt, &correction).await?;
        }
        Ok(())
    }

    /// Settles as [`settle`](Self::settle) does, by receipt. Call it once: the keeper of the
    /// receipts tracks which are settled. Units that came back later are indistinguishable from the
    /// usage of other requests, so a second cost could not be corrected.
    pub async fn settle_receipt(&self, receipt: &Receipt, cost: u64) -> Result<(), StoreError> {
        for correction in self.settlement(receipt, cost) {
            self.apply(receipt, &correction).await?;
        }
        Ok(())
    }

    /// Settles as [`settle_receipt`](Self::settle_receipt) does, per limit: `costs` are the names
    /// of limits with the cost for each. Limits that are not named keep their charge. If the store
    /// fails for one limit, the others are still settled.
    pub async fn settle_limits(&self, receipt: &Receipt, costs: &[(&str, u64)]) -> Result<(), StoreError> {
        let mut settled = Ok(());
        for correction in self.settlement_of_limits(receipt, costs) {
            let of_this = self.apply(receipt, &correction).await;
            settled = settled.and(of_this);
        }
        settled
    }

    /// Releases slots as [`release`](Self::release) does, by receipt. Idempotent.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        for correction in self.releases(receipt) {
            self.apply(receipt, &correction).await?;
        }
        Ok(())
    }

    /// Settles as [`settle_receipt`](Self::settle_receipt) does, if the store answers without
    /// waiting, as a store in memory always does. Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_settle_receipt(&self, receipt: &Receipt, cost: u64) -> bool {
        self.try_apply(receipt, self.settlement(receipt, cost))
    }

    /// Settles as [`settle_limits`](Self::settle_limits) does, if the store answers without waiting.
    /// Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_settle_limits(&self, receipt: &Receipt, costs: &[(&str, u64)]) -> bool {
        self.try_apply(receipt, self.settlement_of_limits(receipt, costs))
    }

    /// Releases as [`release_receipt`](Self::release_receipt) does, if the store answers without
    /// waiting. Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_release_receipt(&self, receipt: &Receipt) -> bool {
        self.try_apply(receipt, self.releases(receipt))
    }

    fn refunds<'r>(&'r self, receipt: &'r Receipt) -> impl Iterator<Item = Correction<'r>> {
        let units = receipt.units_in(&self.policy).map(|(charge, rule)| {
            let adjustment = Adjustment::Refund { units: charge.units, taken_at: receipt.at };
            Correction { charge, rule, adjustment, cost: Some(0) }
        });
        units.chain(self.releases(receipt))
    }

    fn releases<'r>(&'r self, receipt: &'r Receipt) -> impl Iterator<Item = Correction<'r>> {
        let slots = receipt.owner.map(|owner| (owner, receipt.slots_in(&self.policy)));
        slots.into_iter().flat_map(|(owner, slots)| {
            let adjustment = Adjustment::Release { owner };
            slots.map(move |(charge, rule)| Correction { charge, rule, adjustment, cost: None })
        })
    }

    /// The corrections to one cost for all limits, or for the limits that say `settle`.
    fn settlement<'r>(&'r self, receipt: &'r Receipt, cost: u64) -> impl Iterator<Item = Correction<'r>> {
        let settles = |name: &str| self.policy.limit(name).is_some_and(|it| it.settle().is_some());
        let only_some = self.policy.settles() && receipt.limits().any(settles);
        let charges = receipt.units_in(&self.policy);
        let charges = charges.filter(move |(charge, _)| !only_some || settles(charge.limit()));
        charges.filter_map(move |(charge, rule)| Correction::to_cost(receipt, charge, rule, cost))
    }

    fn settlement_of_limits<'r>(
        &'r self,
        receipt: &'r Receipt,
        costs: &'r [(&str, u64)],
    ) -> impl Iterator<Item = Correction<'r>> {
        receipt.units_in(&self.policy).filter_map(move |(charge, rule)| {
            let (_, cost) = costs.iter().find(|(name, _)| *name == charge.limit())?;
            Correction::to_cost(receipt, charge, rule, *cost)
        })
    }

    /// Makes a correction and notifies the observer.
    async fn apply(&self, receipt: &Receipt, correction: &Correction<'_>) -> Result<(), StoreError> {
        let Correction { charge, rule, adjustment, .. } = *correction;
        if matches!(adjustment, Adjustment::Release { .. }) {
            self.release_charge(receipt.at, charge, rule, adjustment).await?;
        } else {
            self.correct(receipt.at, charge, rule, adjustment).await?;
        }
        self.notify_settled(receipt, correction);
        Ok(())
    }

    /// Makes all corrections without waiting. Returns `false` if nothing was done: the store has to
    /// be awaited, or the charge is not in the store.
    fn try_apply<'r>(
        &'r self,
        receipt: &'r Receipt,
        corrections: impl Iterator<Item = Correction<'r>>,
    ) -> bool {
        if receipt.is_degraded() {
            return false;
        }
        for correction in corrections {
            let Correction { charge, rule, adjustment, .. } = correction;
            if self.store.try_adjust(rule, charge.key.as_bytes(), adjustment).is_none() {
                return false;
            }
            self.notify_settled(receipt, &correction);
        }
        true
    }

    /// Notifies the observer of the final cost of a charge.
    fn notify_settled(&self, receipt: &Receipt, correction: &Correction<'_>) {
        if let (Some(watched), Some(id), Some(cost)) = (&self.watched, receipt.id, correction.cost) {
            let charge = correction.charge;
            let (rule, key, reserved) = (charge.rule(), &charge.key, charge.units);
            watched.settled(&Settlement { id, rule, key, reserved, cost });
        }
    }

    async fn release_charge(
        &self,
        at: Timestamp,
        charge: &Charge,
        rule: &Rule,
        release: Adjustment,
    ) -> Result<(), StoreError> {
        let Some(in_outage) = &charge.in_outage else {
            return self.adjust_or_defer(at, charge, rule, release).await;
        };
        self.outage.adjust_local(&in_outage.share, &charge.key, release);
        if in_outage.charge_status == ChargeStatus::Unknown {
            // The local slot is free. If the store holds one as well and does not answer now, that
            // slot ends with its lease.
            let _in_doubt = self.store.adjust(rule, charge.key.as_bytes(), release).await;
        }
        Ok(())
    }

    /// Adjusts a key in the store. If the store gives no answer, the adjustment is deferred to
    /// [`reconcile`](Self::reconcile). An error means that it was not applied and not deferred, or
    /// may have been applied.
    async fn adjust_or_defer(
        &self,
        taken_at: Timestamp,
        charge: &Charge,
        rule: &Rule,
        adjustment: Adjustment,
    ) -> Result<(), StoreError> {
        let (limit, key, reserve) = (charge.limit(), &charge.key, charge.units);
        let change = Change { limit, rule, key, adjustment, reserve, taken_at };
        if self.outage.is_breaker_open() && self.outage.correct_later(&change, None) {
            return Ok(());
        }
        match self.store.adjust(rule, charge.key.as_bytes(), adjustment).await {
            Ok(_) => Ok(()),
            Err(error) if self.outage.correct_later(&change, Some(&error)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adjusts a charge in the store, on this node or in the ledger, wherever it is.
    async fn correct(
        &self,
        at: Timestamp,
        charge: &Charge,
        rule: &Rule,
        adjustment: Adjustment,
    ) -> Result<(), StoreError> {
        let key = &charge.key;
        let Some(in_outage) = &charge.in_outage else {
            return self.adjust_or_defer(at, charge, rule, adjustment).await;
        };
        let share = &in_outage.share;
        match (in_outage.record_id, adjustment) {
            (Some(record_id), _) => {
                if !self.outage.correct(share, key, record_id, adjustment) {
                    // The store has been charged with it since.
                    let adjustment = once_replayed(adjustment, rule, self.outage.now());
                    self.adjust_or_defer(at, charge, rule, adjustment).await?;
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

/// A change of one charge.
struct Correction<'r> {
    charge: &'r Charge,
    rule: &'r Rule,
    adjustment: Adjustment,
    /// The final cost, for the observer. A released slot has none.
    cost: Option<u64>,
}

impl<'r> Correction<'r> {
    /// Corrects a charge to its final cost. `None`: it was charged exactly.
    fn to_cost(receipt: &Receipt, charge: &'r Charge, rule: &'r Rule, cost: u64) -> Option<Self> {
        let adjustment = match cost.cmp(&charge.units) {
            Ordering::Equal => return None,
            Ordering::Less => Adjustment::Refund { units: charge.units - cost, taken_at: receipt.at },
            Ordering::Greater => {
                Adjustment::Charge { units: cost - charge.units, overdraft: Overdraft::OneCapacity }
            }
        };
        Some(Self { charge, rule, adjustment, cost: Some(cost) })
    }
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
