//! Permits of a limiter, and settlement without waiting.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use pollster::block_on;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, Fate, Limiter, ManualClock, MemoryStore, Outcome, Policy, Rule, Span, Store,
    StoreError, Timestamp,
};

const POLICY: &str = "
limits:
  - {name: units, by: user, bucket: 10/minute}
  - {name: slots, by: user, slots: 1, ttl: 1m}
";

fn policy() -> Policy {
    Policy::parse(POLICY).unwrap()
}

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

fn call() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

/// Returns the remaining units of `units`, without a charge.
fn left<S: Store>(limiter: &Limiter<S>) -> u64 {
    let decision = block_on(limiter.consider(&call())).unwrap();
    let units = decision.limits().find(|it| it.name() == "units").unwrap();
    units.remaining()
}

/// A store that answers nothing without waiting, as a remote one.
pub(crate) struct Remote(pub(crate) MemoryStore<ManualClock>);

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.0.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.0.adjust(rule, key, adjustment).await
    }
}

#[test]
fn a_dropped_permit_releases_its_slots_in_memory() {
    let limiter = Limiter::with_store(policy(), memory());
    let permit = limiter.acquire_now(&call()).unwrap();
    assert_eq!((permit.slots(), permit.receipt().is_some()), (1, true));
    let refused = limiter.acquire_now(&call()).unwrap_err();
    assert_eq!((refused.fate(), refused.limiting().unwrap().name()), (Fate::Refused, "slots"));
    drop((permit, refused));
    drop(block_on(limiter.acquire(&call())).unwrap());
    assert_eq!(left(&limiter), 8, "a permit that is dropped keeps its charge of units");
}

#[test]
fn a_permit_outlives_its_policy_and_may_move_to_another_thread() {
    let limiter = Limiter::with_store(policy(), memory());
    let permit = limiter.acquire_now(&call()).unwrap();
    let limiter = limiter.with_policy(policy());
    std::thread::spawn(move || drop(permit)).join().unwrap();
    assert!(limiter.acquire_now(&call()).is_ok());
}

#[test]
fn a_dropped_permit_of_a_store_that_waits_is_released_by_the_next_reconcile() {
    let limiter = Limiter::with_store(policy(), Remote(memory()));
    let permit = block_on(limiter.acquire(&call())).unwrap();
    drop(permit);
    assert!(block_on(limiter.acquire(&call())).is_err(), "the release is deferred");
    assert_eq!(block_on(limiter.reconcile()), 1);
    let permit = block_on(limiter.acquire(&call())).unwrap();
    block_on(permit.release()).unwrap();
    assert_eq!(block_on(limiter.reconcile()), 0, "nothing is left to release");
    assert!(block_on(limiter.acquire(&call())).is_ok());
}

#[test]
fn a_forgotten_permit_ends_with_its_lease() {
    let store = memory();
    let clock = store.clock().clone();
    let limiter = Limiter::with_store(policy(), store);
    limiter.acquire_now(&call()).unwrap().forget();
    assert!(limiter.acquire_now(&call()).is_err());
    clock.advance(Span::from_minutes(1));
    assert!(limiter.acquire_now(&call()).is_ok());
}

#[test]
fn a_permit_is_settled_or_refunded_and_releases_its_slots() {
    let settle = |limiter: &Limiter<MemoryStore<ManualClock>>, cost| {
        limiter.acquire_now(&call().cost(4)).unwrap().settle_now(cost);
        left(limiter)
    };
    let limiter = Limiter::with_store(policy(), memory());
    assert_eq!(settle(&limiter, 1), 9);
    assert_eq!(settle(&limiter, 6), 3);
    limiter.acquire_now(&call()).unwrap().refund_now();
    assert_eq!(left(&limiter), 3);

    let remote = Limiter::with_store(policy(), Remote(memory()));
    block_on(block_on(remote.acquire(&call().cost(4))).unwrap().settle(1)).unwrap();
    assert_eq!(left(&remote), 9);
    block_on(block_on(remote.acquire(&call().cost(4))).unwrap().refund()).unwrap();
    assert_eq!(left(&remote), 9);
}

#[test]
fn decisions_in_memory_are_settled_refunded_and_released_without_waiting() {
    let limiter = Limiter::with_store(policy(), memory());
    let decision = limiter.check(&call().cost(5));
    limiter.settle_now(&decision, 2);
    assert_eq!(left(&limiter), 8);
    assert!(!limiter.check(&call()).is_allowed(), "a settlement does not release slots");
    limiter.release_now(&decision);
    let decision = limiter.check(&call().cost(8));
    assert!(decision.is_allowed());
    limiter.refund_now(&decision);
    assert_eq!(left(&limiter), 8);
    assert!(limiter.check(&call()).is_allowed(), "a refund releases slots, too");
}

#[test]
fn a_store_that_waits_is_not_settled_without_waiting() {
    let limiter = Limiter::with_store(policy(), Remote(memory()));
    let receipt = block_on(limiter.decide(&call().cost(5))).receipt().unwrap();
    assert!(!limiter.try_settle_receipt(&receipt, 1));
    assert!(!limiter.try_refund_receipt(&receipt));
    assert!(!limiter.try_release_receipt(&receipt));
    block_on(limiter.release_receipt(&receipt)).unwrap();
    assert_eq!(left(&limiter), 5);
}
