//! Costs that a proxy reports after the request: charged in full, and never refused.
//!
//! The units have been spent, so a limit goes into debt down to one allowance, as a settlement does. If the
//! store gives no answer, the charge is deferred, and counted on this node until then.

use tollgate_core::{Adjustment, Outcome, Overdraft};
use tollgate_policy::{Check, Descriptor, Input, Matched, OnOutage};
use tollgate_store::{Outcomes, Store};

use super::Limiter;
use crate::decision::Decision;

impl<S: Store> Limiter<S> {
    /// Charges descriptors with hits to the limits that say `charge: afterwards`. The decision admits, and
    /// has an outcome for each of these limits; [`LimitOutcome::part`](crate::LimitOutcome::part) is the
    /// index of the descriptor. Other limits are not charged.
    ///
    /// ```
    /// # use tollgate::{Descriptor, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("
    /// limits: [{name: tokens, descriptor: [user], rate: 100/minute, charge: afterwards}]").unwrap();
    /// let ann = Descriptor::new("edge", &[("user", "ann")]);
    /// let charged = limiter.charge_afterwards(&[Descriptor { cost: Some(150), ..ann }]).await;
    /// assert!(charged.is_allowed());
    /// assert_eq!(charged.limits().next().unwrap().outcome().remaining, 0);
    /// assert!(limiter.refuse_batch_with_rules(&[ann], &[]).await.is_some());
    /// # });
    /// ```
    pub async fn charge_afterwards<'l>(&'l self, descriptors: &[Descriptor<'_>]) -> Decision<'l> {
        let mut decision = Decision::undecided();
        self.policy.match_late_charges(descriptors, &mut decision.checks);
        self.charge_all(decision, descriptors.first()).await
    }

    /// Charges requests or descriptors in full to every limit that covers them, whatever its `charge` says. The
    /// decision admits, and has an outcome for each limit. Slots are not taken, and an input that a list or a
    /// block refuses is not charged.
    ///
    /// ```
    /// # use tollgate::{Descriptor, Limiter};
    /// # pollster::block_on(async {
    /// let limiter =
    ///     Limiter::from_policy("limits: [{descriptor: [user], by: descriptor:user, bucket: 100/minute}]").unwrap();
    /// let ann = Descriptor::new("edge", &[("user", "ann")]);
    /// let charged = limiter.charge_in_full(&[Descriptor { cost: Some(150), ..ann }]).await;
    /// assert!(charged.is_allowed());
    /// assert!(!limiter.check(&ann).is_allowed());
    /// # });
    /// ```
    pub async fn charge_in_full<'l, I: Input + Sync>(&'l self, inputs: &[I]) -> Decision<'l> {
        let mut decision = Decision::undecided();
        if self.match_charges(inputs, &mut decision) != Matched::Applies {
            decision.checks.remove_checks();
        }
        self.charge_all(decision, inputs.first()).await
    }

    /// Charges the checks of a decision, each in full.
    async fn charge_all<'l, I: Input + Sync>(
        &'l self,
        mut decision: Decision<'l>,
        first: Option<&I>,
    ) -> Decision<'l> {
        let started_at = self.started_at();
        let mut outcomes = Outcomes::new();
        for check in decision.checks.iter() {
            outcomes.push(self.charge_check(check).await);
        }
        decision.outcomes = outcomes;
        if !decision.checks.is_empty() {
            decision.count(true, self.outage.now(), self.outage.wall_ahead());
            self.notify(first.map(|it| it as &dyn Input), &mut decision, started_at);
        }
        decision
    }

    async fn charge_check(&self, check: &Check<'_>) -> Outcome {
        let charge = Adjustment::Charge { units: check.cost, overdraft: Overdraft::OneCapacity };
        if let Some(outcome) = self.store.try_adjust(check.rule, check.key.as_bytes(), charge) {
            return outcome;
        }
        match self.adjust_key(check.limit.name(), check.rule, &check.key, charge).await {
            Ok(Some(outcome)) => outcome,
            // Deferred, or lost because too many changes wait.
            Ok(None) | Err(_) => self.outage.charge_local(check, charge, self.store.nodes()),
        }
    }
}

impl crate::outage::Outage {
    /// Charges this node's share of a limit, if the limit is counted by it. Returns the state of the key.
    fn charge_local(&self, check: &Check<'_>, charge: Adjustment, nodes: usize) -> Outcome {
        let share = self.share_of(check, nodes);
        let is_counted = check.limit.on_outage() == OnOutage::Local;
        let charge = if is_counted { charge } else { Adjustment::Grant { units: 0 } };
        self.adjust_local(&share, &check.key, charge)
    }
}
