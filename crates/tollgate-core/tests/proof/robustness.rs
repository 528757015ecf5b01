//! Robustness: for any bytes, times and numbers there is no panic, no overflow, and every state can
//! be encoded again.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use tollgate_core::{
    Adjustment, Amount, BucketState, ChargeTimes, Concurrency, FixedWindowState, Lease, Leases, Overdraft,
    Owner, Quota, SlidingLogState, SlidingPartsState, SlidingWindowState, Span, State, Timestamp, Verdict,
};

use crate::quotas;
use crate::seed::{Holds, check};
use crate::trace::{Key, START, wild};

fn slots() -> impl Strategy<Value = Quota> {
    (1..4u32, 1..1u64 << 47).prop_map(|(slots, ttl)| {
        Quota::from(Concurrency::new(slots, Span::from_micros(ttl)).expect("a valid limit"))
    })
}

/// Times and numbers from the ends of their range, and some from within.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(START.as_micros()),
        Just(u64::from(u32::MAX)),
        Just(1 << 57),
        Just(1 << 63),
        any::<u64>(),
        1..100u64,
    ]
}

/// Any state that bytes can encode, valid or not.
fn any_state() -> impl Strategy<Value = State> {
    let count = || prop_oneof![Just(1), 1..100u32, Just(u32::MAX), Just(1 << 31)];
    let bucket = (extreme(), any::<u32>())
        .prop_map(|(tat, grains)| State::Bucket(BucketState { tat: at(tat), grains }));
    let fixed = (extreme(), extreme())
        .prop_map(|(end, count)| State::FixedWindow(FixedWindowState { end: at(end), count }));
    let counts = || prop_oneof![Just(0), count()];
    let sliding = (extreme(), counts(), counts()).prop_map(|(newest, current, previous)| {
        State::SlidingWindow(SlidingWindowState { newest, current, previous })
    });
    // Some with more parts than any quota has.
    let steps = prop_oneof![0..4u16, 1..=u16::MAX];
    let parts = (extreme(), vec((steps.clone(), steps, count()), 0..70)).prop_map(|(newest, sizes)| {
        let (mut back, mut parts) = (0u16, Vec::new());
        for (gap, length, count) in sizes {
            let gap = if parts.is_empty() { 0 } else { gap.max(1) };
            let Some(last) = back.checked_add(gap) else { break };
            let length = if count == 1 { 0 } else { length.min(u16::MAX - last) };
            back = last + length;
            parts.insert(0, (back, last, count));
        }
        let newest = if parts.is_empty() { 0 } else { newest };
        State::SlidingParts(SlidingPartsState::new(at(newest), parts).expect("parts that follow each other"))
    });
    let log = btree_map(extreme(), count(), 0..6).prop_map(|entries| {
        let entries = entries.into_iter().map(|(stamp, count)| (at(stamp), count)).collect();
        State::SlidingLog(SlidingLogState { entries })
    });
    let leases = vec((0..3u128, extreme()), 0..6).prop_map(|mut held| {
        held.sort_by_key(|&(_, expires)| expires);
        let lease = |(owner, expires)| Lease { owner: Owner(owner), expires: at(expires) };
        State::Concurrency(Leases { held: held.into_iter().map(lease).collect() })
    });
    prop_oneof![bucket, fixed, sliding, parts, log, leases]
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// One quota of each kind, so that every state is used with its own algorithm.
fn one_of_each() -> impl Strategy<Value = Vec<Quota>> {
    let fixed = prop_oneof![quotas::fixed_windows(), quotas::tallies()];
    let buckets = (quotas::buckets(), any::<bool>()).prop_map(|(quota, shared)| match quota {
        Quota::Bucket(bucket) if shared => bucket.shared().into(),
        quota => quota,
    });
    (buckets, fixed, quotas::sliding_windows(), quotas::sliding_parts(), quotas::sliding_logs(), slots())
        .prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f])
}

