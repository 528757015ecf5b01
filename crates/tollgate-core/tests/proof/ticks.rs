//! `TickBucket`, the hot path of a store, decides as its `Bucket` does.

use proptest::prelude::*;
use tollgate_core::{
    Algorithm as _, Amount, Bucket, BucketState, Outcome, Quota, Rate, Span, State, TickBucket, Timestamp,
};

use crate::seed::check;
use crate::trace::{AppliedAct, Key, wild};

/// Rates with a whole number of ticks per unit, up to four years for a burst.
fn whole() -> impl Strategy<Value = Bucket> {
    let sizes = (0..=47u32, 0..=47u32, any::<u64>(), any::<u64>());
    sizes.prop_filter_map("a bucket that fits", |(period, burst, some, more)| {
        let period = (1u64 << period) - some % (1 << period).clamp(1, 1 << 20);
        let burst = (1u64 << burst) - more % (1 << burst).clamp(1, 1 << 20);
        Bucket::new(Rate::new(1, Span::from_micros(period))).ok()?.with_burst(burst).ok()
    })
}

/// As a store does: pay if possible, and use the full bucket where the fast one cannot answer.
fn fast(bucket: &Bucket, ticks: &TickBucket, tat: &mut Timestamp, cost: u64, now: Timestamp) -> Outcome {
    let paid = ticks
        .price(cost)
        .and_then(|price| TickBucket::pay(tat.as_micros(), price, now.as_micros(), ticks.full()));
    if let Some(after) = paid {
        *tat = Timestamp::from_micros(after);
    }
    let worded = ticks.price(cost).and_then(|_| ticks.describe(*tat, paid.is_some(), cost, now));
    worded.unwrap_or_else(|| {
        let mut state = BucketState { tat: *tat, grains: 0 };
        let outcome = bucket.step(&mut state, cost, now);
        *tat = state.tat;
        outcome
    })
}

#[test]
fn whole_ticks_decide_like_grains() {
    check(1_000, (whole(), wild()), |(bucket, trace)| {
        let ticks = bucket.in_ticks().copied();
        prop_assert!(ticks.is_some(), "one unit in whole ticks has no fraction");
        let quota = Quota::from(bucket);
        let mut key = Key::new(&quota);
        for (by, act) in trace {
            key.advance(by);
            let did = key.resolve(act);
            let State::Bucket(mut before) = key.state else { unreachable!("a bucket has a bucket's state") };
            let outcome = key.perform(did);
            // A read changes nothing: a store answers it without paying.
            if let (AppliedAct::Acquired(Amount::Exactly(cost @ 1..)), Some(ticks)) = (did, &ticks) {
                let ours = fast(&bucket, ticks, &mut before.tat, cost, key.now);
                prop_assert_eq!(Some(ours), outcome, "{:?} at {:?}", did, key.now);
                prop_assert_eq!(State::Bucket(before), key.state.clone());
            }
        }
        Ok(())
    });
}
