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

use std::cmp::Ordering;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, ChargeTimes, Outcome, Overdraft, Quota, Rule, RuleId, Timestamp};
use tollgate_policy::Key;
use tollgate_store::{AdjustmentId, Repeatable, Store, StoreError};

use super::Limiter;
use crate::decision::Decision;
use crate::id::DecisionId;
use crate::observer::Settlement;
use crate::outage::{Change, ChargeStatus};
use crate::receipt::{Charge, OutageCharge, Receipt};

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
        self.apply(receipt, self.refunds(receipt)).await
    }

    /// Settles as [`settle`](Self::settle) does, by receipt. Call it once: the keeper of the
    /// receipts tracks which are settled. Units that came back later are indistinguishable from the
    /// usage of other requests, so a second cost could not be corrected. If the store fails for one
    /// limit, the others are still settled; after an error, call it again with the same cost.
    pub async fn settle_receipt(&self, receipt: &Receipt, cost: u64) -> Result<(), StoreError> {
        self.apply(receipt, self.settlement(receipt, cost)).await
    }

    /// Settles as [`settle_receipt`](Self::settle_receipt) does, per limit: `costs` are the names
    /// of limits with the cost for each. Limits that are not named keep their charge. If the store
    /// fails for one limit, the others are still settled.
    pub async fn settle_limits(&self, receipt: &Receipt, costs: &[(&str, u64)]) -> Result<(), StoreError> {
        self.apply(receipt, self.settlement_of_limits(receipt, costs)).await
    }

    /// Releases slots as [`release`](Self::release) does, by receipt. Idempotent.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        self.apply(receipt, self.releases(receipt)).await
    }

    /// Refunds as [`refund_receipt`](Self::refund_receipt) does, if the store answers without
    /// waiting, as a store in memory always does. Returns `false` if nothing was done.
    #[must_use = "`false` means that nothing was done"]
    pub fn try_refund_receipt(&self, receipt: &Receipt) -> bool {
        self.try_apply(receipt, self.refunds(receipt))
    }

    /// Settles as [`settle_receipt`](Self::settle_receipt) does, if the store answers without
    /// waiting. Returns `false` if nothing was done.
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

    /// Refunds as [`refund_receipt`](Self::refund_receipt) does, at the next
    /// [`reconcile`](Self::reconcile).
    pub(crate) fn refund_later(&self, receipt: &Receipt) {
        drop(self.unfinished(receipt, self.refunds(receipt)));
    }

    fn refunds<'r>(&'r self, receipt: &'r Receipt) -> impl Iterator<Item = Correction<'r>> {
        self.unit_refunds(receipt).chain(self.releases(receipt))
    }

    /// The corrections to one cost for all limits, or for the limits that say `settle`.
    fn settlement<'r>(&'r self, receipt: &'r Receipt, cost: u64) -> impl Iterator<Item = Correction<'r>> {
        let settles = |name: &str| self.policy.limit(name).is_some_and(|it| it.settle().is_some());
        let only_some = self.policy.settles() && receipt.limits().any(settles);
        let charges = receipt.units_in(&self.policy);
        let charges = charges.filter(move |(_, charge, _)| !only_some || settles(charge.limit()));
        charges.filter_map(move |charge| Correction::to_cost(receipt, charge, cost))
    }

    fn settlement_of_limits<'r>(
        &'r self,
        receipt: &'r Receipt,
        costs: &'r [(&str, u64)],
    ) -> impl Iterator<Item = Correction<'r>> {
        receipt.units_in(&self.policy).filter_map(move |charge| {
            let (_, cost) = costs.iter().find(|(name, _)| *name == charge.1.limit())?;
            Correction::to_cost(receipt, charge, *cost)
        })
    }

    /// Makes all corrections, notifies the observer of each, and returns the first error.
    ///
    /// If the caller stops waiting, the corrections that are left are deferred. Charges of this node
    /// have no id, so they are corrected last and not after an error: a repetition then corrects
    /// them once.
    async fn apply<'r>(
        &'r self,
        receipt: &'r Receipt,
        corrections: impl Iterator<Item = Correction<'r>>,
    ) -> Result<(), StoreError> {
        let mut unfinished = self.unfinished(receipt, corrections);
        let base = unfinished.base;
        let mut applied = Ok(());
        for correction in unfinished.in_store.by_ref() {
            let change = self.store_change(receipt, base, &correction);
            let of_this = self.adjust_or_defer(change).await;
            if let Ok(outcome) = &of_this {
                self.finish_correction(receipt, &correction);
                if let Some(outcome) = outcome {
                    self.refund_left_places(&change, outcome).await;
                }
            }
            applied = applied.and(of_this.map(drop));
        }
        if applied.is_err() {
            unfinished.local.retain(|it| matches!(it.adjustment, Adjustment::Release { .. }));
        }
        applied
    }

    /// Collects corrections that are deferred, or made on this node, when they are dropped.
    fn unfinished<'r>(
        &'r self,
        receipt: &'r Receipt,
        corrections: impl Iterator<Item = Correction<'r>>,
    ) -> UnfinishedSettlement<'r, S> {
        let (local, in_store): (SmallVec<_>, SmallVec<_>) =
            corrections.partition(|it| self.is_local(it.charge));
        let base = self.base_id(receipt);
        UnfinishedSettlement { limiter: self, receipt, base, in_store: in_store.into_iter(), local }
    }

    /// Whether a charge is on this node only: counted in an outage, and not yet in the store.
    fn is_local(&self, charge: &Charge) -> bool {
        charge.in_outage.as_ref().is_some_and(|in_outage| {
            if charge.is_slot {
                return in_outage.charge_status == ChargeStatus::NotCharged;
            }
            let is_recorded = |id| self.outage.is_recorded(&in_outage.share, &charge.key, id);
            in_outage.record_id.is_none_or(is_recorded)
        })
    }

    /// Returns the change in the store that makes a correction.
    fn store_change<'r>(
        &self,
        receipt: &Receipt,
        base: DecisionId,
        correction: &Correction<'r>,
    ) -> Change<'r> {
        let Correction { at, charge, rule, adjustment, .. } = *correction;
        let is_replayed = charge.in_outage.is_some();
        let adjustment =
            if is_replayed { once_replayed(adjustment, rule, self.outage.now()) } else { adjustment };
        charge.change(receipt.at, rule, (adjustment, nth(base, at)))
    }

    /// Completes a correction that the store has made or will make.
    fn finish_correction(&self, receipt: &Receipt, correction: &Correction<'_>) {
        let Correction { charge, rule, adjustment, .. } = *correction;
        let is_here = |it: &&OutageCharge| it.counted || charge.is_slot;
        if let Some(in_outage) = charge.in_outage.as_deref().filter(is_here) {
            // Units are corrected under the rule in force, as in the store. A state of the share before a reload may have
            // expired: a charge would begin it anew, without the usage since, and a raised share would be relieved to it.
            let present = (!charge.is_slot)
                .then(|| self.outage.share_of_rule(charge.limit(), rule, self.store.nodes()));
            let share = present.as_ref().unwrap_or(&in_outage.share);
            self.outage.adjust_local(share, &charge.key, adjustment);
            self.wake_line(charge.rule(), &charge.key, adjustment);
        }
        self.notify_settled(receipt, correction);
    }

    /// Corrects a charge of this node.
    fn correct_local(&self, receipt: &Receipt, base: DecisionId, correction: &Correction<'_>) {
        let Correction { charge, adjustment, .. } = *correction;
        let Some(in_outage) = &charge.in_outage else { return };
        let (share, key) = (&in_outage.share, &charge.key);
        match (in_outage.record_id, adjustment) {
            (_, Adjustment::Release { .. }) => {}
            (Some(record_id), _) => {
                if !self.outage.correct(share, key, record_id, adjustment) {
                    // The store has been charged with it since.
                    self.outage.defer_or_lose(&self.store_change(receipt, base, correction));
                }
            }
            (None, Adjustment::Charge { units: units @ 1.., .. }) => {
                self.outage.charge_later(share, key, units);
            }
            // It is not known whether the store was charged: nothing is refunded there.
            (None, _) => {}
        }
        self.finish_correction(receipt, correction);
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
            let Some(outcome) = self.store.try_adjust(rule, charge.key.as_bytes(), adjustment) else {
                return false;
            };
            self.try_refund_left_places((rule, &charge.key), adjustment, &outcome);
            self.wake_line(rule.id, &charge.key, adjustment);
            self.notify_settled(receipt, &correction);
        }
        true
    }

    /// Adjusts a key for which there is no receipt. Returns its state, or `None` if the store gave no
    /// answer and the change is deferred to [`reconcile`](Self::reconcile). `limit` is the name of
    /// the limit of the rule.
    pub(super) async fn adjust_key(
        &self,
        limit: &str,
        rule: &Rule,
        key: &Key,
        adjustment: Adjustment,
    ) -> Result<Option<Outcome>, StoreError> {
        let (id, taken_at) = (nth(self.outage.next_id(), 0), self.outage.now());
        self.adjust_or_defer(Change { limit, rule, key, adjustment, id, reserve: 0, taken_at }).await
    }

    /// Returns whether the store applies a repeated settlement once, so that a caller may repeat one
    /// whose result is unknown.
    pub fn recognizes_repetitions(&self) -> bool {
        self.store.recognizes_adjustments()
    }

    /// Notifies the observer of the final cost of a charge.
    fn notify_settled(&self, receipt: &Receipt, correction: &Correction<'_>) {
        if let (Some(watched), Some(id), Some(cost)) = (&self.watched, receipt.id, correction.cost) {
            let charge = correction.charge;
            let (rule, key, reserved) = (charge.rule(), &charge.key, charge.units);
            let (limit, queued) = (charge.limit(), charge.queued(receipt.at));
            watched.settled(&Settlement { id, rule, key, reserved, cost, limit, queued });
        }
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
        match self.adjust_in_time(self.adjust_once(rule, key, adjustment, id)).await {
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
        let adjusted = match adjustment {
            Adjustment::Release { .. } => self.store.adjust(rule, key.as_bytes(), adjustment).await,
            _ => self.store.adjust_once(rule, key.as_bytes(), Repeatable::new(adjustment, id)).await,
        };
        // Also after an error: the store may have released the slot.
        self.wake_line(rule.id, key, adjustment);
        adjusted
    }
}

