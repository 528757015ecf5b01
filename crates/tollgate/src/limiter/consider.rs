//! Decisions without a charge.
//!
//! A refused batch charges nothing and still returns the outcome of each check. So each check is
//! paired with a check that always refuses, on the same key of the same rule. The answer is exact
//! on every store, stores need no separate read path, and no other key is touched.
//!
//! Tested by `tests/advisory/consider.rs`, and on Redis by
//! `tollgate-redis/tests/store/questions.rs`.

use tollgate_core::{Amount, Owner, Quota, Verdict};
use tollgate_policy::{Matched, Request, RuleCheck};
use tollgate_store::{Check, Store, StoreError};

use super::{Batch, Limiter, ask};
use crate::decision::{Decision, LimitOutcome};

impl<S: Store> Limiter<S> {
    /// Returns the decision that a request would get now, without charging or notifying the
    /// observer. Fails if the store gives no answer, and while the breaker is open: a request would
    /// then be decided by the outage rules.
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
    pub async fn consider<R: Request + ?Sized + Sync>(
        &self,
        request: &R,
    ) -> Result<Decision<'_>, StoreError> {
        let mut decision = Decision::undecided();
        let matched = self.match_request(request, &mut decision);
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

    /// Refuses several requests together if a limit would refuse one of `looks`, which are indexes
    /// into `requests`. Nothing is charged. Returns `None` if the requests must be decided, with a
    /// zero cost for those in `looks`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// assert!(limiter.refuse_batch(&[call.clone()], &[0]).await.is_none());
    /// assert!(limiter.check(&call).is_allowed());
    /// let refused = limiter.refuse_batch(&[call], &[0]).await.unwrap();
    /// assert!(refused.advised_wait().is_some_and(|wait| wait <= Duration::from_secs(60)));
    /// # });
    /// ```
    pub async fn refuse_batch<R: Request + Sync>(
        &self,
        requests: &[R],
        looks: &[usize],
    ) -> Option<Decision<'_>> {
        self.refuse_together_with(requests, &[], looks).await
    }

    /// Works as [`refuse_batch`](Self::refuse_batch) with additional rules that are in no policy.
    /// Their parts follow those of the requests.
    pub async fn refuse_together_with<'l, R: Request + Sync>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
        looks: &[usize],
    ) -> Option<Decision<'l>> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        if self.policy.match_requests_with_rules(requests, rules, &mut decision.checks) != Matched::Applies {
            return None;
        }
        let query = decision.checks.iter().map(|check| Check { count_denied: false, ..ask(check, None) });
        let mut batch: Batch<'_> = query.collect();
        let first = *batch.first()?;
        batch.push(Check { amount: never(&first.rule.quota), binding: true, ..first });
        let mut answer = self.query(&batch).await.ok()?;
        drop(batch);
        answer.outcomes.truncate(decision.checks.len());
        decision.outcomes = answer.outcomes;
        let refuses = |it: LimitOutcome<'_>| {
            it.is_binding() && !it.outcome().is_admitted() && looks.contains(&(it.part() as usize))
        };
        if !decision.limits().any(refuses) {
            return None;
        }
        decision.count(false, answer.at, self.store.wall_ahead(answer.at));
        self.notify(requests.first().map(|it| it as &dyn Request), &mut decision, started_at);
        Some(decision)
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
