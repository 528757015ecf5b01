//! Sliding windows in parts: their distance to the sliding log.

use proptest::prelude::*;
use tollgate_core::{
    Adjustment, Amount, ChargeTimes, Overdraft, Quota, Rate, SlidingLog, SlidingParts, SlidingPartsState,
    Span, State, Timestamp,
};

use crate::quotas;
use crate::seed::check;
use crate::trace::{Key, START, Trace, steady, takes};

fn quota(rate: Rate, parts: u32) -> Quota {
    SlidingParts::new(rate, parts).expect("a valid rate").into()
}

fn parts_of(state: &State) -> &SlidingPartsState {
    let State::SlidingParts(state) = state else { unreachable!("the strategy yields only windows in parts") };
    state
}

/// Returns the admitted units with their times.
fn admitted(quota: &Quota, trace: Trace) -> Vec<(u64, u64)> {
    let mut key = Key::new(quota);
    let mut admitted = Vec::new();
    for (by, act) in trace {
        key.advance(by);
        if let (_, Some(outcome)) = key.act(act) {
            admitted.push((key.now.as_micros(), outcome.units()));
        }
    }
    admitted
}

#[test]
fn with_no_more_instants_than_parts_it_equals_the_log() {
    // Windows with a step of one tick, or times that are whole steps.
    let rates = (1..=40u64, prop_oneof![Just(1_000u64), Just(60_000), Just(60_000_000), Just(3_600_000_000)]);
    let moves = prop::collection::vec((0..=40u64, 1..=5u64, any::<bool>()), 1..80);
    check(600, (rates, 2..=12u32, moves), |((limit, period), parts, moves)| {
        let rate = Rate::new(limit, Span::from_micros(period));
        let ours = SlidingParts::new(rate, parts).expect("a valid rate");
        // So far apart that a window never has more instants than parts.
        let apart = period.div_ceil(u64::from(parts)).next_multiple_of(ours.resolution().as_micros());
        let (ours, log) = (Quota::from(ours), Quota::from(SlidingLog::new(rate).expect("a valid rate")));
        let (mut mine, mut theirs) = (ours.fresh(), log.fresh());
        let mut now = Timestamp::from_secs(1_779_021_240);
        for (wait, cost, stays) in moves {
            if !stays {
                now = now + Span::from_micros(apart * (1 + wait / 10));
            }
            let amount = Amount::Exactly(cost.min(limit));
            let (ours, theirs) = (ours.step(&mut mine, amount, now), log.step(&mut theirs, amount, now));
            prop_assert_eq!(ours, theirs, "{} in {} parts at {:?}", rate, parts, now);
        }
        Ok(())
    });
}

#[test]
fn the_first_and_last_unit_of_a_part_are_admitted_units() {
    check(400, (quotas::sliding_parts(), takes()), |(quota, trace)| {
        let Quota::SlidingParts(limit) = &quota else {
            unreachable!("the strategy yields only windows in parts")
        };
        let step = limit.resolution().as_micros();
        let mut key = Key::new(&quota);
        let mut came = Vec::new();
        for (by, act) in trace {
            key.advance(by);
            if key.act(act).1.is_some_and(|outcome| outcome.units() > 0) {
                came.push(key.now.as_micros().div_ceil(step));
            }
            let state = parts_of(&key.state);
            let newest = state.newest().as_micros().div_ceil(step);
            prop_assert!(state.parts().count() <= limit.parts() as usize);
            for (at, (first, last, _)) in state.parts().enumerate() {
                prop_assert!(came.contains(&(newest - u64::from(last))));
                // The oldest part may begin at a computed position.
                prop_assert!(at == 0 || came.contains(&(newest - u64::from(first))));
            }
        }
        Ok(())
    });
}

