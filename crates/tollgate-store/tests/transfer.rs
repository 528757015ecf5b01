//! States that move to a store with another clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate_core::{
    Amount, Bucket, Concurrency, FixedWindow, Owner, Quota, Rate, Rule, SlidingLog, SlidingParts,
    SlidingWindow, Span, Timestamp,
};
use tollgate_store::{Check, ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_secs(1_900_000_010);
const OTHER_START: Timestamp = Timestamp::from_secs(1_899_000_010);

fn quotas() -> [Quota; 7] {
    let rate = Rate::per_minute(10);
    [
        Bucket::new(rate).unwrap().into(),
        Bucket::new(Rate::new(1_000_003, Span::from_secs(61))).unwrap().with_burst(10).unwrap().into(),
        FixedWindow::epoch(rate).unwrap().into(),
        FixedWindow::anchored(rate).unwrap().into(),
        SlidingWindow::new(rate).unwrap().into(),
        SlidingParts::new(rate, 8).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
    ]
}

fn take(store: &MemoryStore<ManualClock>, rule: &Rule, units: u64) -> (bool, u64) {
    let answer = store.decide_now(&[Check::new(rule, b"key", units)]);
    (answer.admitted, answer.outcomes[0].remaining)
}

fn move_state(rule: &Rule, from: &MemoryStore<ManualClock>, to: &MemoryStore<ManualClock>) {
    let state = from.copy_state(rule, b"key").unwrap();
    to.merge_state(rule, b"key", &state, from.now(), to.now());
}

#[test]
fn a_key_has_its_usage_in_the_other_store_however_often_it_is_merged() {
    for quota in quotas() {
        let rule = Rule::new("api", quota);
        let (clock, other_clock) = (ManualClock::at(START), ManualClock::at(OTHER_START));
        // Both have the same wall clock.
        other_clock.set_wall(START);
        let store = MemoryStore::with_seed(100, clock, 1);
        let other = MemoryStore::with_seed(100, other_clock.clone(), 2);
        assert_eq!(store.copy_state(&rule, b"key"), None);
        assert_eq!(take(&store, &rule, 7), (true, 3));
        for _ in 0..2 {
            move_state(&rule, &store, &other);
            assert_eq!(take(&other, &rule, 0), (true, 3), "{}", rule.quota);
        }
        assert_eq!(take(&other, &rule, 2), (true, 1));
        // An older state does not replace the usage since then.
        move_state(&rule, &store, &other);
        assert_eq!(take(&other, &rule, 0), (true, 1), "{}", rule.quota);
        // A state with more usage counts.
        assert_eq!(take(&store, &rule, 3), (true, 0));
        move_state(&rule, &store, &other);
        assert_eq!(take(&other, &rule, 1), (false, 0), "{}", rule.quota);
        other_clock.advance(Span::from_minutes(3));
        assert_eq!(take(&other, &rule, 10), (true, 0), "{}", rule.quota);
    }
}

#[test]
fn slots_stay_held_by_their_owners() {
    let rule = Rule::new("slots", Concurrency::new(2, Span::from_secs(30)).unwrap());
    let store = MemoryStore::with_seed(100, ManualClock::at(START), 1);
    let other = MemoryStore::with_seed(100, ManualClock::at(OTHER_START), 2);
    let slot = |store: &MemoryStore<ManualClock>, owner| {
        let check = Check { amount: Amount::Slot(Owner(owner)), ..Check::new(&rule, b"key", 1) };
        store.decide_now(&[check]).admitted
    };
    assert!(slot(&store, 1));
    move_state(&rule, &store, &other);
    assert!(slot(&other, 2));
    move_state(&rule, &store, &other);
    assert!(!slot(&other, 3) && slot(&other, 1));
}
