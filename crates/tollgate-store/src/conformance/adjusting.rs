//! Adjustments: changes without a request.

use tollgate_core::{Adjustment, ChargeTimes, Overdraft};

use super::{Harness, Suite, hourly};
use crate::store::Check;

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn adjustments(&self) {
        self.refund_undoes_a_charge().await;
        self.grant_tops_up_to_full().await;
        self.charge_overdraws_up_to_its_overdraft().await;
        self.reset_deletes_the_state().await;
    }

    async fn refund_undoes_a_charge(&self) {
        let rule = hourly("refund", 10);
        let answer = self.decide(&[Check::new(&rule, b"key", 7)]).await;
        let charge = ChargeTimes::of(answer.at, &answer.outcomes[0]);
        let refunded = self.adjust(&rule, "key", Adjustment::Refund { units: 7, charge }).await;
        assert_eq!(refunded.remaining, 10);
        let again = self.adjust(&rule, "key", Adjustment::Refund { units: 7, charge }).await;
        assert_eq!(again.remaining, 10, "a grant stops at the capacity");
    }

    async fn grant_tops_up_to_full(&self) {
        let rule = hourly("grant", 10);
        self.take(&rule, "key", 10).await;
        for (units, left) in [(4, 4), (100, 10)] {
            assert_eq!(self.adjust(&rule, "key", Adjustment::Grant { units }).await.remaining, left);
        }
    }

    async fn charge_overdraws_up_to_its_overdraft(&self) {
        let rule = hourly("charge", 10);
        let charge = |units, overdraft| Adjustment::Charge { units, overdraft };
        assert_eq!(
            self.adjust(&rule, "new", charge(4, Overdraft::None)).await.remaining,
            6,
            "a key never seen too"
        );
        self.adjust(&rule, "key", charge(100, Overdraft::None)).await;
        self.adjust(&rule, "key", Adjustment::Grant { units: 1 }).await;
        assert_eq!(self.remaining(&rule, "key").await, 1, "the charge stopped at zero");
        self.adjust(&rule, "key", charge(6, Overdraft::OneCapacity)).await;
        assert!(self.take(&rule, "key", 0).await.is_admitted(), "a read of an overdrawn key is admitted");
        self.adjust(&rule, "key", Adjustment::Grant { units: 6 }).await;
        assert_eq!(self.remaining(&rule, "key").await, 1, "six units of debt were repaid");
        self.adjust(&rule, "key", charge(1_000, Overdraft::OneCapacity)).await;
        self.adjust(&rule, "key", Adjustment::Grant { units: 11 }).await;
        assert_eq!(self.remaining(&rule, "key").await, 1, "the debt is at most one capacity");
    }

    async fn reset_deletes_the_state(&self) {
        let rule = hourly("reset", 10);
        self.take(&rule, "key", 10).await;
        assert_eq!(self.adjust(&rule, "key", Adjustment::Reset).await.remaining, 10);
        assert_eq!(self.adjust(&rule, "unknown", Adjustment::Reset).await.remaining, 10);
    }
}
