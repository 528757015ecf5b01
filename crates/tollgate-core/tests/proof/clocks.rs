//! A clock that steps back or jumps never grants more, and no key waits for it to catch up.

use proptest::prelude::*;
use tollgate_core::{Algorithm as _, Amount, Quota, Span};

use crate::model::Exact;
use crate::quotas;
use crate::seed::check;
use crate::trace::{AppliedAct, Key, steady, wild};

/// Steps from a tick to decades, in microseconds.
fn steps() -> impl Strategy<Value = u64> {
    (0..50u32).prop_flat_map(|bits| 1..=1u64 << bits)
}

#[test]
fn stepping_back_never_raises_remaining() {
    check(1_000, (quotas::any(), wild(), steps()), |(quota, trace, step)| {
        let key = Key::after(&quota, &trace);
        let back = key.at(key.now.before(Span::from_micros(step)));
        prop_assert!(back.peek().remaining <= key.peek().remaining);
        prop_assert!(back.used() >= key.used());
        Ok(())
    });
}

#[test]
fn stepping_back_and_forward_again_gains_nothing() {
    check(600, (quotas::any(), steady(), 0..1_000u64), |(quota, trace, thousandths)| {
        let key = Key::after(&quota, &trace);
        let step = u128::from(quota.period().as_micros()) * u128::from(thousandths) / 1_000;
        let step = Span::from_micros(u64::try_from(step).unwrap_or(0));
        let mut back = key.at(key.now.before(step));
        back.take(0);
        back.take(quota.capacity());
        prop_assert!(back.at(key.now).peek().remaining <= key.peek().remaining);
        Ok(())
    });
}

#[test]
fn waiting_after_a_huge_step_back_ends_within_two_periods() {
    check(600, (quotas::any(), wild(), 10..1_000u64), |(quota, trace, periods)| {
        let mut key = Key::after(&quota, &trace);
        key.take(1); // So that the state is from now, and the step back huge for it, too.
        let period = quota.period().as_micros();
        let mut back = key.at(key.now.before(Span::from_micros(periods.saturating_mul(period))));
        if key.now.since(back.now).as_micros() < 10 * period {
            return Ok(()); // There was not that much time before.
        }
        for cost in [1, quota.capacity()] {
            let wait = back.take(cost).retry_after().unwrap_or(Span::ZERO);
            prop_assert!(wait.as_micros() <= 2 * period + 1, "{} waits {} of {} µs", cost, wait, period);
        }
        Ok(())
    });
}

/// A smaller step back is waited out: two periods ahead, plus the time that the algorithm looks
/// back (up to two windows and one that has begun).
#[test]
fn waiting_after_any_step_back_ends_within_five_periods() {
    check(600, (quotas::any(), wild(), steps()), |(quota, trace, step)| {
        let key = Key::after(&quota, &trace);
        let mut back = key.at(key.now.before(Span::from_micros(step)));
        let wait = back.take(quota.capacity()).retry_after().unwrap_or(Span::ZERO);
        let periods = match &quota {
            Quota::Bucket(_) | Quota::FixedWindow(_) => 2,
            Quota::SlidingLog(_) | Quota::SlidingParts(_) => 3,
            _ => 5,
        };
        // A state that is moved back by whole steps is up to one step late.
        let late = if let Quota::SlidingParts(it) = &quota { it.resolution().as_micros() } else { 1 };
        prop_assert!(wait.as_micros() <= periods * quota.period().as_micros() + late, "waits {}", wait);
        Ok(())
    });
}

#[test]
fn a_jumping_clock_refills_only_its_forward_movement() {
    check(600, (quotas::buckets(), wild()), |(quota, trace)| {
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only buckets") };
        let rate = Exact::new(bucket.rate().count.into(), bucket.rate().period.as_micros().into());
        let mut key = Key::new(&quota);
        let (mut forward, mut passed) = (0i128, 0i128);
        for (by, act) in trace {
            let before = key.now;
            key.advance(by);
            forward += i128::from(key.now.since(before).as_micros());
            if let did @ AppliedAct::Acquired(Amount::Exactly(_) | Amount::UpTo(_)) = key.resolve(act) {
                passed += key.perform(did).map_or(0, |outcome| outcome.units().into());
            }
            let bound = rate * Exact::from_integer(forward) + Exact::from_integer(bucket.capacity().into());
            prop_assert!(Exact::from_integer(passed) <= bound);
        }
        Ok(())
    });
}