impl<S> Limiter<S> {
    /// Releases the slots of a request at the next [`reconcile`](Self::reconcile), and refunds all
    /// charges if the request waits in a queue. The store made the decision.
    pub(crate) fn abandon_later(&self, receipt: &Receipt, is_queued: bool) {
        if is_queued {
            let base = self.base_id(receipt);
            for Correction { at, charge, rule, adjustment, .. } in self.unit_refunds(receipt) {
                self.outage.defer_or_lose(&charge.change(receipt.at, rule, (adjustment, nth(base, at))));
            }
        }
        self.release_later(receipt);
    }

    /// Releases as [`release_receipt`](Self::release_receipt) does, at the next
    /// [`reconcile`](Self::reconcile).
    pub(crate) fn release_later(&self, receipt: &Receipt) {
        let base = self.base_id(receipt);
        for Correction { at, charge, rule, adjustment, .. } in self.releases(receipt) {
            if let Some(in_outage) = &charge.in_outage {
                self.outage.adjust_local(&in_outage.share, &charge.key, adjustment);
                self.wake_line(charge.rule(), &charge.key, adjustment);
                if in_outage.charge_status == ChargeStatus::NotCharged {
                    continue;
                }
            }
            // Without room for the release, it counts as lost, and the slot is freed when its lease ends.
            self.outage.defer_or_lose(&charge.change(receipt.at, rule, (adjustment, nth(base, at))));
        }
    }

