//! Unit leases: units that are charged in advance.

use tollgate_core::{
    Adjustment, Amount, FixedWindow, LeaseRequest, Outcome, Rate, Rule, SlidingLog, SlidingWindow, Span,
    Timestamp,
};

use super::{Harness, Suite, hourly, rule};
use crate::store::{Answer, Check};

/// A lease of this many units for a minute.
fn lease(units: u32) -> Amount {
    Amount::Lease(LeaseRequest { units, ttl: Span::from_minutes(1) })
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn leases(&self) {
        self.lease_of_a_bucket_leaves_the_refill_of_two_lives_out().await;
        self.lease_is_never_refused().await;
        self.lease_ends_with_the_rest_of_a_window().await;
        self.returned_units_are_available_again().await;
        self.late_return_changes_nothing().await;
        self.refused_batch_leases_nothing().await;
        self.limits_without_leases_lease_nothing().await;
        self.lease_is_charged_to_a_replaced_rule_as_its_own().await;
    }

    /// Nodes with the rule before a change count beside nodes with leases of the rule after it.
    async fn lease_is_charged_to_a_replaced_rule_as_its_own(&self) {
        let before = hourly("lease-before", 60);
        self.take(&before, "key", 1).await;
        let after = hourly("lease-before", 120).replacing(&before);
        assert_eq!(self.lease(&after, "key", 4).await.0.units(), 4);
        // Two lives are two units of the first rule, of which one was spent.
        assert!(self.remaining(&before, "key").await <= 54);
    }

    async fn lease(&self, rule: &Rule, key: &str, units: u32) -> (Outcome, Timestamp) {
        let check = Check { amount: lease(units), ..Check::new(rule, key.as_bytes(), 0) };
        let Answer { at, outcomes, .. } = self.decide(&[check]).await;
        (outcomes[0], at)
    }

    async fn return_lease(&self, rule: &Rule, key: &str, units: u32, taken_at: Timestamp) -> Outcome {
        let back = Adjustment::ReturnLease { units, taken_at, ttl: Span::from_minutes(1) };
        self.adjust(rule, key, back).await
    }

    async fn lease_of_a_bucket_leaves_the_refill_of_two_lives_out(&self) {
        // One unit comes back in six minutes, so two lives of a minute are a third of a unit.
        let rule = hourly("lease", 10);
        let (outcome, _) = self.lease(&rule, "key", 4).await;
        assert_eq!((outcome.units(), outcome.remaining), (4, 5));
        assert_eq!(self.lease(&rule, "key", 100).await.0.units(), 5, "the rest");
        assert!(!self.take(&rule, "key", 1).await.is_admitted());
    }

    async fn lease_is_never_refused(&self) {
        let rule = hourly("lease-empty", 10);
        self.take(&rule, "key", 10).await;
        let (outcome, _) = self.lease(&rule, "key", 4).await;
        assert!(outcome.is_admitted(), "{outcome:?}");
        assert_eq!((outcome.units(), outcome.remaining), (0, 0));
    }

    async fn lease_ends_with_the_rest_of_a_window(&self) {
        let fixed = rule("lease-fixed", FixedWindow::anchored(Rate::per_hour(10)));
        let sliding = rule("lease-sliding", SlidingWindow::new(Rate::per_day(10)));
        for rule in [&fixed, &sliding] {
            assert_eq!(self.lease(rule, "key", 4).await.0.units(), 4);
            self.take(rule, "key", 1).await;
            let (outcome, at) = self.lease(rule, "key", 100).await;
            assert_eq!((outcome.units(), outcome.remaining), (5, 0));
            assert_eq!(self.return_lease(rule, "key", 5, at).await.remaining, 5);
        }
    }

    async fn returned_units_are_available_again(&self) {
        let rule = hourly("lease-return", 10);
        let (outcome, at) = self.lease(&rule, "key", 8).await;
        assert_eq!((outcome.units(), outcome.remaining), (8, 1));
        assert_eq!(self.return_lease(&rule, "key", 3, at).await.remaining, 4);
        assert!(self.take(&rule, "key", 4).await.is_admitted());
    }

    async fn late_return_changes_nothing(&self) {
        let rule = hourly("lease-late", 10);
        let (_, at) = self.lease(&rule, "key", 8).await;
        let ended = at.before(Span::from_minutes(1) + Span::from_micros(1));
        assert_eq!(self.return_lease(&rule, "key", 8, ended).await.remaining, 1);
        let in_the_future = at + Span::from_minutes(5);
        assert_eq!(self.return_lease(&rule, "key", 8, in_the_future).await.remaining, 1);
    }

    async fn refused_batch_leases_nothing(&self) {
        let (rule, other) = (hourly("lease-batch", 10), hourly("lease-refusing", 1));
        let with_lease = |cost| {
            [
                Check::new(&rule, b"key", 1),
                Check { amount: lease(4), ..Check::new(&rule, b"key", 0) },
                Check::new(&other, b"key", cost),
            ]
        };
        let refused = self.decide(&with_lease(2)).await;
        assert!(!refused.admitted);
        assert_eq!(refused.outcomes.iter().map(Outcome::units).sum::<u64>(), 0);
        assert_eq!(self.remaining(&rule, "key").await, 10);
        let admitted = self.decide(&with_lease(1)).await;
        assert!(admitted.admitted);
        assert_eq!(admitted.outcomes.iter().map(Outcome::units).collect::<Vec<_>>(), [1, 4, 1]);
        assert_eq!(self.remaining(&rule, "key").await, 5);
    }

    async fn limits_without_leases_lease_nothing(&self) {
        let log = rule("lease-log", SlidingLog::new(Rate::per_hour(10)));
        let tally =
            rule("lease-tally", FixedWindow::tally(10, tollgate_core::Window::Epoch(Span::from_days(1))));
        for rule in [&log, &tally] {
            let (outcome, _) = self.lease(rule, "key", 4).await;
            assert!(outcome.is_admitted() && outcome.units() == 0 && outcome.remaining == 10, "{outcome:?}");
        }
    }
}
