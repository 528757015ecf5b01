//! States shared by rules of different numbers: tallies and shared buckets.

use proptest::prelude::*;
use tollgate_core::{
    Adjustment, Algorithm as _, Amount, Bucket, BucketState, FixedWindow, Overdraft, Quota, Rate, Rule, Span,
    State, Window,
};

use crate::quotas;
use crate::seed::check;
use crate::trace::START;

/// A tally behaves as `INCRBY`: everything counts, and a count above the limit is refused.
#[test]
fn a_tally_with_counted_refusals_is_a_counter_under_any_limits() {
    let hits = prop::collection::vec((0..=20u64, 0..=9u64), 1..60);
    check(400, hits, |hits| {
        let window = Window::Epoch(Span::from_days(1));
        let (mut state, mut counter) = (None, 0);
        for (limit, hit) in hits {
            let tally = Quota::from(FixedWindow::tally(limit, window.clone()).expect("a valid limit"));
            let state = state.get_or_insert_with(|| tally.fresh());
            let outcome = tally.step(state, Amount::Exactly(hit), START);
            counter += hit;
            prop_assert_eq!(outcome.is_admitted(), counter <= limit, "{} of {}", counter, limit);
            if !outcome.is_admitted() {
                let charge = Adjustment::Charge { units: hit, overdraft: Overdraft::None };
                tally.adjust(state, charge, START);
            }
            prop_assert_eq!(tally.used(state, START), counter);
            let described = tally.describe(state, outcome.verdict, START);
            prop_assert_eq!((described.limit, described.remaining), (limit, limit.saturating_sub(counter)));
        }
        Ok(())
    });
}

#[test]
fn a_tally_saturates_and_never_wraps() {
    let tally = FixedWindow::tally(1 << 48, Window::Epoch(Span::from_days(1))).expect("a valid limit");
    let mut state = tally.fresh();
    for _ in 0..3 {
        tally.charge(&mut state, u64::MAX, Overdraft::None, START);
        assert_eq!(state.count, 1 << 49);
        assert!(!tally.step(&mut state, 0, START).is_admitted());
    }
    tally.grant(&mut state, 1 << 48, START);
    assert!(tally.step(&mut state, 0, START).is_admitted(), "a grant reduces the count");
}

#[test]
fn only_rules_that_share_states_have_one_id() {
    let minute = Window::Epoch(Span::from_minutes(1));
    let tally = |limit, window: &Window| {
        Rule::new("api", FixedWindow::tally(limit, window.clone()).expect("a valid limit"))
    };
    assert_eq!(tally(10, &minute).id, tally(0, &minute).id);
    assert_ne!(tally(10, &minute).id, tally(10, &Window::Epoch(Span::from_hours(1))).id);
    assert_ne!(tally(10, &minute).id, tally(10, &Window::Anchored(Span::from_minutes(1))).id);
    assert_ne!(
        tally(10, &minute).id,
        Rule::new("api", FixedWindow::new(10, minute.clone()).expect("a valid limit")).id
    );
    assert_eq!(tally(10, &minute).quota.to_string(), "fixed-window 10/minute, counts refusals");

    let bucket = |count| Bucket::new(Rate::per_minute(count)).expect("a valid rate");
    let shared = |count| Rule::new("api", bucket(count).shared());
    assert_eq!(shared(1).id, shared(60).id);
    assert_eq!(shared(7).id, shared(13).id);
    assert_ne!(shared(1).id, shared(7).id, "with and without a fraction");
    assert_ne!(shared(1).id, Rule::new("api", bucket(1)).id);
}

/// A bucket never lowers the debt of a state that other buckets wrote below the amount that time
/// has repaid, and answers by its own numbers.
#[test]
fn a_shared_bucket_never_erases_the_debt_of_another() {
    let buckets = prop::collection::vec((quotas::buckets(), 0..=40u32, any::<u64>()), 1..30);
    check(400, buckets, |steps| {
        let (mut state, mut now) = (BucketState::default(), START);
        for (quota, by, cost) in steps {
            let Quota::Bucket(bucket) = quota else { unreachable!("the strategy yields only buckets") };
            let bucket = bucket.shared();
            now = now + Span::from_micros((1 << by) - 1);
            let before = state;
            let outcome = bucket.step(&mut state, cost % (bucket.capacity() + 2), now);
            if before.tat > now {
                prop_assert!(state.tat >= before.tat, "{:?} after {:?}", state, before);
            }
            if !outcome.is_admitted() {
                prop_assert_eq!(state, before);
            }
            prop_assert!(outcome.remaining <= bucket.capacity());
            prop_assert!(State::decode(&State::Bucket(state).encode()).is_ok());
        }
        Ok(())
    });
}

#[test]
fn a_clock_that_stepped_back_by_decades_does_not_lock_a_shared_bucket() {
    let bucket = Bucket::new(Rate::per_second(1)).expect("a valid rate").shared();
    let mut state = BucketState { tat: START + Span::from_days(40_000), grains: 0 };
    bucket.step(&mut state, 1, START);
    assert!(state.tat.since(START) <= Span::from_micros(1 << 48));
}
