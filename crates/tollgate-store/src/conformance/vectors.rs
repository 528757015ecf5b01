//! The shared vectors, for stores whose clock can be set.

use tollgate_core::vectors::{Case, Expect, StoreCall, cases};
use tollgate_core::{Outcome, Rule, Timestamp};

use super::{Harness, Suite};
use crate::store::Check;

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn vectors(&self) {
        for case in cases() {
            if !self.answers_the_vector(&case).await {
                return;
            }
        }
    }

    /// Returns false if the clock of the store cannot be set.
    async fn answers_the_vector(&self, case: &Case) -> bool {
        let rule = Rule::new(&format!("conformance/vectors/{}", case.name), case.quota.build());
        for step in &case.steps {
            if !self.harness.set_clock(Timestamp::from_micros(step.at_us)).await {
                return false;
            }
            let outcome = match step.act.store_call() {
                StoreCall::Acquire(amount) => {
                    self.decide(&[Check { amount, ..Check::new(&rule, b"key", 0) }]).await.outcomes[0]
                }
                StoreCall::Adjust(adjustment) => {
                    let adjusted = self.adjust(&rule, "key", adjustment).await;
                    // A tally may refuse a read; an adjustment is never refused.
                    Outcome { verdict: self.take(&rule, "key", 0).await.verdict, ..adjusted }
                }
            };
            let (answer, act) = (Some(Expect::from(outcome)), &step.act);
            assert_eq!(answer, step.expect, "{}: {} at {}: {act:?}", rule.quota, case.name, step.at_us);
        }
        true
    }
}
