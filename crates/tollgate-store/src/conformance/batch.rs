//! Batches: all rules are charged or none.

use tollgate_core::{Bucket, FixedWindow, Queue, Rate, SlidingLog, SlidingParts, SlidingWindow};

use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn batches(&self) {
        self.refused_batch_writes_nothing().await;
        self.admitted_batch_charges_every_rule().await;
        self.shadow_rules_answer_and_do_not_refuse().await;
        self.refusals_cost_under_count_denied().await;
        self.one_key_twice_in_a_batch_pays_twice().await;
        self.an_empty_batch_is_admitted().await;
    }

    async fn refused_batch_writes_nothing(&self) {
        let rate = Rate::per_hour(10);
        let wide = [
            rule("nothing/bucket", Bucket::new(rate)),
            rule("nothing/window", FixedWindow::epoch(rate)),
            rule("nothing/queue", Bucket::new(rate).and_then(|it| it.with_queue(Queue::new(9)))),
            rule("nothing/sliding", SlidingWindow::new(rate)),
            rule("nothing/parts", SlidingParts::new(rate, 2)),
            rule("nothing/log", SlidingLog::new(rate)),
        ];
        let narrow = hourly("nothing/narrow", 1);
        let mut checks: Vec<_> = wide.iter().map(|rule| Check::new(rule, b"key", 1)).collect();
        checks.insert(2, Check::new(&narrow, b"key", 1));
        assert!(self.decide(&checks).await.admitted);
        for _ in 0..20 {
            let answer = self.decide(&checks).await;
            assert!(!answer.admitted);
            let refusing: Vec<_> = answer.outcomes.iter().map(tollgate_core::Outcome::is_admitted).collect();
            assert_eq!(refusing, [true, true, false, true, true, true, true], "only the narrow rule refuses");
            for rule in &wide {
                assert_eq!(self.remaining(rule, "key").await, 9, "{} was charged for a refusal", rule.name);
            }
        }
    }

    async fn admitted_batch_charges_every_rule(&self) {
        let (one, two) = (hourly("everyone/one", 10), hourly("everyone/two", 100));
        let answer = self.decide(&[Check::new(&one, b"a", 3), Check::new(&two, b"b", 5)]).await;
        let left: Vec<_> = answer.outcomes.iter().map(|outcome| outcome.remaining).collect();
        assert_eq!((answer.admitted, left), (true, vec![7, 95]));
    }

    async fn shadow_rules_answer_and_do_not_refuse(&self) {
        let (live, shadow) = (hourly("shadow/live", 3), hourly("shadow/shadow", 1));
        let batch =
            [Check::new(&live, b"key", 1), Check { binding: false, ..Check::new(&shadow, b"key", 1) }];
        for (admitted, shadowed) in [(true, true), (true, false), (true, false), (false, false)] {
            let answer = self.decide(&batch).await;
            assert_eq!((answer.admitted, answer.outcomes[1].is_admitted()), (admitted, shadowed));
        }
    }

    async fn refusals_cost_under_count_denied(&self) {
        let (attempts, open) = (hourly("denied/attempts", 10), hourly("denied/open", 1));
        let batch =
            [Check { count_denied: true, ..Check::new(&attempts, b"key", 1) }, Check::new(&open, b"key", 1)];
        for left in (0..10).rev() {
            self.decide(&batch).await;
            assert_eq!(self.remaining(&attempts, "key").await, left);
        }
        self.decide(&batch).await;
        let alone = [Check { count_denied: true, ..Check::new(&attempts, b"key", 1) }];
        assert!(!self.decide(&alone).await.admitted, "the rule is drained");
        assert_eq!(self.remaining(&attempts, "key").await, 0);
    }

    async fn one_key_twice_in_a_batch_pays_twice(&self) {
        let rule = hourly("twice", 3);
        let twice = [Check::new(&rule, b"key", 2), Check::new(&rule, b"key", 2)];
        assert!(!self.decide(&twice).await.admitted, "two and two are more than three");
        assert_eq!(self.remaining(&rule, "key").await, 3);
        let twice = [Check::new(&rule, b"key", 1), Check::new(&rule, b"key", 2)];
        assert!(self.decide(&twice).await.admitted);
        assert_eq!(self.remaining(&rule, "key").await, 0);
    }

    async fn an_empty_batch_is_admitted(&self) {
        assert!(self.decide(&[]).await.admitted);
    }
}
