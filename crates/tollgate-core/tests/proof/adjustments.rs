//! Refunds, grants, forced charges, and carrying over to another quota.

use proptest::prelude::*;
use tollgate_core::{Adjustment, Bucket, ChargeTimes, Outcome, Overdraft, Quota, Rate, Span, Timestamp};

use crate::quotas;
use crate::seed::check;
use crate::trace::{Key, steady, wild};

/// Refunds a take that had this outcome at this time.
fn refund(key: &mut Key<'_>, outcome: &Outcome, at: Timestamp) {
    key.adjust(Adjustment::Refund { units: outcome.units(), charge: ChargeTimes::of(at, outcome) });
}

#[test]
fn a_refund_right_after_a_take_undoes_it() {
    check(800, (quotas::whole(), steady(), 1..=1_000u64, steady()), |(quota, history, share, future)| {
        let mut untouched = Key::after(&quota, &history);
        let mut refunded = untouched.clone();
        let units = (refunded.peek().remaining / share).max(1);
        let taken = refunded.take(units);
        let taken_at = refunded.now;
        refund(&mut refunded, &taken, taken_at);
        prop_assert_eq!(refunded.peek(), untouched.peek());
        for (by, act) in future {
            untouched.advance(by);
            refunded.advance(by);
            let (did, expected) = untouched.act(act);
            prop_assert_eq!(refunded.perform(did), expected, "{:?} at {:?}", did, untouched.now);
        }
        Ok(())
    });
}

#[test]
fn a_refund_of_expired_units_refunds_nothing() {
    check(600, (quotas::any(), steady(), 1..=1_000u64), |(quota, history, share)| {
        let mut key = Key::after(&quota, &history);
        let taken = key.take((key.peek().remaining / share).max(1));
        let taken_at = key.now;
        // Overdrawn keys take longer to recover; the units of a step do not.
        key.now = taken_at + quota.period() + quota.period();
        key.take(key.peek().remaining);
        let before = key.peek();
        refund(&mut key, &taken, taken_at);
        prop_assert_eq!(key.peek(), before);
        Ok(())
    });
}

#[test]
fn a_refund_gives_no_more_than_was_taken() {
    check(600, (quotas::any(), wild(), 1..=1_000u64, 0..=2_000u64), |(quota, history, share, later)| {
        let mut key = Key::after(&quota, &history);
        let taken = key.take((key.peek().remaining / share).max(1));
        let taken_at = key.now;
        let later = u128::from(quota.period().as_micros()) * u128::from(later) / 1_000;
        key.now = taken_at + Span::from_micros(u64::try_from(later).unwrap_or(0));
        let before = key.peek().remaining;
        refund(&mut key, &taken, taken_at);
        let after = key.peek().remaining;
        prop_assert!(before <= after && after <= before + taken.units());
        prop_assert!(after <= quota.capacity());
        Ok(())
    });
}

/// The units of a request that came before are repaid first, so the units of this request may be owed
/// although as much time has passed as an empty bucket needs for them.
#[test]
fn a_bucket_refunds_what_is_owed_and_not_what_time_has_returned() {
    let bucket = Bucket::new(Rate::per_second(1)).and_then(|it| it.with_burst(10)).unwrap().into();
    for (seconds, refunded) in [(0, 2), (1, 2), (4, 2), (5, 1), (6, 0), (7, 0)] {
        let mut key = Key::new(&bucket);
        key.take(4);
        let (taken, taken_at) = (key.take(2), key.now);
        key.now = key.now + Span::from_secs(seconds);
        // Another request spends, so that there is something that could be refunded wrongly.
        key.take(3);
        let before = key.peek().remaining;
        refund(&mut key, &taken, taken_at);
        assert_eq!(key.peek().remaining, before + refunded, "after {seconds} s");
    }
}

#[test]
fn a_grant_admits_at_most_its_units_and_never_more_than_a_rested_key() {
    check(600, (quotas::any(), wild(), any::<u64>()), |(quota, history, random)| {
        let key = Key::after(&quota, &history);
        let before = key.peek().remaining;
        for units in [0, 1, random % quota.capacity(), random] {
            let mut key = key.clone();
            key.adjust(Adjustment::Grant { units });
            let after = key.peek().remaining;
            prop_assert!(before <= after && after <= before.saturating_add(units).min(quota.capacity()));
        }
        let mut granted = key;
        granted.adjust(Adjustment::Grant { units: u64::MAX });
        prop_assert_eq!(granted.peek().remaining, quota.capacity());
        prop_assert_eq!(granted.used(), 0);
        let capacity = granted.take(quota.capacity());
        prop_assert!(capacity.is_admitted() && capacity.remaining == 0);
        Ok(())
    });
}

#[test]
fn a_forced_charge_stops_at_its_overdraft() {
    check(600, (quotas::any(), wild(), any::<u64>()), |(quota, history, random)| {
        let key = Key::after(&quota, &history);
        let before = key.used();
        for (overdraft, floor) in
            [(Overdraft::None, quota.capacity()), (Overdraft::OneCapacity, 2 * quota.capacity())]
        {
            for units in [0, 1, random % quota.capacity(), random, u64::MAX] {
                let mut key = key.clone();
                key.adjust(Adjustment::Charge { units, overdraft });
                let expected = before.saturating_add(units).min(floor.max(before));
                prop_assert_eq!(key.used(), expected, "{} with {:?}", units, overdraft);
            }
        }
        Ok(())
    });
}

#[test]
fn usage_carries_over_to_another_quota() {
    check(800, (quotas::any(), quotas::any(), wild()), |(before, after, history)| {
        let key = Key::after(&before, &history);
        let used = key.used();
        let mut carried = Key::new(&after).at(key.now);
        carried.state = after.carry_over(&before, &key.state, key.now);
        if before == after {
            prop_assert_eq!(carried.state, key.state);
            return Ok(());
        }
        // Instants are kept where both have them: a shorter window sees fewer of them, a longer one
        // those that the shorter one had not dropped yet.
        if std::mem::discriminant(&before) == std::mem::discriminant(&after)
            && !matches!(after, Quota::Bucket(_))
            && before.period() != after.period()
        {
            let is_shorter = after.period() < before.period();
            let kept = if is_shorter { carried.used() <= used } else { carried.used() >= used };
            prop_assert!(kept);
            return Ok(());
        }
        // Windows keep units above their limit; a bucket is cut at its capacity.
        prop_assert_eq!(carried.used().min(after.capacity()), used.min(after.capacity()));
        prop_assert_eq!(carried.peek().remaining, after.capacity().saturating_sub(used));
        Ok(())
    });
}
