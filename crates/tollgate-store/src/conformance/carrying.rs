//! A rule whose numbers change keeps what keys have spent.

use tollgate_core::{Bucket, FixedWindow, Rate, SlidingLog};

use super::{Harness, Suite, hourly, rule};

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn carrying_over(&self) {
        self.a_new_rate_keeps_what_was_spent().await;
        self.a_new_algorithm_keeps_what_was_spent().await;
        self.what_was_carried_over_counts_once().await;
    }

    async fn a_new_rate_keeps_what_was_spent(&self) {
        let before = hourly("carry/rate", 100);
        self.take(&before, "key", 60).await;
        let raised = hourly("carry/rate", 1_000).replacing(&before);
        assert_eq!(self.remaining(&raised, "key").await, 940, "looking carries over too");
        assert_eq!(self.take(&raised, "key", 40).await.remaining, 900);
        assert_eq!(self.remaining(&raised, "key").await, 900);
        assert_eq!(self.remaining(&raised, "unknown").await, 1_000);

        let before = hourly("carry/lower", 100);
        self.take(&before, "key", 60).await;
        let lowered = hourly("carry/lower", 50).replacing(&before);
        assert!(!self.take(&lowered, "key", 1).await.is_admitted(), "sixty of fifty are spent");
    }

    async fn a_new_algorithm_keeps_what_was_spent(&self) {
        let rate = Rate::per_hour(10);
        let bucket = rule("carry/algorithm", Bucket::new(rate));
        self.take(&bucket, "key", 4).await;
        let log = rule("carry/algorithm", SlidingLog::new(rate)).replacing(&bucket);
        assert_eq!(self.take(&log, "key", 1).await.remaining, 5);
        let window = rule("carry/algorithm", FixedWindow::epoch(Rate::per_day(10))).replacing(&log);
        assert_eq!(self.take(&window, "key", 1).await.remaining, 4);
    }

    async fn what_was_carried_over_counts_once(&self) {
        let before = hourly("carry/once", 10);
        self.take(&before, "key", 10).await;
        let after = rule("carry/once", Bucket::new(Rate::per_second(1_000))).replacing(&before);
        assert!(self.take(&after, "key", 900).await.is_admitted());
        // Long enough for the new rule to have forgotten the key, while the old would not have.
        self.harness.pass(tollgate_core::Span::from_secs(1)).await;
        assert_eq!(self.take(&after, "key", 1).await.remaining, 999);
    }
}
