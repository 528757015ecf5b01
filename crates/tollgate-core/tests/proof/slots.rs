//! Slots: concurrent holders, lease duration, and late or lost releases.

use proptest::prelude::*;
use tollgate_core::{
    Adjustment, Amount, ChargeTimes, Concurrency, Overdraft, Owner, Quota, Span, State, Timestamp, Verdict,
};

use crate::model::Slots;
use crate::seed::{Holds, check};
use crate::trace::START;

#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire(u128),
    Release(u128),
    Renew(u128),
    Look,
}

/// Thousandths of a TTL, forward or back, and the act at that time.
type Trace = Vec<(i64, Act)>;

fn limits() -> impl Strategy<Value = Concurrency> {
    let lives = prop_oneof![Just(1u64), 2..100u64, Just(30_000_000), Just(1 << 47)];
    (1..6u32, lives)
        .prop_map(|(slots, ttl)| Concurrency::new(slots, Span::from_micros(ttl)).expect("a valid limit"))
}

fn traces() -> impl Strategy<Value = Trace> {
    let moves = prop_oneof![
        3 => Just(0i64),
        6 => 0..600i64,
        1 => Just(1_000i64),
        1 => -3_000..0i64,
        1 => -40_000..40_000i64,
    ];
    let act = prop_oneof![
        6 => (0..8u128).prop_map(Act::Acquire),
        2 => (0..8u128).prop_map(Act::Release),
        2 => (0..8u128).prop_map(Act::Renew),
        1 => Just(Act::Look),
    ];
    prop::collection::vec((moves, act), 1..40)
}

fn moved(now: Timestamp, limit: Concurrency, thousandths: i64) -> Timestamp {
    let by = i128::from(limit.ttl().as_micros()) * i128::from(thousandths) / 1_000;
    Timestamp::from_micros(u64::try_from(i128::from(now.as_micros()) + by).unwrap_or(0))
}

fn agrees((limit, trace): (Concurrency, Trace)) -> Holds {
    let quota = Quota::from(limit);
    let (mut state, mut model, mut now) = (quota.fresh(), Slots::new(&limit), START);
    for (by, act) in trace {
        now = moved(now, limit, by);
        match act {
            Act::Acquire(owner) => {
                let ours = quota.step(&mut state, Amount::Slot(Owner(owner)), now);
                prop_assert_eq!(ours, model.acquire(owner, now), "{:?} at {:?}: {:?}", act, now, state);
            }
            Act::Release(owner) => {
                quota.adjust(&mut state, Adjustment::Release { owner: Owner(owner) }, now);
                model.release(owner);
            }
            Act::Renew(owner) => {
                let ours = quota.adjust(&mut state, Adjustment::Renew { owner: Owner(owner) }, now);
                prop_assert_eq!(
                    ours == Verdict::admitted(1),
                    model.renew(owner, now),
                    "{:?} at {:?}",
                    act,
                    now
                );
            }
            Act::Look => {}
        }
        let looked = quota.step(&mut state, Amount::Exactly(0), now);
        prop_assert_eq!(looked, model.peek(now), "a read at {:?}: {:?}", now, state);
        prop_assert_eq!(quota.used(&state, now), looked.limit - looked.remaining);
        prop_assert_eq!(State::decode(&state.encode()), Ok(state.clone()));
    }
    Ok(())
}

fn held(limit: Concurrency, trace: &Trace) -> (State, Timestamp) {
    let quota = Quota::from(limit);
    let (mut state, mut now) = (quota.fresh(), START);
    for &(by, act) in trace {
        now = moved(now, limit, by);
        match act {
            Act::Acquire(owner) => {
                quota.acquire(&mut state, Amount::Slot(Owner(owner)), now);
            }
            Act::Release(owner) => {
                quota.adjust(&mut state, Adjustment::Release { owner: Owner(owner) }, now);
            }
            Act::Renew(owner) => {
                quota.adjust(&mut state, Adjustment::Renew { owner: Owner(owner) }, now);
            }
            Act::Look => {}
        }
    }
    (state, now)
}

#[test]
fn slots_answer_like_a_list_of_leases() {
    check(800, (limits(), traces()), agrees);
}

#[test]
fn a_refused_owner_gets_a_slot_at_retry_after_and_not_one_tick_before() {
    // Also under another limit than that of the leases: the number of slots may have been lowered.
    check(600, (limits(), 1..6u32, traces()), |(limit, slots, trace)| {
        let (state, now) = held(limit, &trace);
        let fewer = Quota::from(Concurrency::new(slots, limit.ttl()).expect("a valid limit"));
        let mut state = fewer.carry_over(&limit.into(), &state, now);
        let newcomer = Amount::Slot(Owner(99));
        let refused = fewer.step(&mut state, newcomer, now);
        if let Some(wait) = refused.retry_after() {
            let then = now + wait;
            let early = fewer.step(&mut state.clone(), newcomer, then.before(Span::from_micros(1)));
            prop_assert!(!early.is_admitted());
            prop_assert!(fewer.step(&mut state, newcomer, then).is_admitted());
        }
        Ok(())
    });
}

#[test]
fn expired_leases_hold_no_slot() {
    check(300, (limits(), traces()), |(limit, trace)| {
        let (state, now) = held(limit, &trace);
        let quota = Quota::from(limit);
        let then = quota.expires_at(&state);
        prop_assert_eq!(quota.used(&state, then.max(now)), 0);
        if then > now {
            prop_assert!(quota.used(&state, then.before(Span::from_micros(1))) > 0);
        }
        Ok(())
    });
}

#[test]
fn units_and_slots_do_not_mix() {
    let quota = Quota::from(Concurrency::new(1, Span::from_secs(1)).expect("a valid limit"));
    let mut state = quota.fresh();
    quota.step(&mut state, Amount::Slot(Owner(1)), START);
    let before = state.clone();
    for amount in [Amount::Exactly(1), Amount::UpTo(1), Amount::Exactly(u64::MAX)] {
        assert_eq!(quota.step(&mut state, amount, START).verdict, tollgate_core::Verdict::Never);
    }
    for adjustment in [
        Adjustment::Refund { units: 1, charge: ChargeTimes::without_end(START) },
        Adjustment::Charge { units: 1, overdraft: Overdraft::OneCapacity },
        Adjustment::Grant { units: 1 },
    ] {
        quota.adjust(&mut state, adjustment, START);
    }
    assert_eq!(state, before);
    quota.adjust(&mut state, Adjustment::ReleaseOldest { slots: 1 }, START);
    assert_eq!(state, quota.fresh(), "the oldest slot is free");
}