    /// Wakes the next request that waits for a slot, after one was released.
    #[inline]
    pub(super) fn wake_line(&self, rule: RuleId, key: &Key, adjustment: Adjustment) {
        if matches!(
            adjustment,
            Adjustment::Release { .. } | Adjustment::ReleaseOldest { .. } | Adjustment::Reset
        ) {
            self.lines.released(rule, key);
        }
    }

    /// The refunds of all charged units, the last charge first: a queue takes back only its last place,
    /// and a request may have several places of one key.
    fn unit_refunds<'r>(&'r self, receipt: &'r Receipt) -> impl Iterator<Item = Correction<'r>> {
        receipt.units_in(&self.policy).rev().map(|(at, charge, rule)| {
            let adjustment = Adjustment::Refund { units: charge.units, charge: charge.times(receipt.at) };
            Correction { at, charge, rule, adjustment, cost: Some(0) }
        })
    }

    fn releases<'r>(&'r self, receipt: &'r Receipt) -> impl Iterator<Item = Correction<'r>> {
        let slots = receipt.owner.map(|owner| (owner, receipt.slots_in(&self.policy)));
        slots.into_iter().flat_map(|(owner, slots)| {
            let adjustment = Adjustment::Release { owner };
            slots.map(move |(at, charge, rule)| Correction { at, charge, rule, adjustment, cost: None })
        })
    }