/// Runs every operation at every extreme, in sequence.
fn survives(quota: &Quota, mut state: State, extremes: &[u64]) -> Holds {
    for pair in extremes.windows(2) {
        let (units, now) = (pair[0], Timestamp::from_micros(pair[1]));
        let demands = [Amount::Exactly(units), Amount::UpTo(units), Amount::Slot(Owner(units.into()))];
        for amount in demands.into_iter().chain([Amount::Exactly(0), Amount::Exactly(1)]) {
            let outcome = quota.step(&mut state, amount, now);
            prop_assert!(outcome.remaining <= outcome.limit);
            prop_assert!(outcome.units() <= outcome.limit);
        }
        for adjustment in [
            Adjustment::Charge { units, overdraft: Overdraft::OneCapacity },
            Adjustment::Charge { units, overdraft: Overdraft::None },
            Adjustment::Refund {
                units,
                charge: ChargeTimes { at: Timestamp::from_micros(units), until: now },
            },
            Adjustment::Refund { units, charge: ChargeTimes { at: now, until: quota.expires_at(&state) } },
            Adjustment::Refund { units, charge: ChargeTimes::without_end(now) },
            Adjustment::Charge { units: u64::MAX, overdraft: Overdraft::OneCapacity },
            Adjustment::Grant { units },
            Adjustment::ReleaseOldest { slots: units },
            Adjustment::Release { owner: Owner(units.into()) },
            Adjustment::Renew { owner: Owner(units.into()) },
        ] {
            quota.adjust(&mut state, adjustment, now);
            quota.used(&state, now);
            quota.expires_at(&state);
        }
        prop_assert_eq!(State::decode(&state.encode()), Ok(state.clone()), "written down and read back");
    }
    Ok(())
}

#[test]
fn extreme_times_and_numbers_never_panic() {
    check(500, (one_of_each(), vec(extreme(), 2..12)), |(quotas, extremes)| {
        quotas.iter().try_for_each(|quota| survives(quota, quota.fresh(), &extremes))
    });
}

#[test]
fn every_state_round_trips_through_bytes() {
    check(600, (quotas::any(), wild()), |(quota, trace)| {
        let mut key = Key::new(&quota);
        for (by, act) in trace {
            key.advance(by);
            key.act(act);
            prop_assert_eq!(State::decode(&key.state.encode()), Ok(key.state.clone()));
        }
        Ok(())
    });
}

#[test]
fn no_state_that_bytes_can_hold_makes_any_algorithm_panic() {
    check(3_000, (one_of_each(), any_state(), vec(extreme(), 2..8)), |(quotas, state, extremes)| {
        prop_assert_eq!(State::decode(&state.encode()), Ok(state.clone()));
        let now = at(extremes[0]);
        for (quota, other) in quotas.iter().zip(quotas.iter().cycle().skip(1)) {
            quota.used(&state, now);
            quota.expires_at(&state);
            quota.describe(&state, Verdict::Never, now);
            survives(quota, quota.carry_over(other, &state, now), &extremes)?;
            survives(quota, state.clone(), &extremes)?;
        }
        Ok(())
    });
}

#[test]
fn random_bytes_never_panic() {
    let bytes = (0x0f..=0x16u8, vec(any::<u8>(), 0..64));
    check(4_000, (one_of_each(), bytes, extreme()), |(quotas, (first, mut bytes), now)| {
        bytes.insert(0, first);
        let Ok(state) = State::decode(&bytes) else { return Ok(()) };
        quotas.iter().try_for_each(|quota| survives(quota, state.clone(), &[now, 0, u64::MAX]))
    });
}

#[test]
fn a_damaged_state_is_an_error_or_a_usable_state() {
    let damage = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    check(2_000, (quotas::any(), wild(), damage), |(quota, trace, (at, byte, cut))| {
        let key = Key::after(&quota, &trace);
        let mut bytes = key.state.encode();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= byte;
        }
        match State::decode(&bytes) {
            Ok(state) => survives(&quota, state, &[1, key.now.as_micros(), u64::MAX, 0]),
            Err(_) => Ok(()),
        }
    });
}

#[test]
fn a_truncated_state_is_never_accepted() {
    // Lists have no fixed length, so only fixed shapes detect truncation.
    let fixed = prop_oneof![quotas::buckets(), quotas::fixed_windows(), quotas::sliding_windows()];
    check(300, (fixed, wild()), |(quota, trace)| {
        let bytes = Key::after(&quota, &trace).state.encode();
        for length in 0..bytes.len() {
            prop_assert!(State::decode(&bytes[..length]).is_err());
        }
        Ok(())
    });
}