#[test]
fn it_admits_less_than_twice_its_limit_in_any_stretch() {
    check(600, (quotas::sliding_parts(), takes()), |(quota, trace)| {
        let (admitted, period) = (admitted(&quota, trace), quota.period().as_micros());
        for &(end, _) in &admitted {
            let within = admitted.iter().filter(|&&(at, _)| at <= end && end - at < period);
            let units: u64 = within.map(|&(_, units)| units).sum();
            prop_assert!(units < 2 * quota.capacity() || units <= quota.capacity(), "{} by {}", units, end);
        }
        Ok(())
    });
}

/// Only the oldest part is estimated: every unit of later parts counts.
#[test]
fn only_inner_units_of_the_oldest_part_are_ever_missing() {
    check(600, (quotas::sliding_parts(), takes()), |(quota, trace)| {
        let Quota::SlidingParts(limit) = &quota else {
            unreachable!("the strategy yields only windows in parts")
        };
        let step = limit.resolution().as_micros();
        let mut key = Key::new(&quota);
        let mut came: Vec<(u64, u64)> = Vec::new();
        for (by, act) in trace {
            key.advance(by);
            if let (_, Some(outcome)) = key.act(act) {
                came.push((key.now.as_micros().div_ceil(step), outcome.units()));
            }
            let state = parts_of(&key.state);
            let at = |back: u16| state.newest().as_micros().div_ceil(step) - u64::from(back);
            let came_in = |from: u64, to: u64| -> u64 {
                came.iter().filter(|&&(at, _)| from <= at && at <= to).map(|&(_, units)| units).sum()
            };
            for (index, (first, last, count)) in state.parts().enumerate() {
                if index > 0 {
                    prop_assert_eq!(u64::from(count), came_in(at(first), at(last)));
                } else {
                    prop_assert!(u64::from(count) <= came_in(0, at(last)));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_refund_right_after_a_take_restores_remaining() {
    check(600, (quotas::sliding_parts(), steady(), 1..=1_000u64), |(quota, history, share)| {
        let untouched = Key::after(&quota, &history);
        let mut refunded = untouched.clone();
        let outcome = refunded.take((refunded.peek().remaining / share).max(1));
        let charge = ChargeTimes::of(refunded.now, &outcome);
        refunded.adjust(Adjustment::Refund { units: outcome.units(), charge });
        // Two parts may have been merged, so the state differs from the original. But as many units
        // may pass, and no unit leaves earlier than it would have without the refunded units.
        prop_assert_eq!(refunded.peek().remaining, untouched.peek().remaining);
        prop_assert_eq!(refunded.used(), untouched.used());
        prop_assert!(refunded.peek().reset_after >= untouched.peek().reset_after);
        Ok(())
    });
}

#[test]
fn a_state_of_more_parts_is_merged_and_loses_nothing() {
    check(400, (quotas::sliding_parts(), steady(), 2..=6u32), |(quota, history, fewer)| {
        let key = Key::after(&quota, &history);
        let Quota::SlidingParts(limit) = &quota else {
            unreachable!("the strategy yields only windows in parts")
        };
        let narrow = self::quota(limit.rate(), fewer);
        let mut state = key.state.clone();
        let used = narrow.used(&state, key.now);
        prop_assert_eq!(used, key.used());
        let charge = Adjustment::Charge { units: 1, overdraft: Overdraft::OneCapacity };
        narrow.adjust(&mut state, charge, key.now);
        prop_assert_eq!(narrow.used(&state, key.now), (used + 1).min(2 * narrow.capacity()).max(used));
        if used < 2 * narrow.capacity() {
            prop_assert!(parts_of(&state).parts().count() <= fewer as usize);
        }
        Ok(())
    });
}

#[test]
fn invalid_states_are_rejected() {
    let state =
        |parts: &[(u16, u16, u32)]| SlidingPartsState::new(Timestamp::from_secs(7), parts.iter().copied());
    assert!(state(&[(9, 5, 2), (4, 0, 3)]).is_some());
    for (wrong, why) in [
        (&[(9, 5, 2), (4, 1, 3)][..], "does not end at the newest"),
        (&[(9, 5, 2), (5, 0, 3)], "parts that touch"),
        (&[(4, 0, 3), (9, 5, 2)], "the newest first"),
        (&[(5, 9, 2), (4, 0, 3)], "ends before it begins"),
        (&[(9, 5, 0), (4, 0, 3)], "an empty part"),
        (&[(9, 5, 1), (4, 0, 3)], "one unit at two times"),
        (&[], "a time of nothing"),
    ] {
        assert_eq!(state(wrong), None, "{why}");
    }
    assert!(SlidingPartsState::new(Timestamp::EPOCH, []).is_some());
}

#[test]
fn a_key_of_seven_parts_takes_sixty_four_bytes() {
    let seven = quota(Rate::per_minute(1_000), 7);
    let mut state = seven.fresh();
    for second in 0..50 {
        seven.step(&mut state, Amount::Exactly(1), START + Span::from_millis(937 * second));
    }
    assert_eq!(parts_of(&state).parts().count(), 7);
    assert_eq!(8 + state.heap_bytes(), 64, "the newest time, and the parts");
    assert!(state.encode().len() <= 64, "{} bytes written down", state.encode().len());
}

/// Requests with a resolution of one second, as in an access log: a page and its resources, a
/// reader, a crawler at a fixed rate, and a script that retries without a pause.
fn access_log(seed: u64, client: u64) -> Vec<Timestamp> {
    let mut state = seed ^ client.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut rng = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut second, mut log) = (START.as_micros() / 1_000_000 + rng(600), Vec::new());
    while log.len() < 400 {
        let burst = match client % 3 {
            0 => 2 + rng(14),
            1 => 1,
            _ => 1 + rng(40),
        };
        for _ in 0..burst {
            log.push(Timestamp::from_secs(second));
            second += u64::from(rng(3) == 0);
        }
        second += match client % 3 {
            0 => 1 + rng(25),
            1 => rng(7),
            _ => rng(60),
        };
    }
    log
}

/// Counts how often `approximate` and the log decide differently: each by its own admissions
/// (closed), and by those of the log (open).
fn disagreement(approximate: &Quota, rate: Rate) -> [u32; 2] {
    let log = Quota::from(SlidingLog::new(rate).expect("a valid rate"));
    let mut differs = [0; 2];
    for client in 0..60 {
        let (mut exact, mut closed, mut open) = (log.fresh(), approximate.fresh(), approximate.fresh());
        for now in access_log(2026, client) {
            let passes = |state: &mut State| approximate.step(state, Amount::Exactly(1), now).is_admitted();
            let truth = log.step(&mut exact, Amount::Exactly(1), now).is_admitted();
            differs[0] += u32::from(passes(&mut closed) != truth);
            differs[1] += u32::from(passes(&mut open.clone()) != truth);
            if truth {
                let one = Adjustment::Charge { units: 1, overdraft: Overdraft::OneCapacity };
                approximate.adjust(&mut open, one, now);
            }
        }
    }
    differs
}

#[test]
fn seven_parts_disagree_with_the_log_at_most_a_tenth_as_often_as_two_counters() {
    for (limit, seconds) in [(5, 1), (10, 10), (20, 60), (60, 60)] {
        let rate = Rate::new(limit, Span::from_secs(seconds));
        let two = disagreement(&Quota::sliding_window(rate, 1).expect("a valid rate"), rate);
        let seven = disagreement(&quota(rate, 7), rate);
        println!("{rate}: two counters {two:?}, seven parts {seven:?}");
        assert!(two.iter().all(|&times| times >= 100), "{rate}: a trace on which {two:?} differ says little");
        for (seven, two) in seven.iter().zip(two) {
            assert!(10 * seven <= two, "{rate}: {seven} where two counters have {two}");
        }
    }
}
