//! Operations on one key: read, grant, reset, release.
//!
//! Reads and resets pass the breaker and are reported to the observer, as decisions are. Without an
//! answer of the store they fail: the caller names the key, so no outage rule applies. Grants and
//! releases are deferred then, as settlements are.

use tollgate_core::{Adjustment, Amount, Outcome, Owner, Quota, Rule};
use tollgate_policy::Key;
use tollgate_store::{Answer, Check, Outcomes, Store, StoreError};

use super::consider::never;
use super::pending::NoAnswer;
use super::{Batch, Limiter};

impl<S: Store> Limiter<S> {
    /// Returns the outcome of each rule for a request of `cost` units or for one slot, without a
    /// charge.
    ///
    /// ```
    /// # use tollgate::Limiter;
    /// # use tollgate::policy::Key;
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{name: api, by: user, bucket: 5/minute}]").unwrap();
    /// let limit = limiter.policy().limit("api").unwrap();
    /// let key = limiter.policy().key(limit, &["ann"]).unwrap();
    /// limiter.decide_named(limit, key.clone(), None, Some(3)).await;
    /// let outcomes = limiter.peek(limit.rules(), &key, 4).await.unwrap();
    /// assert_eq!((outcomes[0].is_admitted(), outcomes[0].remaining), (false, 2));
    /// # });
    /// ```
    pub async fn peek(&self, rules: &[Rule], key: &Key, cost: u64) -> Result<Outcomes, StoreError> {
        // A limit with a learned number of slots has no rules.
        if rules.is_empty() {
            return Ok(Outcomes::new());
        }
        let checks = rules.iter().map(|rule| {
            let amount = match rule.quota {
                Quota::Concurrency(_) => Amount::Slot(Owner(0)),
                _ => Amount::Exactly(cost),
            };
            Check { amount, ..Check::new(rule, key.as_bytes(), cost) }
        });
        let mut batch: Batch<'_> = checks.collect();
        if let Some(&first) = batch.first()
            && batch.iter().any(|it| it.amount != Amount::Exactly(0))
        {
            batch.push(Check { amount: never(&first.rule.quota), ..first });
        }
        let mut outcomes = self.query(&batch).await.map_err(|it| it.error)?.outcomes;
        outcomes.truncate(rules.len());
        Ok(outcomes)
    }

    /// Grants units to a key, up to its limit. The newest charges that still count are returned first.
    ///
    /// Returns the state of the key, or `None` if the store gave no answer and the change is deferred
    /// to [`reconcile`](Self::reconcile): do not repeat it then. `limit` is the name of the limit of
    /// the rule.
    pub async fn grant(
        &self,
        limit: &str,
        rule: &Rule,
        key: &Key,
        units: u64,
    ) -> Result<Option<Outcome>, StoreError> {
        self.adjust_key(limit, rule, key, Adjustment::Grant { units }).await
    }

    /// Releases the slot that an owner holds. Idempotent. Returns as [`grant`](Self::grant) does.
    pub async fn release_slot(
        &self,
        limit: &str,
        rule: &Rule,
        key: &Key,
        owner: Owner,
    ) -> Result<Option<Outcome>, StoreError> {
        self.adjust_key(limit, rule, key, Adjustment::Release { owner }).await
    }

    /// Releases a slot of a limit on descriptors, when the proxy reports the end of a request: the slot of
    /// `owner` ([`Policy::slot_owner`](tollgate_policy::Policy::slot_owner)) or, without an owner, the
    /// `slots` that were taken first. Returns as [`grant`](Self::grant) does.
    pub async fn release_descriptor(
        &self,
        check: &tollgate_policy::Check<'_>,
        owner: Option<Owner>,
        slots: u64,
    ) -> Result<Option<Outcome>, StoreError> {
        let oldest = Adjustment::ReleaseOldest { slots };
        let release = owner.map_or(oldest, |owner| Adjustment::Release { owner });
        let is_local = self.outage.release_local(check, release, self.store.nodes());
        // Without an owner, one of the two places has the slot.
        if is_local && owner.is_none() {
            return Ok(None);
        }
        self.adjust_key(check.limit.name(), check.rule, &check.key, release).await
    }

    /// Forgets the usage of a key, and returns its state after that. It is never deferred.
    pub async fn reset(&self, rule: &Rule, key: &Key) -> Result<Outcome, StoreError> {
        let outcome = self.adjust_now(rule, key, Adjustment::Reset).await?;
        self.wake_line(rule.id, key, Adjustment::Reset);
        Ok(outcome)
    }

    /// Adjusts a key, or fails: the adjustment is not deferred.
    pub(super) async fn adjust_now(
        &self,
        rule: &Rule,
        key: &Key,
        adjustment: Adjustment,
    ) -> Result<Outcome, StoreError> {
        if let Some(outcome) = self.store.try_adjust(rule, key.as_bytes(), adjustment) {
            return Ok(outcome);
        }
        let adjusting = self.store.adjust(rule, key.as_bytes(), adjustment);
        self.observe_call(adjusting).await.map_err(|it| it.error)
    }

    /// Asks the store about a batch that charges nothing.
    pub(super) async fn query(&self, batch: &[Check<'_>]) -> Result<Answer, NoAnswer> {
        let mut outcomes = Outcomes::new();
        match self.store.try_decide(batch, &mut outcomes) {
            Some((admitted, at)) => Ok(Answer { admitted, at, outcomes }),
            None => self.call_store(batch).await,
        }
    }
}
