//! The conformance suite: every store passes the same cases.
//!
//! Stores that pass it give the same answers. The harness defines how time passes: a virtual clock
//! is moved, a real clock (Redis) is waited for, so waits are short. The author of a store writes a
//! [`Harness`] and calls [`run`].
//!
//! A store whose clock can be set also answers the vectors of `tollgate_core`, to the microsecond.
//!
//! Faults are tested by each store itself.

mod adjusting;
pub mod admitted;
mod batch;
mod carrying;
mod leasing;
mod limits;
pub mod nodes;
mod queue;
mod reloading;
mod shared;
mod slots;
mod strictness;
mod vectors;

use std::future::Future;

use tollgate_core::{Bucket, Outcome, Quota, Rate, Rule, Span, Timestamp};

use crate::store::{Answer, Check, Store};

/// A store under test.
pub trait Harness: Sync {
    /// The type of the store.
    type Store: Store;

    /// Returns the store. Every case uses its own rules, so one store serves all cases.
    fn store(&self) -> &Self::Store;

    /// Lets at least this much time pass.
    fn pass(&self, span: Span) -> impl Future<Output = ()>;

    /// Returns the number of random cases of each kind.
    fn cases(&self) -> u64 {
        10
    }

    /// Sets the store's clock, also backwards. Returns false if the store does not support it.
    fn set_clock(&self, now: Timestamp) -> impl Future<Output = bool> {
        let _ = now;
        std::future::ready(false)
    }
}

/// Runs every case and panics with the name of the first that fails.
pub async fn run(harness: &impl Harness) {
    let suite = Suite { harness };
    suite.limits().await;
    suite.batches().await;
    suite.adjustments().await;
    suite.slots().await;
    suite.queues().await;
    suite.leases().await;
    suite.carrying_over().await;
    suite.reloads().await;
    suite.strictness().await;
    suite.shared_states().await;
    suite.vectors().await;
}

/// The cases, in one module per subject.
struct Suite<'h, H> {
    harness: &'h H,
}

impl<H: Harness> Suite<'_, H> {
    /// Decides a batch. A store under test always answers.
    async fn decide(&self, checks: &[Check<'_>]) -> Answer {
        let answer = self.harness.store().decide(checks).await.expect("the store under test answers");
        assert_eq!(answer.outcomes.len(), checks.len(), "one outcome for each check");
        answer
    }

    /// Spends units of one key.
    async fn take(&self, rule: &Rule, key: &str, cost: u64) -> Outcome {
        self.decide(&[Check::new(rule, key.as_bytes(), cost)]).await.outcomes[0]
    }

    /// Returns the remaining units of a key.
    async fn remaining(&self, rule: &Rule, key: &str) -> u64 {
        self.take(rule, key, 0).await.remaining
    }

    async fn adjust(&self, rule: &Rule, key: &str, adjustment: tollgate_core::Adjustment) -> Outcome {
        let adjusted = self.harness.store().adjust(rule, key.as_bytes(), adjustment).await;
        adjusted.expect("the store under test answers")
    }
}

/// Creates a rule for one case, with a number of units per hour, which is long compared to any
/// test.
fn hourly(case: &str, units: u64) -> Rule {
    rule(case, Bucket::new(Rate::per_hour(units)))
}

fn rule<Q: Into<Quota>>(case: &str, quota: Result<Q, tollgate_core::QuotaError>) -> Rule {
    Rule::new(&format!("conformance/{case}"), quota.expect("a valid quota"))
}
