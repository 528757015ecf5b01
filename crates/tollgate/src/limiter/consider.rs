//! What would be decided, without deciding it.
//!
//! A refused batch charges nothing and still says what each check would have been told.
//! So each check is asked together with one that nobody ever meets, on the same key of
//! the same rule: the answer is exact on every store, no store needs a second way of
//! looking, and no key is touched that was not there.
//!
//! Held by `tests/beside/considering.rs`, and on Redis by `tollgate-redis/tests/store/questions.rs`.

use tollgate_core::{Amount, Owner, Quota};
use tollgate_policy::{Matched, Request, RuleCheck};
use tollgate_store::{Check, Store, StoreError};

use super::{Batch, Limiter, ask};
use crate::decision::{Decision, LimitOutcome};

impl<S: Store> Limiter<S> {
    /// What would be decided about a request now. Nothing is charged, nobody is told, and
    /// without an answer of the store there is none: what an outage would do is no secret,
    /// and no arithmetic either.
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
            let asked = Check { count_denied: false, ..ask(check, decision.owner) };
            let batch = [asked, Check { amount: never(&check.rule.quota), binding: true, ..asked }];
            let answer = self.store.decide(&batch).await?;
            let Some(outcome) = answer.outcomes.first().copied() else { continue };
            admitted &= !asked.binding || outcome.is_admitted();
            at.get_or_insert(answer.at);
            decision.outcomes.push(outcome);
        }
        if let Some(at) = at {
            decision.count(admitted, at, self.store.wall_ahead(at));
        }
        // Nothing was taken, so there is nothing to hold.
        decision.owner = None;
        Ok(decision)
    }

    /// Refuses several requests as one if a limit would refuse one of `looks`, which are places
    /// among them. Nothing is charged. `None`: they are to be decided, with nothing for whoever
    /// only looks.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// assert!(limiter.refuse_batch(&[call.clone()], &[0]).await.is_none());
    /// assert!(limiter.check(&call).is_allowed());
    /// let refused = limiter.refuse_batch(&[call], &[0]).await.unwrap();
    /// assert_eq!(refused.advised_wait().map(|it| it.as_secs_ceil()), Some(60));
    /// # });
    /// ```
    pub async fn refuse_batch<R: Request + Sync>(
        &self,
        requests: &[R],
        looks: &[usize],
    ) -> Option<Decision<'_>> {
        self.refuse_together_with(requests, &[], looks).await
    }

    /// The same together with rules that stand in no policy: they are the parts behind those of the requests.
    pub async fn refuse_together_with<'l, R: Request + Sync>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
        looks: &[usize],
    ) -> Option<Decision<'l>> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        if self.policy.survey_all_with(requests, rules, &mut decision.checks) != Matched::Applies {
            return None;
        }
        let asked = decision.checks.iter().map(|check| Check { count_denied: false, ..ask(check, None) });
        let mut batch: Batch<'_> = asked.collect();
        let first = *batch.first()?;
        batch.push(Check { amount: never(&first.rule.quota), binding: true, ..first });
        let mut answer = self.ask_store(&batch).await.ok()?;
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

/// What no key of a rule ever has: units where slots are held, a slot where units are
/// spent. Stores remember no refusal of it, so the answer is always of now.
const fn never(quota: &Quota) -> Amount {
    match quota {
        Quota::Concurrency(_) => Amount::Exactly(1),
        _ => Amount::Slot(Owner(0)),
    }
}
