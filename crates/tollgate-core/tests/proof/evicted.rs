//! What stands for a state that was evicted is never looser than that state.

use proptest::prelude::*;
use tollgate_core::Quota;

use crate::quotas;
use crate::seed::check;
use crate::trace::{Key, steady, takes};

/// The key with the bound of its state, which is all that a store keeps.
fn bound<'a>(key: &Key<'a>) -> Key<'a> {
    let (until, mut bound) = (key.quota.forgettable_at(&key.state), key.clone());
    bound.state = key.quota.spent_until(key.used(), until, key.now);
    bound
}

#[test]
fn a_bound_admits_nothing_that_its_state_refuses() {
    check(1_500, (quotas::any(), steady(), takes()), |(quota, history, later)| {
        let mut key = Key::after(&quota, &history);
        let mut stands_for = bound(&key);
        for (by, act) in later {
            key.advance(by);
            stands_for.now = key.now;
            let did = stands_for.resolve(act);
            let admitted = stands_for.clone().perform(did).is_some_and(|it| it.is_admitted());
            let exact = key.clone().perform(did).is_some_and(|it| it.is_admitted());
            prop_assert!(exact || !admitted, "{:?}: {:?} instead of {:?}", did, stands_for.state, key.state);
        }
        Ok(())
    });
}

#[test]
fn a_bound_that_goes_on_spending_admits_nothing_that_its_state_would_refuse_after_the_same() {
    check(1_500, (quotas::whole(), steady(), takes()), |(quota, history, later): (Quota, _, _)| {
        let mut key = Key::after(&quota, &history);
        let mut stands_for = bound(&key);
        for (by, act) in later {
            key.advance(by);
            stands_for.now = key.now;
            let did = stands_for.resolve(act);
            if stands_for.perform(did).is_some_and(|it| it.is_admitted()) {
                let exact = key.perform(did);
                prop_assert!(exact.is_some_and(|it| it.is_admitted()), "{:?} at {:?}", did, key.state);
            }
        }
        Ok(())
    });
}
