//! Reservations: an estimate that is charged before the actual cost is known.
//!
//! A reservation is a decision whose [receipt](Decision::receipt) the caller keeps:
//! [`settle_receipt`](Limiter::settle_receipt) replaces the estimate by the actual cost, and
//! [`refund_receipt`](Limiter::refund_receipt) returns it. All limits are charged or none, so requests that
//! are under way at the same time do not pass a limit together.
//!
//! Not here: the receipts and their ends (the surface that gives them ids).

use smallvec::SmallVec;
use tollgate_policy::{Checks, Descriptor, Input, Key, Limit, Matched, Subject};
use tollgate_store::Store;

use super::Limiter;
use crate::decision::Decision;

impl<S: Store> Limiter<S> {
    /// Charges the costs of requests or descriptors to every limit that covers them, also to limits with
    /// `charge: afterwards`: to all of them or to none. Slots are not taken.
    ///
    /// ```
    /// # use tollgate::{Descriptor, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("
    /// limits: [{name: tokens, descriptor: [user], rate: 100/minute, charge: afterwards}]").unwrap();
    /// let ann = [Descriptor { cost: Some(60), ..Descriptor::new("edge", &[("user", "ann")]) }];
    /// let reserved = limiter.reserve(&ann).await;
    /// assert!(reserved.is_allowed());
    /// assert!(!limiter.reserve(&ann).await.is_allowed());
    /// limiter.settle_receipt(&reserved.receipt().unwrap(), 10).await.unwrap();
    /// assert!(limiter.reserve(&ann).await.is_allowed());
    /// # });
    /// ```
    pub async fn reserve<'l, I: Input + Sync>(&'l self, inputs: &[I]) -> Decision<'l> {
        let first = inputs.first().map(|it| it as &(dyn Input + Sync));
        let matching = |it: &mut Decision<'l>| {
            let matched = self.match_charges(inputs, it);
            it.checks.ignore_refusals();
            matched
        };
        self.decide_matched(first, matching).await
    }

    /// Charges a cost to keys of limits: to all of them or to none. A refusal is not counted, also where the
    /// limit counts refusals.
    pub async fn reserve_named<'l>(&'l self, keys: Vec<(&'l Limit, Key)>, cost: u64) -> Decision<'l> {
        let matching = |it: &mut Decision<'l>| {
            let mut matched = Matched::Applies;
            for (limit, key) in keys {
                let mut checks = Checks::new();
                let of_limit = self.policy.match_limit(limit, key, None, Some(cost), &mut checks);
                if of_limit != Matched::Applies {
                    matched = of_limit;
                }
                it.checks.append(checks);
            }
            it.checks.remove_slots();
            it.checks.ignore_refusals();
            matched
        };
        self.decide_matched(None, matching).await
    }

    /// Finds all limits of inputs that count units, also those that are charged afterwards.
    pub(super) fn match_charges<'l, I: Input>(
        &'l self,
        inputs: &[I],
        decision: &mut Decision<'l>,
    ) -> Matched<'l> {
        let matched = self.policy.match_batch(inputs, &[], &mut decision.checks);
        if self.policy.charges_afterwards() {
            let descriptors: SmallVec<[Descriptor<'_>; 2]> = inputs
                .iter()
                .filter_map(|input| match input.subject() {
                    Subject::Descriptor(descriptor) => Some(descriptor),
                    Subject::Request(_) => None,
                })
                .collect();
            let mut late = Checks::new();
            self.policy.match_late_charges(&descriptors, &mut late);
            decision.checks.append(late);
        }
        decision.checks.remove_slots();
        matched
    }
}
