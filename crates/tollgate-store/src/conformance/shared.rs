//! States shared by rules of different numbers: tallies and shared buckets.

use tollgate_core::{Adjustment, Bucket, FixedWindow, Outcome, Rate, Rule, Span, Verdict, Window};

use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

/// A window that ends after every test.
const LONG: Window = Window::Anchored(Span::from_days(1));

fn tally(case: &str, limit: u64) -> Rule {
    rule(&format!("tally/{case}"), FixedWindow::tally(limit, LONG))
}

fn shared(case: &str, rate: Rate) -> Rule {
    rule(&format!("shared/{case}"), Bucket::new(rate).map(Bucket::shared))
}

/// Creates a check whose refusals count.
fn hit<'a>(rule: &'a Rule, key: &'a str, units: u64) -> Check<'a> {
    Check { count_denied: true, ..Check::new(rule, key.as_bytes(), units) }
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn shared_states(&self) {
        self.a_tally_counts_like_a_counter().await;
        self.a_tally_of_zero_counts_too().await;
        self.a_tally_continues_under_another_limit().await;
        self.tallies_of_one_batch_all_count().await;
        self.refunds_reduce_a_tally().await;
        self.huge_hits_neither_wrap_nor_pass().await;
        self.a_tally_carries_over_its_count().await;
        self.shared_buckets_continue_from_the_last_state().await;
        self.one_state_under_two_limits_in_one_batch().await;
    }

    async fn hit(&self, rule: &Rule, key: &str, units: u64) -> Outcome {
        self.decide(&[hit(rule, key, units)]).await.outcomes[0]
    }

    async fn a_tally_counts_like_a_counter(&self) {
        let ten = tally("counter", 10);
        for (units, admitted, left) in [
            (0, true, 10),
            (4, true, 6),
            (6, true, 0),
            (0, true, 0),
            (1, false, 0),
            (0, false, 0),
            (9, false, 0),
        ] {
            let outcome = self.hit(&ten, "key", units).await;
            assert_eq!((outcome.is_admitted(), outcome.remaining, outcome.limit), (admitted, left, 10));
            let wait = if admitted { None } else { Some(outcome.reset_after) };
            assert_eq!(outcome.retry_after(), wait, "a hit of {units} waits for the window's end");
        }
        let crossing = self.hit(&ten, "other", 8).await;
        assert!(crossing.is_admitted());
        assert!(!self.hit(&ten, "other", 3).await.is_admitted(), "refused as a whole");
        assert!(!self.hit(&ten, "other", 1).await.is_admitted(), "but counted in full: eleven");
    }

    async fn a_tally_of_zero_counts_too(&self) {
        let (none, three) = (tally("nothing", 0), tally("nothing", 3));
        assert!(self.hit(&none, "key", 0).await.is_admitted(), "zero does not exceed a limit of zero");
        assert_eq!(self.hit(&none, "key", 2).await.verdict, Verdict::Never);
        assert!(!self.hit(&none, "key", 0).await.is_admitted());
        assert_eq!(self.remaining(&three, "key").await, 1, "two were counted");
    }

    async fn a_tally_continues_under_another_limit(&self) {
        let (ten, twenty) = (tally("limits", 10), tally("limits", 20));
        for _ in 0..12 {
            self.hit(&ten, "key", 1).await;
        }
        // Without `count_denied`, so that a store may cache the refusal.
        assert!(!self.take(&ten, "key", 1).await.is_admitted());
        let more = self.take(&twenty, "key", 1).await;
        assert_eq!((more.is_admitted(), more.remaining), (true, 7), "twelve of twenty, and one");
        for left in (0..7).rev() {
            assert_eq!(self.hit(&twenty, "key", 1).await.remaining, left);
            assert!(!self.take(&ten, "key", 1).await.is_admitted());
        }
        assert!(!self.hit(&twenty, "key", 1).await.is_admitted());
    }

    async fn tallies_of_one_batch_all_count(&self) {
        let (wide, narrow) = (tally("batch/wide", 10), tally("batch/narrow", 1));
        for (admitted, left) in [(true, 9), (false, 8), (false, 7)] {
            let answer = self.decide(&[hit(&wide, "key", 1), hit(&narrow, "key", 1)]).await;
            assert_eq!((answer.admitted, answer.outcomes[0].remaining), (admitted, left));
            assert!(answer.outcomes[0].is_admitted(), "alone it would have been admitted");
        }
        let closed = hourly("tally/batch/closed", 1);
        assert!(self.take(&closed, "key", 1).await.is_admitted());
        let batch = [Check::new(&closed, b"key", 1), hit(&wide, "key", 30)];
        assert!(!self.decide(&batch).await.admitted);
        let twenty = tally("batch/wide", 40);
        assert_eq!(self.remaining(&twenty, "key").await, 7, "three and thirty of forty");

        let twice = tally("batch/twice", 10);
        let both = [hit(&twice, "key", 6), hit(&twice, "key", 6)];
        assert!(!self.decide(&both).await.admitted);
        assert_eq!(self.remaining(&tally("batch/twice", 20), "key").await, 8, "both were counted");

        let shadow = tally("batch/shadow", 1);
        let unbound = Check { binding: false, ..hit(&shadow, "key", 5) };
        assert!(self.decide(&[unbound]).await.admitted, "the check is not binding");
    }

    async fn refunds_reduce_a_tally(&self) {
        let ten = tally("given back", 10);
        for _ in 0..15 {
            self.hit(&ten, "key", 1).await;
        }
        self.adjust(&ten, "key", Adjustment::Grant { units: 5 }).await;
        assert!(self.hit(&ten, "key", 0).await.is_admitted(), "ten of ten");
        self.adjust(&ten, "key", Adjustment::Grant { units: 4 }).await;
        assert_eq!(self.hit(&ten, "key", 1).await.remaining, 3);
        assert_eq!(self.adjust(&ten, "key", Adjustment::Reset).await.remaining, 10);
    }

    async fn huge_hits_neither_wrap_nor_pass(&self) {
        let most = tally("huge", 1 << 48);
        for _ in 0..3 {
            assert_eq!(self.hit(&most, "key", u64::MAX).await.verdict, Verdict::Never);
            assert!(!self.hit(&most, "key", 1).await.is_admitted());
        }
        self.adjust(&most, "key", Adjustment::Grant { units: (1 << 48) + 1 }).await;
        assert_eq!(self.hit(&most, "key", 1).await.remaining, 0, "it had counted to 2^49");
    }

    async fn a_tally_carries_over_its_count(&self) {
        let plain = rule("tally/carried", FixedWindow::new(10, LONG));
        assert!(self.take(&plain, "key", 8).await.is_admitted());
        let tally = tally("carried", 10).replacing(&plain);
        assert!(!self.hit(&tally, "key", 5).await.is_admitted());
        assert!(!self.hit(&tally, "key", 0).await.is_admitted(), "thirteen");
        let bucket = hourly("tally/carried/bucket", 20).replacing(&tally);
        assert_eq!(self.remaining(&bucket, "key").await, 7, "thirteen of twenty");
    }

    async fn shared_buckets_continue_from_the_last_state(&self) {
        for (case, slow, fast) in [
            ("whole", Rate::per_day(1), Rate::per_second(10)),
            ("fraction", Rate::new(7, Span::from_micros(86_399_999_999)), Rate::per_second(13)),
        ] {
            let (slow, fast) = (shared(case, slow), shared(case, fast));
            assert!(self.take(&slow, "key", slow.quota.capacity()).await.is_admitted(), "{case}");
            for _ in 0..3 {
                let refused = self.take(&fast, "key", 1).await;
                let wait = refused.retry_after().expect("a refusal with a wait");
                assert!(wait > Span::from_hours(23) && refused.remaining == 0, "{case}: {refused:?}");
                let refused = self.take(&slow, "key", 1).await;
                assert!(!refused.is_admitted(), "{case}: the fast bucket erased no debt");
                self.harness.pass(Span::from_millis(100)).await;
            }
            assert!(self.take(&fast, "other", 10).await.is_admitted(), "{case}: another key is independent");
            self.adjust(&fast, "key", Adjustment::Reset).await;
            assert!(self.take(&slow, "key", 1).await.is_admitted(), "{case}");
        }
    }

    async fn one_state_under_two_limits_in_one_batch(&self) {
        let (three, nine) = (tally("two numbers", 3), tally("two numbers", 9));
        let batch = [Check::new(&three, b"key", 1), Check::new(&nine, b"key", 1)];
        assert!(self.decide(&batch).await.admitted);
        assert_eq!(self.remaining(&nine, "key").await, 7, "the hit was counted twice");
        let batch = [Check::new(&nine, b"key", 1), Check::new(&three, b"key", 2)];
        assert!(!self.decide(&batch).await.admitted);
        assert_eq!(self.remaining(&nine, "key").await, 7, "a refusal was not counted");
    }
}
