//! The suite that every store passes, unchanged.
//!
//! A store that runs it through answers like every other. The harness says how
//! time passes: a store on a virtual clock is moved, one with a clock of its own
//! (Redis) is waited for, so waits here are short. Whoever writes a store writes
//! a [`Harness`] and calls [`run`].
//!
//! A store whose clock can be set also answers the vectors of `tollgate_core`,
//! to the microsecond.
//!
//! Not here: faults, which are each store's own.

mod adjusting;
mod batch;
mod carrying;
mod limits;
mod reloading;
mod shared;
mod slots;
mod vectors;

use std::future::Future;

use tollgate_core::{Bucket, Outcome, Quota, Rate, Rule, Span, Timestamp};

use crate::store::{Answer, Check, Store};

/// A store under test.
pub trait Harness: Sync {
    /// What is tested.
    type Store: Store;

    /// The store. Every case uses rules of its own, so one store serves them all.
    fn store(&self) -> &Self::Store;

    /// Lets this much time pass, at least.
    fn pass(&self, span: Span) -> impl Future<Output = ()>;

    /// How many random cases of each kind are run.
    fn cases(&self) -> u64 {
        10
    }

    /// Sets the store's clock, be it back; false if it has one of its own.
    fn set_clock(&self, now: Timestamp) -> impl Future<Output = bool> {
        let _ = now;
        std::future::ready(false)
    }
}

/// Runs every case and panics with the name of the first that does not hold.
pub async fn run(harness: &impl Harness) {
    let suite = Suite { harness };
    suite.limits().await;
    suite.batches().await;
    suite.adjustments().await;
    suite.slots().await;
    suite.carrying_over().await;
    suite.reloads().await;
    suite.shared_states().await;
    suite.vectors().await;
}

/// The cases, in files by subject.
struct Suite<'h, H> {
    harness: &'h H,
}

impl<H: Harness> Suite<'_, H> {
    /// Decides a batch; a store under test always answers.
    async fn decide(&self, checks: &[Check<'_>]) -> Answer {
        let answer = self.harness.store().decide(checks).await.expect("the store under test answers");
        assert_eq!(answer.outcomes.len(), checks.len(), "one outcome for each check");
        answer
    }

    /// Spends from one key.
    async fn take(&self, rule: &Rule, key: &str, cost: u64) -> Outcome {
        self.decide(&[Check::new(rule, key.as_bytes(), cost)]).await.outcomes[0]
    }

    /// How many units a key has left.
    async fn remaining(&self, rule: &Rule, key: &str) -> u64 {
        self.take(rule, key, 0).await.remaining
    }

    async fn adjust(&self, rule: &Rule, key: &str, adjustment: tollgate_core::Adjustment) -> Outcome {
        let adjusted = self.harness.store().adjust(rule, key.as_bytes(), adjustment).await;
        adjusted.expect("the store under test answers")
    }
}

/// A rule of a case's own: so many units an hour, which is long against any test.
fn hourly(case: &str, units: u64) -> Rule {
    rule(case, Bucket::new(Rate::per_hour(units)))
}

fn rule<Q: Into<Quota>>(case: &str, quota: Result<Q, tollgate_core::QuotaError>) -> Rule {
    Rule::new(&format!("conformance/{case}"), quota.expect("a quota that can be served"))
}
