//! What would be decided, without deciding it.
//!
//! A refused batch charges nothing and still says what each check would have been told.
//! So each check is asked together with one that nobody ever meets, on the same key of
//! the same rule: the answer is exact on every store, no store needs a second way of
//! looking, and no key is touched that was not there.
//!
//! Held by `tests/beside/considering.rs`, and on Redis by `tollgate-redis/tests/store/questions.rs`.

use tollgate_core::{Demand, Owner, Quota};
use tollgate_policy::{Request, Survey};
use tollgate_store::{Check, Store, StoreError};

use super::{Limiter, ask};
use crate::decision::Decision;

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
        let survey = self.survey(request, &mut decision);
        if !matches!(survey, Survey::Applies) {
            decision.settle_uncounted(survey);
            return Ok(decision);
        }
        let (mut admitted, mut at) = (true, None);
        for check in decision.checks.iter() {
            let asked = Check { count_denied: false, ..ask(check, decision.owner) };
            let batch = [asked, Check { demand: never(&check.rule.quota), binding: true, ..asked }];
            let answer = self.store.decide(&batch).await?;
            let Some(outcome) = answer.outcomes.first().copied() else { continue };
            admitted &= !asked.binding || outcome.is_admitted();
            at.get_or_insert(answer.at);
            decision.outcomes.push(outcome);
        }
        if let Some(at) = at {
            decision.count(admitted, at);
        }
        // Nothing was taken, so there is nothing to hold.
        decision.owner = None;
        Ok(decision)
    }
}

/// What no key of a rule ever has: units where slots are held, a slot where units are
/// spent. Stores remember no refusal of it, so the answer is always of now.
const fn never(quota: &Quota) -> Demand {
    match quota {
        Quota::Concurrency(_) => Demand::Exactly(1),
        _ => Demand::Slot(Owner(0)),
    }
}
