//! Decisions without a charge.
//!
//! A refused batch charges nothing and still returns the outcome of each check. So each check is
//! paired with a check that always refuses, on the same key of the same rule. The answer is exact
//! on every store, stores need no separate read path, and no other key is touched.
//!
//! Tested by `tests/advisory/consider.rs`, and on Redis by
//! `tollgate-redis/tests/store/questions.rs`.

use tollgate_core::{Amount, Owner, Quota, Verdict};
use tollgate_policy::{Input, Matched, RuleCheck};
use tollgate_store::{Check, Store, StoreError};

use super::{Batch, Limiter, ask};
use crate::decision::{Decision, LimitOutcome};

impl<S: Store> Limiter<S> {
    /// Returns the decision that a request or descriptor would get now, without charging or notifying the
    /// observer. Fails if the store gives no answer, and while the breaker is open: it would then be
    /// decided by the outage rules.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// assert!(limiter.consider(&call).await.unwrap().is_allowed());
    /// assert!(limiter.check(&call).is_allowed());          // it was not spent
    /// assert!(!limiter.consider(&call).await.unwrap().is_allowed());
    /// # });
    /// ```
    pub async fn consider<I: Input + Sync>(&self, input: &I) -> Result<Decision<'_>, StoreError> {
        let mut decision = Decision::undecided();
        let matched = self.match_input(input, &mut decision);
        if !matches!(matched, Matched::Applies) {
            decision.settle_uncounted(matched);
            return Ok(decision);
        }
        let (mut admitted, mut at) = (true, None);
        for check in decision.checks.iter() {
            let query = Check { count_denied: false, ..ask(check, decision.owner) };
            let batch = [query, Check { amount: never(&check.rule.quota), binding: true, ..query }];
            let answer = self.query(&batch).await.map_err(|it| it.error)?;
            let Some(mut outcome) = answer.outcomes.first().copied() else { continue };
            if let (Verdict::Admitted { wait, .. }, Quota::Bucket(it)) =
                (&mut outcome.verdict, &check.rule.quota)
                && check.cost > 0
            {
                *wait = it.wait_after(outcome.reset_after);
            }
            admitted &= !query.binding || outcome.is_admitted();
            at.get_or_insert(answer.at);
            decision.outcomes.push(outcome);
        }
        if let Some(at) = at {
            decision.count(admitted, at, self.store.wall_ahead(at));
        }
        // Nothing was taken, so there are no slots to release.
        decision.owner = None;
        Ok(decision)
    }

    /// Refuses several inputs and rules that are in no policy together if a limit with a zero cost would
    /// refuse one unit or one slot. Nothing is charged. Returns `None` if the batch must be decided
    /// ([`decide_batch_with_rules`](Self::decide_batch_with_rules)), where a zero cost is never refused.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// let look = [call.clone().cost(0)];
    /// assert!(limiter.refuse_batch_with_rules(&look, &[]).await.is_none());
    /// assert!(limiter.check(&call).is_allowed());
    /// let refused = limiter.refuse_batch_with_rules(&look, &[]).await.unwrap();
    /// assert!(refused.advised_wait().is_some_and(|wait| wait <= Duration::from_secs(60)));
    /// # });
    /// ```
    pub async fn refuse_batch_with_rules<'l, I: Input + Sync>(
        &'l self,
        inputs: &[I],
        rules: &'l [RuleCheck],
    ) -> Option<Decision<'l>> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        if self.policy.match_batch(inputs, rules, &mut decision.checks) != Matched::Applies {
            return None;
        }
        if decision.checks.iter().all(|check| check.cost > 0) {
            return None;
        }
        let query = decision.checks.iter().map(|check| Check { count_denied: false, ..ask_one(check) });
        let mut batch: Batch<'_> = query.collect();
        let first = *batch.first()?;
        batch.push(Check { amount: never(&first.rule.quota), binding: true, ..first });
        let mut answer = self.query(&batch).await.ok()?;
        drop(batch);
        answer.outcomes.truncate(decision.checks.len());
        decision.outcomes = answer.outcomes;
        let refuses = |it: LimitOutcome<'_>| it.is_binding() && !it.outcome().is_admitted() && it.cost() == 0;
        if !decision.limits().any(refuses) {
            return None;
        }
        decision.count(false, answer.at, self.store.wall_ahead(answer.at));
        self.notify(inputs.first().map(|it| it as &dyn Input), &mut decision, started_at);
        Some(decision)
    }
}

/// Returns the check that a store runs for one limit, about one unit or one slot where the cost is zero.
fn ask_one<'b>(check: &'b tollgate_policy::Check<'_>) -> Check<'b> {
    let store_check = ask(check, None);
    match (check.cost, &check.rule.quota) {
        (0, Quota::Concurrency(_)) => Check { amount: Amount::Slot(Owner(0)), ..store_check },
        (0, _) => Check { amount: Amount::Exactly(1), ..store_check },
        _ => store_check,
    }
}

/// Returns an amount that no key of the rule ever has: units for slots, a slot for units. Stores do
/// not cache its refusal, so the answer is always current.
pub(super) const fn never(quota: &Quota) -> Amount {
    match quota {
        Quota::Concurrency(_) => Amount::Exactly(1),
        _ => Amount::Slot(Owner(0)),
    }
}
