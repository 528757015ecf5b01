//! The bound that replaces an evicted state is never looser than that state.

use proptest::prelude::*;
use tollgate_core::Quota;

use crate::quotas;
use crate::seed::check;
use crate::trace::{Key, steady, takes};

/// Returns the key with the bound of its state, which is everything that a store keeps.
fn bound<'a>(key: &Key<'a>) -> Key<'a> {
    let (until, mut bound) = (key.quota.expires_at(&key.state), key.clone());
    bound.state = key.quota.spent_until(key.used(), until, key.now);
    bound
}

/// Compares a bound with its state while time passes. With `spends`, both are charged with the
/// units that the bound admits.
#[track_caller]
fn check_bounds(quotas: impl Strategy<Value = Quota>, spends: bool) {
    check(1_500, (quotas, steady(), takes()), |(quota, history, later)| {
        let mut key = Key::after(&quota, &history);
        let mut stands_for = bound(&key);
        for (by, act) in later {
            key.advance(by);
            stands_for.now = key.now;
            let did = stands_for.resolve(act);
            let (mut after, mut exact) = (stands_for.clone(), key.clone());
            if !after.perform(did).is_some_and(|it| it.is_admitted()) {
                continue;
            }
            let admitted = exact.perform(did).is_some_and(|it| it.is_admitted());
            prop_assert!(admitted, "{:?}: {:?} instead of {:?}", did, stands_for.state, key.state);
            if spends {
                (stands_for, key) = (after, exact);
            }
        }
        Ok(())
    });
}

#[test]
fn a_bound_admits_nothing_that_its_state_refuses() {
    check_bounds(quotas::any(), false);
}

/// Without windows in parts, which merge differently after the same requests.
#[test]
fn a_bound_that_continues_to_spend_admits_nothing_that_its_state_refuses() {
    check_bounds(quotas::whole(), true);
}