    /// Returns the id that the adjustments of a receipt have in common: that of the decision, or a
    /// new one.
    fn base_id(&self, receipt: &Receipt) -> DecisionId {
        receipt.id.unwrap_or_else(|| *receipt.own_id.get_or_init(|| self.outage.next_id()))
    }
}

/// A change of one charge.
struct Correction<'r> {
    /// The index of the charge in its receipt.
    at: usize,
    charge: &'r Charge,
    rule: &'r Rule,
    adjustment: Adjustment,
    /// The final cost, for the observer. A released slot has none.
    cost: Option<u64>,
}

impl<'r> Correction<'r> {
    /// Corrects a charge to its final cost. `None`: it was charged exactly.
    fn to_cost(
        receipt: &Receipt,
        (at, charge, rule): (usize, &'r Charge, &'r Rule),
        cost: u64,
    ) -> Option<Self> {
        let adjustment = match cost.cmp(&charge.units) {
            Ordering::Equal => return None,
            Ordering::Less => {
                Adjustment::Refund { units: charge.units - cost, charge: charge.times(receipt.at) }
            }
            Ordering::Greater => {
                Adjustment::Charge { units: cost - charge.units, overdraft: Overdraft::OneCapacity }
            }
        };
        Some(Self { at, charge, rule, adjustment, cost: Some(cost) })
    }
}

/// The corrections of a receipt that are not made yet. When dropped, those in the store are deferred,
/// and those on this node are made.
struct UnfinishedSettlement<'r, S: Store> {
    limiter: &'r Limiter<S>,
    receipt: &'r Receipt,
    base: DecisionId,
    in_store: smallvec::IntoIter<[Correction<'r>; 4]>,
    local: SmallVec<[Correction<'r>; 4]>,
}

impl<S: Store> Drop for UnfinishedSettlement<'_, S> {
    fn drop(&mut self) {
        let Self { limiter, receipt, base, in_store, local } = self;
        for correction in in_store {
            limiter.outage.defer_or_lose(&limiter.store_change(receipt, *base, &correction));
            limiter.finish_correction(receipt, &correction);
        }
        for correction in local.drain(..) {
            limiter.correct_local(receipt, *base, &correction);
        }
    }
}

/// Returns the id of the adjustment of one charge of a decision.
pub(super) const fn nth(base: DecisionId, at: usize) -> AdjustmentId {
    AdjustmentId((base.0 as u128) << 64 | at as u128)
}

/// Converts an adjustment of a replayed charge. The store recorded the charge at the time of the
/// replay, which the receipt does not know: the newest units that still count are refunded. Its place
/// in a queue is not known either and passes unused.
fn once_replayed(adjustment: Adjustment, rule: &Rule, now: Timestamp) -> Adjustment {
    match (adjustment, &rule.quota) {
        (
            Adjustment::Refund { units, charge },
            Quota::SlidingLog(_) | Quota::SlidingWindow(_) | Quota::SlidingParts(_),
        ) if charge.at + rule.quota.period() > now => Adjustment::Grant { units },
        (Adjustment::Refund { units, charge }, _) => {
            Adjustment::Refund { units, charge: ChargeTimes::without_end(charge.at) }
        }
        _ => adjustment,
    }
}
