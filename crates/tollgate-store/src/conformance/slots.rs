//! Slots: held, renewed, released, and taken together with units or not at all.

use tollgate_core::{Adjustment, Amount, Concurrency, Owner, Rule, Span, Verdict};

use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

fn slot<'a>(rule: &'a Rule, key: &'a str, owner: u128) -> Check<'a> {
    Check { amount: Amount::Slot(Owner(owner)), ..Check::new(rule, key.as_bytes(), 0) }
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn slots(&self) {
        self.holders_never_exceed_the_slots().await;
        self.leases_expire().await;
        self.a_release_without_an_owner_frees_the_oldest_slots().await;
        self.a_renewed_lease_starts_again().await;
        self.a_renewal_never_takes_a_slot().await;
        self.slots_and_units_are_taken_together().await;
        self.a_refused_batch_keeps_the_slot_its_owner_held().await;
        self.an_amount_of_the_wrong_kind_is_never_admitted().await;
    }

    async fn holders_never_exceed_the_slots(&self) {
        let rule = rule("slots/held", Concurrency::new(2, Span::from_minutes(10)));
        for owner in [1, 2, 2, 1] {
            assert!(
                self.decide(&[slot(&rule, "key", owner)]).await.admitted,
                "renewing takes no second slot"
            );
        }
        assert!(!self.decide(&[slot(&rule, "key", 3)]).await.admitted);
        let release = |owner| Adjustment::Release { owner: Owner(owner) };
        assert_eq!(
            self.adjust(&rule, "key", release(3)).await.remaining,
            0,
            "a release without a slot frees nothing"
        );
        assert_eq!(self.adjust(&rule, "key", release(1)).await.remaining, 1);
        assert_eq!(self.adjust(&rule, "key", release(1)).await.remaining, 1, "once");
        assert!(self.decide(&[slot(&rule, "key", 3)]).await.admitted);
    }

    async fn leases_expire(&self) {
        let rule = rule("slots/lapse", Concurrency::new(1, Span::from_millis(200)));
        assert!(self.decide(&[slot(&rule, "key", 1)]).await.admitted);
        self.harness.pass(Span::from_millis(200)).await;
        assert!(self.decide(&[slot(&rule, "key", 2)]).await.admitted, "the lease of a crashed owner expired");
    }

    async fn a_release_without_an_owner_frees_the_oldest_slots(&self) {
        let rule = rule("slots/oldest", Concurrency::new(3, Span::from_minutes(10)));
        let oldest = |slots| Adjustment::ReleaseOldest { slots };
        assert_eq!(self.adjust(&rule, "key", oldest(2)).await.remaining, 3, "the count stays at zero");
        for owner in [1, 2, 3] {
            assert!(self.decide(&[slot(&rule, "key", owner)]).await.admitted);
            self.harness.pass(Span::from_millis(5)).await;
        }
        let grant = Adjustment::Grant { units: 3 };
        assert_eq!(self.adjust(&rule, "key", grant).await.remaining, 0, "a grant is of units");
        assert_eq!(self.adjust(&rule, "key", oldest(1)).await.remaining, 1);
        let release = |owner| Adjustment::Release { owner: Owner(owner) };
        assert_eq!(self.adjust(&rule, "key", release(1)).await.remaining, 1, "the first was freed");
        assert_eq!(self.adjust(&rule, "key", release(2)).await.remaining, 2);
        assert_eq!(self.adjust(&rule, "key", oldest(0)).await.remaining, 2);
        assert_eq!(self.adjust(&rule, "key", oldest(9)).await.remaining, 3);
        let units = hourly("slots/oldest units", 2);
        assert_eq!(self.take(&units, "key", 2).await.remaining, 0);
        assert_eq!(self.adjust(&units, "key", oldest(1)).await.remaining, 0, "units are not slots");
    }

    async fn a_renewed_lease_starts_again(&self) {
        let rule = rule("slots/renewed", Concurrency::new(1, Span::from_secs(1)));
        let renew = Adjustment::Renew { owner: Owner(1) };
        assert!(self.decide(&[slot(&rule, "key", 1)]).await.admitted);
        for _ in 0..3 {
            self.harness.pass(Span::from_millis(600)).await;
            let renewed = self.adjust(&rule, "key", renew).await;
            assert_eq!(
                (renewed.units(), renewed.remaining),
                (1, 0),
                "1.8 s after a lease of one second began"
            );
            assert!(!self.decide(&[slot(&rule, "key", 2)]).await.admitted);
        }
        self.harness.pass(Span::from_secs(1)).await;
        assert_eq!(self.adjust(&rule, "key", renew).await.units(), 0, "the lease has ended");
        assert!(self.decide(&[slot(&rule, "key", 2)]).await.admitted);
    }

    async fn a_renewal_never_takes_a_slot(&self) {
        let rule = rule("slots/not renewed", Concurrency::new(2, Span::from_minutes(10)));
        let renew = |owner| Adjustment::Renew { owner: Owner(owner) };
        let unknown = self.adjust(&rule, "key", renew(1)).await;
        assert_eq!((unknown.units(), unknown.remaining), (0, 2));
        assert!(self.decide(&[slot(&rule, "key", 1)]).await.admitted);
        self.adjust(&rule, "key", Adjustment::Release { owner: Owner(1) }).await;
        assert_eq!(self.adjust(&rule, "key", renew(1)).await.units(), 0, "it was released");
        assert_eq!(self.take(&rule, "key", 0).await.remaining, 2);
        let units = hourly("slots/renewed units", 2);
        assert_eq!(self.adjust(&units, "key", renew(1)).await.units(), 0);
    }

    async fn slots_and_units_are_taken_together(&self) {
        let slots = rule("slots/together", Concurrency::new(1, Span::from_minutes(10)));
        let units = hourly("slots/units", 2);
        let batch = |owner| [slot(&slots, "key", owner), Check::new(&units, b"key", 1)];
        assert!(self.decide(&batch(1)).await.admitted);
        assert!(!self.decide(&batch(2)).await.admitted, "no slot");
        assert_eq!(self.remaining(&units, "key").await, 1, "so no units");
        self.adjust(&slots, "key", Adjustment::Release { owner: Owner(1) }).await;
        assert!(self.decide(&batch(2)).await.admitted);
        self.adjust(&slots, "key", Adjustment::Release { owner: Owner(2) }).await;
        assert!(!self.decide(&batch(3)).await.admitted, "no units");
        assert!(self.decide(&[slot(&slots, "key", 4)]).await.admitted, "the refused batch took no slot");
    }

    async fn a_refused_batch_keeps_the_slot_its_owner_held(&self) {
        let slots = rule("slots/kept", Concurrency::new(1, Span::from_minutes(10)));
        let units = hourly("slots/kept units", 3);
        assert!(self.decide(&[slot(&slots, "key", 1)]).await.admitted);
        let two = || Check::new(&units, b"key", 2);
        assert!(!self.decide(&[slot(&slots, "key", 1), two(), two()]).await.admitted, "four of three");
        assert!(!self.decide(&[slot(&slots, "key", 2)]).await.admitted, "the slot is still held");
        assert_eq!(self.remaining(&units, "key").await, 3);
    }

    async fn an_amount_of_the_wrong_kind_is_never_admitted(&self) {
        let slots = rule("slots/kind", Concurrency::new(1, Span::from_minutes(10)));
        let units = hourly("slots/no slots", 2);
        assert_eq!(self.take(&slots, "key", 1).await.verdict, Verdict::Never);
        assert_eq!(self.decide(&[slot(&units, "key", 1)]).await.outcomes[0].verdict, Verdict::Never);
        assert_eq!(self.take(&slots, "key", 0).await.remaining, 1, "a read is admitted");
    }
}
