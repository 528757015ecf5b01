//! The predictions of an answer are true.

use proptest::prelude::*;
use tollgate_core::{Adjustment, Amount, Owner, Quota, Span, Timestamp, Verdict};

use crate::quotas;
use crate::seed::{Holds, check};
use crate::trace::{Key, Trace, steady, wild};

/// Runs `property` on keys of every kind after random histories.
#[track_caller]
fn check_any(histories: impl Strategy<Value = Trace>, property: impl Fn(Key<'_>) -> Holds) {
    check(600, (quotas::any(), histories), |(quota, trace)| property(Key::after(&quota, &trace)));
}

const TICK: Span = Span::from_micros(1);

#[test]
fn a_refused_request_passes_at_retry_after_and_not_one_tick_before() {
    check_any(wild(), |mut key| {
        for cost in [1, key.quota.capacity() / 2, key.quota.capacity()] {
            let Some(wait) = key.take(cost).retry_after() else { continue };
            let then = key.now + wait;
            prop_assert!(wait > Span::ZERO);
            prop_assert!(!key.at(then.before(TICK)).take(cost).is_admitted(), "{} passes early", cost);
            prop_assert!(key.at(then).take(cost).is_admitted(), "{} does not pass at {:?}", cost, then);
        }
        Ok(())
    });
}

#[test]
fn the_remaining_units_pass_and_one_more_does_not() {
    check_any(wild(), |key| {
        let remaining = key.peek().remaining;
        let mut at_once = key.clone();
        prop_assert_eq!(at_once.take(remaining).units(), remaining);
        prop_assert_eq!(at_once.peek().remaining, 0);
        prop_assert!(!at_once.take(1).is_admitted());
        prop_assert!(!key.clone().take(remaining + 1).is_admitted());
        let mut one_by_one = key;
        for _ in 0..remaining.min(200) {
            prop_assert!(one_by_one.take(1).is_admitted());
        }
        prop_assert_eq!(one_by_one.take(1).is_admitted(), remaining > 200);
        Ok(())
    });
}

#[test]
fn a_rested_key_may_spend_its_capacity() {
    check(300, quotas::any(), |quota| {
        let mut key = Key::new(&quota);
        prop_assert_eq!(key.peek().remaining, quota.capacity());
        prop_assert_eq!(key.take(quota.capacity()).units(), quota.capacity());
        Ok(())
    });
}

#[test]
fn reads_and_refusals_change_nothing() {
    check_any(steady(), |key| {
        let before = key.state.encode();
        for units in [0, key.peek().remaining + 1, key.quota.capacity() + 1, u64::MAX] {
            let mut key = key.clone();
            prop_assert_eq!(key.take(units).units(), 0);
            prop_assert_eq!(key.state.encode(), before.clone(), "acquiring {}", units);
        }
        let mut key = key;
        key.ask(Amount::UpTo(0));
        key.ask(Amount::Slot(Owner(1)));
        key.adjust(Adjustment::Release { owner: Owner(1) });
        prop_assert_eq!(key.state.encode(), before);
        Ok(())
    });
}

#[test]
fn a_cost_above_capacity_is_never_admitted() {
    check_any(wild(), |key| {
        let resting = [Span::ZERO, TICK, key.quota.period(), Span::from_days(10_000)];
        for (rest, cost) in resting.into_iter().zip([key.quota.capacity() + 1, u64::MAX].into_iter().cycle())
        {
            let mut key = key.at(key.now + rest);
            prop_assert_eq!(key.take(cost).verdict, Verdict::Never);
        }
        Ok(())
    });
}

#[test]
fn used_units_are_capacity_minus_remaining() {
    check_any(wild(), |key| {
        prop_assert_eq!(key.quota.capacity().saturating_sub(key.used()), key.peek().remaining);
        Ok(())
    });
}

#[test]
fn up_to_takes_the_available_units() {
    check_any(wild(), |key| {
        let remaining = key.peek().remaining;
        for most in [0, 1, remaining / 2, remaining, remaining + 1, u64::MAX] {
            let mut key = key.clone();
            let outcome = key.ask(Amount::UpTo(most));
            prop_assert_eq!(outcome.units(), most.min(remaining));
            prop_assert_eq!(outcome.is_admitted(), most == 0 || remaining > 0);
            prop_assert_eq!(outcome.remaining, remaining - outcome.units());
        }
        Ok(())
    });
}

#[test]
fn an_expired_state_answers_like_a_fresh_one_and_not_before() {
    check_any(steady(), |key| {
        let then = key.quota.expires_at(&key.state);
        let rested = key.at(then.max(key.now));
        let fresh = Key::new(key.quota).at(rested.now);
        for units in [0, 1, key.quota.capacity(), u64::MAX] {
            prop_assert_eq!(rested.clone().take(units), fresh.clone().take(units));
        }
        prop_assert_eq!(rested.used(), 0);
        if then > key.now {
            prop_assert!(key.at(then.before(TICK)).used() > 0, "forgettable too late");
        }
        Ok(())
    });
}

#[test]
fn an_empty_state_is_expired_at_any_time() {
    let rest = prop_oneof![Just(0u64), 1..=u64::MAX >> 8];
    let windows = prop_oneof![
        quotas::fixed_windows(),
        quotas::sliding_windows(),
        quotas::sliding_parts(),
        quotas::strict_parts(),
        quotas::sliding_logs()
    ];
    check(300, (windows, wild(), rest), |(quota, trace, now)| {
        let mut key = Key::after(&quota, &trace);
        key.take(1);
        key.adjust(Adjustment::Grant { units: u64::MAX });
        prop_assert_eq!(quota.expires_at(&key.state), Timestamp::EPOCH);
        let mut fresh = Key::new(&quota).at(Timestamp::from_micros(now));
        prop_assert_eq!(key.at(fresh.now).take(1), fresh.take(1));
        Ok(())
    });
}

#[test]
fn after_reset_after_the_key_is_fresh() {
    check_any(wild(), |mut key| {
        let outcome = key.take(0);
        let rested = key.at(key.now + outcome.reset_after);
        prop_assert_eq!(rested.peek().remaining, key.quota.capacity());
        if outcome.remaining < outcome.limit {
            prop_assert!(outcome.reset_after > Span::ZERO);
        }
        Ok(())
    });
}

/// Checks that the amounts of the traces reach every verdict.
#[test]
fn traces_reach_every_verdict() {
    let seen = std::cell::Cell::new([0u32; 4]);
    check(200, (quotas::any(), wild()), |(quota, trace): (Quota, Trace)| {
        let mut key = Key::new(&quota);
        for (by, act) in trace {
            key.advance(by);
            let mut counts = seen.get();
            match key.act(act).1.map(|outcome| outcome.verdict) {
                Some(Verdict::Admitted { .. }) => counts[0] += 1,
                Some(Verdict::Refused { .. }) => counts[1] += 1,
                Some(Verdict::Never) => counts[2] += 1,
                None => counts[3] += 1,
            }
            seen.set(counts);
        }
        Ok(())
    });
    let seen = seen.get();
    assert!(seen.iter().all(|&times| times > 100), "admitted, refused, never, no answer: {seen:?}");
}
