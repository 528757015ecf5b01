//! Renewal of slots: starts their leases again.
//!
//! A renewal never takes a slot. One that comes after the release, or after the end of the lease,
//! changes nothing, so it needs no order and is not repeated after an outage.
//!
//! Renewing while a request runs is in `renewals`.

use tollgate_core::{Adjustment, Outcome, Owner, Rule};
use tollgate_policy::Key;
use tollgate_store::{Store, StoreError};

use super::Limiter;
use crate::decision::Decision;
use crate::outage::ChargeStatus;
use crate::receipt::{Charge, Receipt};

impl<S: Store> Limiter<S> {
    /// Starts the leases of the slots of a decision again, and returns the number of slots that it still
    /// holds.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: user, slots: 1, ttl: 30s}]").unwrap();
    /// let decision = limiter.decide(&Call::new("POST", "/report").user("ann")).await;
    /// assert_eq!(limiter.renew(&decision).await.unwrap(), 1);
    /// limiter.release(&decision).await.unwrap();
    /// assert_eq!(limiter.renew(&decision).await.unwrap(), 0);
    /// # });
    /// ```
    pub async fn renew(&self, decision: &Decision<'_>) -> Result<usize, StoreError> {
        match decision.receipt() {
            Some(receipt) => self.renew_receipt(&receipt).await,
            None => Ok(0),
        }
    }

    /// Renews slots as [`renew`](Self::renew) does, by receipt.
    pub async fn renew_receipt(&self, receipt: &Receipt) -> Result<usize, StoreError> {
        let mut held = 0;
        for (charge, rule, owner) in self.held_slots(receipt) {
            held += usize::from(match self.renew_local(charge, owner) {
                Some(is_held) => is_held,
                None => self.renew_slot(rule, &charge.key, owner).await?,
            });
        }
        Ok(held)
    }

    /// Renews as [`renew_receipt`](Self::renew_receipt) does, if the store answers without waiting.
    pub fn try_renew_receipt(&self, receipt: &Receipt) -> Option<usize> {
        let mut held = 0;
        for (charge, rule, owner) in self.held_slots(receipt) {
            let adjustment = Adjustment::Renew { owner };
            held += usize::from(match self.renew_local(charge, owner) {
                Some(is_held) => is_held,
                None => is_held(&self.store.try_adjust(rule, charge.key.as_bytes(), adjustment)?),
            });
        }
        Some(held)
    }

    /// Starts the lease of an owner again. Returns whether it still holds a slot.
    pub async fn renew_slot(&self, rule: &Rule, key: &Key, owner: Owner) -> Result<bool, StoreError> {
        let outcome = self.adjust_now(rule, key, Adjustment::Renew { owner }).await?;
        Ok(is_held(&outcome))
    }

    fn held_slots<'r>(&'r self, receipt: &'r Receipt) -> impl Iterator<Item = (&'r Charge, &'r Rule, Owner)> {
        let slots = receipt.owner.map(|owner| (owner, receipt.slots_in(&self.policy)));
        slots.into_iter().flat_map(|(owner, slots)| {
            let held = slots.filter(|(_, charge, _)| charge.units > 0);
            held.map(move |(_, charge, rule)| (charge, rule, owner))
        })
    }

    /// Renews a slot that this node granted while the store gave no answer. `None`: it is in the store.
    fn renew_local(&self, charge: &Charge, owner: Owner) -> Option<bool> {
        let in_outage = charge.in_outage.as_ref()?;
        let outcome = self.outage.adjust_local(&in_outage.share, &charge.key, Adjustment::Renew { owner });
        (in_outage.charge_status == ChargeStatus::NotCharged).then(|| is_held(&outcome))
    }
}

/// Whether the owner of a renewal holds its slot.
fn is_held(outcome: &Outcome) -> bool {
    outcome.units() > 0
}
