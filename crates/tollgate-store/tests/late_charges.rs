//! Charges under a rule that another one has replaced, by requests that began before the reload.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate_core::{Amount, Bucket, Rate, Rule, Span, Timestamp};
use tollgate_store::{Check, ManualClock, MemoryStore};

fn take(store: &MemoryStore<ManualClock>, rule: &Rule, amount: Amount) -> u64 {
    store.decide_now(&[Check { amount, ..Check::new(rule, b"key", 0) }]).outcomes[0].units()
}

/// The state of the old rule has expired, and a charge begins it anew, without the usage of the new rule. Found by
/// seed 5068 of the fault simulator: a node that was frozen during a reload decided the requests of that time.
#[test]
fn a_late_charge_under_a_replaced_rule_admits_at_most_the_old_capacity_more() {
    let rule = |count| Rule::new("user", Bucket::new(Rate::per_second(count)).unwrap());
    let (old, new) = (rule(10), rule(20).replacing(&rule(10)));
    let clock = ManualClock::at(Timestamp::from_secs(1_900_000_000));
    let store = MemoryStore::with_seed(100, clock.clone(), 7);
    assert_eq!(take(&store, &old, Amount::Exactly(1)), 1);
    assert_eq!(take(&store, &new, Amount::Exactly(1)), 1);
    clock.advance(Span::from_secs(5));
    assert_eq!(take(&store, &new, Amount::UpTo(100)), 20);
    assert_eq!(take(&store, &old, Amount::Exactly(1)), 1, "the old rule does not know the new one");
    // As much is available under a raise as under the old rule.
    assert_eq!(take(&store, &new, Amount::UpTo(100)), 9);
    assert_eq!(take(&store, &new, Amount::UpTo(100)), 0);
    assert_eq!(take(&store, &old, Amount::UpTo(100)), 0, "charges are repeated while the old state counts");
}
