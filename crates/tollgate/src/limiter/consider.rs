//! What would be decided, without deciding it.
//!
//! A refused batch charges nothing and still says what each check would have been told.
//! So each check is asked together with one that nobody ever meets: the answer is exact
//! on every store, and no store needs a second way of looking.

use tollgate_core::{Bucket, Demand, Rate, Rule};
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
        let veto = veto();
        for check in decision.checks.iter() {
            let asked = Check { count_denied: false, ..ask(check, decision.owner) };
            // Of the same key, so that on a cluster both are in one place.
            let never = veto.as_ref().map(|rule| Check::new(rule, asked.key, NEVER));
            let batch = match never {
                Some(never) => [asked, never],
                None => [asked, Check { demand: Demand::Exactly(0), ..asked }],
            };
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

/// More than the veto ever has.
const NEVER: u64 = 2;

/// A rule that refuses whoever asks for [`NEVER`].
fn veto() -> Option<Rule> {
    Bucket::new(Rate::per_second(1)).ok().map(|quota| Rule::new("tollgate-veto", quota))
}
