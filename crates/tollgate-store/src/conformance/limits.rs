//! Single limits: one rule, one key.

use tollgate_core::{
    Amount, Bucket, FixedWindow, Queue, Quota, QuotaError, Rate, SlidingLog, SlidingParts, SlidingWindow,
    Span, Verdict,
};

use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

/// Every algorithm that counts units, with the same numbers.
fn each(rate: Rate) -> Result<[(&'static str, Quota); 10], QuotaError> {
    Ok([
        ("bucket", Bucket::new(rate)?.into()),
        ("bucket of fractions", Bucket::new(Rate::new(rate.count, Span::from_micros(3_599_999_993)))?.into()),
        ("leaky queue", Bucket::new(rate)?.with_queue(Queue::new(rate.count - 1))?.into()),
        ("epoch window", FixedWindow::epoch(rate)?.into()),
        (
            "epoch window of odd length",
            FixedWindow::epoch(Rate::new(rate.count, Span::from_micros(7_200_000_001)))?.into(),
        ),
        ("anchored window", FixedWindow::anchored(rate)?.into()),
        ("sliding window", SlidingWindow::new(rate)?.into()),
        ("sliding window in parts", SlidingParts::new(rate, 7)?.into()),
        ("strict sliding window in parts", SlidingParts::new(rate, 7)?.strict().into()),
        ("sliding log", SlidingLog::new(rate)?.into()),
    ])
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn limits(&self) {
        for (name, quota) in each(Rate::per_hour(5)).expect("valid quotas") {
            self.admits_exactly_the_limit(name, quota).await;
        }
        self.keys_and_rules_are_independent().await;
        self.a_refused_request_passes_after_its_wait().await;
        self.up_to_takes_the_available_units().await;
    }

    async fn admits_exactly_the_limit(&self, name: &str, quota: Quota) {
        let rule = rule(&format!("limit of {name}"), Ok(quota));
        assert_eq!(self.remaining(&rule, "key").await, 5, "{name}: a new key has the whole limit");
        for left in (0..5).rev() {
            let outcome = self.take(&rule, "key", 1).await;
            assert_eq!((outcome.units(), outcome.remaining, outcome.limit), (1, left, 5), "{name}");
        }
        for _ in 0..3 {
            let refused = self.take(&rule, "key", 1).await;
            assert!(!refused.is_admitted() && refused.remaining == 0, "{name}: {refused:?}");
            assert!(refused.retry_after().is_some_and(|wait| !wait.is_zero()), "{name}: {refused:?}");
        }
        assert!(self.take(&rule, "key", 0).await.is_admitted(), "{name}: a read is free");
        let never = self.take(&rule, "other", 6).await;
        assert_eq!((never.verdict, never.remaining), (Verdict::Never, 5), "{name}");
        assert!(self.take(&rule, "other", 3).await.is_admitted(), "{name}");
        let refused = self.take(&rule, "other", 3).await;
        assert!(!refused.is_admitted() && refused.remaining == 2, "{name}: a refusal charges nothing");
        assert_eq!(
            self.take(&rule, "other", 2).await.remaining,
            0,
            "{name}: the remaining units can be taken"
        );
    }

    async fn keys_and_rules_are_independent(&self) {
        let (one, two) = (hourly("apart/one", 1), hourly("apart/two", 1));
        for (rule, key) in [(&one, "a"), (&one, "b"), (&two, "a"), (&one, ""), (&one, "a\0"), (&one, "{a}")] {
            assert!(self.take(rule, key, 1).await.is_admitted(), "{} counts {key:?} separately", rule.name);
            assert!(!self.take(rule, key, 1).await.is_admitted());
        }
        let long = "x".repeat(1_000);
        assert!(self.take(&one, &long, 1).await.is_admitted());
        assert!(self.take(&one, &format!("{long}y"), 1).await.is_admitted(), "long keys count to their end");
    }

    async fn a_refused_request_passes_after_its_wait(&self) {
        let rate = Rate::new(5, Span::from_millis(500));
        for (name, quota) in [
            ("bucket", Bucket::new(rate).map(Quota::from)),
            ("sliding window", SlidingWindow::new(rate).map(Quota::from)),
            ("sliding window in parts", SlidingParts::new(rate, 7).map(Quota::from)),
            ("strict sliding window in parts", SlidingParts::new(rate, 2).map(|it| it.strict().into())),
            ("sliding log", SlidingLog::new(rate).map(Quota::from)),
            ("fixed window", FixedWindow::epoch(rate).map(Quota::from)),
        ] {
            let rule = rule(&format!("wait of {name}"), quota);
            let mut refused = self.take(&rule, "key", 5).await;
            // A fixed window may end between two calls of a store with its own clock.
            while refused.is_admitted() {
                refused = self.take(&rule, "key", 5).await;
            }
            let wait = refused.retry_after().expect("a refusal with a wait");
            self.harness.pass(wait).await;
            assert!(self.take(&rule, "key", 5).await.is_admitted(), "{name}: refused after waiting {wait}");
        }
    }

    async fn up_to_takes_the_available_units(&self) {
        let rule = hourly("up to", 10);
        let up_to = |most| Check { amount: Amount::UpTo(most), ..Check::new(&rule, b"key", 0) };
        for (asked, got) in [(4, 4), (100, 6)] {
            assert_eq!(self.decide(&[up_to(asked)]).await.outcomes[0].units(), got);
        }
        assert!(!self.decide(&[up_to(1)]).await.admitted, "no unit is left");
    }
}
