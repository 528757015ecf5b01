//! Carrying over: a rule whose numbers change keeps the usage of its keys.

use tollgate_core::{
    Adjustment, Bucket, FixedWindow, Quota, QuotaError, Rate, Rule, SlidingLog, SlidingParts,
};

use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

/// Slow quotas, each with a fast replacement: ten per day, then ten per second.
fn slow_and_fast_quotas() -> Result<[(&'static str, [Quota; 2]); 8], QuotaError> {
    let (slow, fast) = (Rate::per_day(10), Rate::per_second(10));
    let bucket = Quota::from(Bucket::new(fast)?);
    Ok([
        ("bucket", [Bucket::new(slow)?.into(), bucket.clone()]),
        ("epoch window", [FixedWindow::epoch(slow)?.into(), bucket.clone()]),
        ("anchored window", [FixedWindow::anchored(slow)?.into(), bucket.clone()]),
        ("parts", [SlidingParts::new(slow, 7)?.into(), bucket.clone()]),
        (
            "parts to strict",
            [SlidingParts::new(slow, 7)?.into(), SlidingParts::new(fast, 7)?.strict().into()],
        ),
        ("log", [SlidingLog::new(slow)?.into(), bucket]),
        ("bucket to parts", [Bucket::new(slow)?.into(), SlidingParts::new(fast, 7)?.into()]),
        ("bucket to log", [Bucket::new(slow)?.into(), SlidingLog::new(fast)?.into()]),
    ])
}

/// Two rules of one name, of which the second replaces the first.
fn replaced(case: &str, [slow, fast]: [Quota; 2]) -> [Rule; 2] {
    let before = rule(case, Ok(slow));
    let after = rule(case, Ok(fast)).replacing(&before);
    [before, after]
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn carrying_over(&self) {
        self.a_new_rate_keeps_usage().await;
        self.a_new_algorithm_keeps_usage().await;
        self.carried_usage_counts_once().await;
        self.two_consecutive_changes_lose_nothing().await;
        self.a_reverted_change_refills_nothing().await;
        self.adjustments_apply_to_prior_usage().await;
        for (name, quotas) in slow_and_fast_quotas().expect("valid quotas") {
            self.a_refusal_carries_over_too(name, quotas.clone()).await;
            self.a_refused_batch_carries_over_too(name, quotas).await;
        }
    }

    async fn a_new_rate_keeps_usage(&self) {
        let before = hourly("carry/rate", 100);
        self.take(&before, "key", 60).await;
        let raised = hourly("carry/rate", 1_000).replacing(&before);
        assert_eq!(self.remaining(&raised, "key").await, 940, "a read carries usage over too");
        assert_eq!(self.take(&raised, "key", 40).await.remaining, 900);
        assert_eq!(self.remaining(&raised, "key").await, 900);
        assert_eq!(self.remaining(&raised, "unknown").await, 1_000);

        let before = hourly("carry/lower", 100);
        self.take(&before, "key", 60).await;
        let lowered = hourly("carry/lower", 50).replacing(&before);
        assert!(!self.take(&lowered, "key", 1).await.is_admitted(), "sixty of fifty are spent");
    }

    async fn a_new_algorithm_keeps_usage(&self) {
        let rate = Rate::per_hour(10);
        let bucket = rule("carry/algorithm", Bucket::new(rate));
        self.take(&bucket, "key", 4).await;
        let log = rule("carry/algorithm", SlidingLog::new(rate)).replacing(&bucket);
        assert_eq!(self.take(&log, "key", 1).await.remaining, 5);
        let window = rule("carry/algorithm", FixedWindow::epoch(Rate::per_day(10))).replacing(&log);
        assert_eq!(self.take(&window, "key", 1).await.remaining, 4);
        let parts = SlidingParts::new(rate, 2).expect("a valid quota");
        let strict = rule("carry/algorithm", Ok(parts.strict())).replacing(&window);
        assert_eq!(self.take(&strict, "key", 1).await.remaining, 3);
        let even = rule("carry/algorithm", Ok(parts)).replacing(&strict);
        assert_eq!(self.take(&even, "key", 1).await.remaining, 2);
        let strict = rule("carry/algorithm", Ok(parts.strict())).replacing(&even);
        assert_eq!(self.take(&strict, "key", 1).await.remaining, 1, "usage under both rules counts");
    }

    async fn carried_usage_counts_once(&self) {
        let before = hourly("carry/once", 10);
        self.take(&before, "key", 10).await;
        let after = rule("carry/once", Bucket::new(Rate::per_second(1_000))).replacing(&before);
        assert!(self.take(&after, "key", 900).await.is_admitted());
        // Long enough that the key has expired under the new rule and not under the old one.
        self.harness.pass(tollgate_core::Span::from_secs(1)).await;
        assert_eq!(self.take(&after, "key", 1).await.remaining, 999);
    }

    async fn two_consecutive_changes_lose_nothing(&self) {
        let first = hourly("carry/twice", 10);
        self.take(&first, "key", 10).await;
        let second = hourly("carry/twice", 11).replacing(&first);
        let third = hourly("carry/twice", 12).replacing(&second);
        assert_eq!(self.remaining(&third, "key").await, 2, "although no request came in between");
    }

    async fn a_reverted_change_refills_nothing(&self) {
        let first = hourly("carry/back", 10);
        self.take(&first, "key", 10).await;
        let second = hourly("carry/back", 12).replacing(&first);
        assert_eq!(self.take(&second, "key", 2).await.remaining, 0);
        let again = hourly("carry/back", 10).replacing(&second);
        assert!(!self.take(&again, "key", 1).await.is_admitted());
    }

    async fn adjustments_apply_to_prior_usage(&self) {
        let before = hourly("carry/adjust", 10);
        for key in ["reset", "grant"] {
            self.take(&before, key, 10).await;
        }
        let after = hourly("carry/adjust", 20).replacing(&before);
        self.adjust(&after, "reset", Adjustment::Reset).await;
        assert_eq!(self.remaining(&after, "reset").await, 20);
        self.adjust(&after, "grant", Adjustment::Grant { units: 5 }).await;
        assert_eq!(self.remaining(&after, "grant").await, 15);
    }

    /// A key that is drained under a slow rule waits as long as the fast rule that replaced it
    /// requires, and not until its state under the slow rule expires.
    async fn a_refusal_carries_over_too(&self, name: &str, quotas: [Quota; 2]) {
        let [before, after] = replaced(&format!("carry/refused/{name}"), quotas);
        self.take(&before, "key", 10).await;
        let mut refused = self.take(&after, "key", 1).await;
        // A day may have ended between the two calls.
        while refused.is_admitted() {
            refused = self.take(&after, "key", 1).await;
        }
        let wait = refused.retry_after().expect("spent units come back");
        assert!(wait <= Rate::per_second(1).period, "{name}: {wait:?} is the wait of the old rule");
        self.harness.pass(wait).await;
        let outcome = self.take(&after, "key", 1).await;
        assert!(outcome.is_admitted(), "{name}: the wait was {wait:?}, and then {outcome:?}");
    }

    async fn a_refused_batch_carries_over_too(&self, name: &str, quotas: [Quota; 2]) {
        let [before, after] = replaced(&format!("carry/batch/{name}"), quotas);
        let other = hourly(&format!("carry/batch/{name}/other"), 100);
        self.take(&before, "key", 10).await;
        let batch = [Check::new(&other, b"key", 1), Check::new(&after, b"key", 1)];
        let (mut answer, mut spent) = (self.decide(&batch).await, 0);
        while answer.admitted {
            (answer, spent) = (self.decide(&batch).await, spent + 1);
        }
        assert_eq!(self.remaining(&other, "key").await, 100 - spent, "{name}: a refusal charges nothing");
        let wait = answer.outcomes[1].retry_after().expect("spent units come back");
        self.harness.pass(wait).await;
        assert!(self.decide(&batch).await.admitted, "{name}: after {wait:?}");
        assert_eq!(self.remaining(&other, "key").await, 99 - spent, "{name}");
    }
}
