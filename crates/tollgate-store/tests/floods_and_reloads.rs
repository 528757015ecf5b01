//! A reload of a limit while the store is full, or while the wall clock is wrong, grants no key
//! more than the larger of the two limits.

use tollgate_core::{
    Bucket, Calendar, CalendarUnit, FixedWindow, Quota, Rate, Rule, SlidingLog, SlidingParts, Span,
    Timestamp, Window,
};
use tollgate_store::{Check, ManualClock, MemoryStore};

const NOON: Timestamp = Timestamp::from_secs(1_800_014_400);

type TestStore = MemoryStore<ManualClock>;

fn store_for(max_keys: usize) -> TestStore {
    MemoryStore::with_seed(max_keys, ManualClock::at(NOON), 7)
}

fn bucket(per_day: u64) -> Rule {
    Rule::new("reloaded", Bucket::new(Rate::per_day(per_day)).expect("a quota that can be served"))
}

fn take(store: &TestStore, rule: &Rule, key: u64, cost: u64) -> bool {
    store.decide_now(&[Check::new(rule, &key.to_le_bytes(), cost)]).admitted
}

/// Requests one unit `tries` times. Returns how many requests were admitted.
fn admitted(store: &TestStore, rule: &Rule, key: u64, tries: u64) -> u64 {
    (0..tries).map(|_| u64::from(take(store, rule, key, 1))).sum()
}

/// Drains many keys of another limit, whose states evict those of the limit under test.
fn flood(store: &TestStore, rule: &Rule, keys: u64) {
    for key in 0..keys {
        take(store, rule, 1_000_000 + key, 1_000);
    }
    assert!(store.evictions() > 0, "{} does not flood the store", rule.quota);
}

fn flood_of_windows() -> Rule {
    Rule::new("flood", FixedWindow::epoch(Rate::per_day(1_000)).expect("a quota that can be served"))
}

/// States that count for longer than those of a day.
fn long_flood(name: &str) -> Rule {
    Rule::new(name, Bucket::new(Rate::new(1_000, Span::from_days(10))).expect("a quota that can be served"))
}

#[test]
fn a_raised_bucket_limits_keys_whose_earlier_state_was_evicted() {
    for (limit, raised) in [(10, 25), (100, 101)] {
        let store = store_for(2_000);
        let before = bucket(limit);
        let after = bucket(raised).replacing(&before);
        for key in 0..100 {
            assert_eq!(admitted(&store, &before, key, limit / 2), limit / 2);
        }
        flood(&store, &flood_of_windows(), 40_000);
        for key in 0..100 {
            let more = admitted(&store, &after, key, 500);
            assert!(more <= raised - limit / 2, "{limit} to {raised} a day: {more} more");
        }
        let unseen = admitted(&store, &after, 77_777, 500);
        assert!(unseen <= raised, "{limit} to {raised} a day: {unseen} for a key never seen");
    }
}

#[test]
fn raises_of_a_bucket_in_a_nearly_full_store_grant_only_the_raised_limit() {
    let store = store_for(1_000);
    let mut rule = bucket(100);
    let mut spent: Vec<u64> = (0..900).map(|key| 1 + key % 90).collect();
    for (key, &cost) in (0..).zip(&spent) {
        assert!(take(&store, &rule, key, cost));
    }
    for raised in 101..104 {
        rule = bucket(raised).replacing(&rule);
        for (key, spent) in (0..).zip(&mut spent) {
            *spent += u64::from(take(&store, &rule, key, 1));
        }
        for (key, spent) in (0..).zip(&mut spent) {
            *spent += admitted(&store, &rule, key, 150);
            assert!(*spent <= raised, "{spent} of {raised} a day");
        }
    }
}

#[test]
fn a_raised_window_counts_the_usage_of_evicted_keys() {
    for (limit, raised) in [(20, 25), (20, 21), (20, 40), (10, 12)] {
        let window = |limit| Rule::new("reloaded", FixedWindow::epoch(Rate::per_day(limit)).unwrap());
        let store = store_for(2_000);
        let before = window(limit);
        let after = window(raised).replacing(&before);
        for key in 0..200 {
            assert_eq!(admitted(&store, &before, key, limit + 1), limit);
        }
        flood(&store, &long_flood("flood"), 20_000);
        for key in 0..200 {
            let more = admitted(&store, &after, key, 60);
            assert!(more <= raised - limit, "{limit} to {raised} a day: {more} more");
        }
    }
}

#[test]
fn usage_is_charged_to_an_evicted_predecessor() {
    let store = store_for(2_000);
    let first = bucket(20);
    let lowered = bucket(10).replacing(&first);
    let raised = bucket(25).replacing(&lowered);
    let mut spent: Vec<u64> = (0..100).map(|key| admitted(&store, &first, key, 30)).collect();
    flood(&store, &long_flood("flood"), 20_000);
    for round in 0..24 {
        for (key, spent) in (0..).zip(&mut spent) {
            *spent += admitted(&store, &lowered, key, 5);
        }
        if round % 6 == 0 {
            flood(&store, &long_flood(&format!("flood {round}")), 20_000);
        }
        store.clock().advance(Span::from_minutes(30));
    }
    for (key, spent) in (0..).zip(&mut spent) {
        *spent += admitted(&store, &raised, key, 30);
        // A burst of 25, and as many as come back in twelve hours.
        assert!(*spent <= 25 + 12, "{spent} in twelve hours");
    }
}

#[test]
fn a_closed_floor_drains_no_key_for_longer_than_it_is_closed() {
    let store = store_for(64);
    let before = Rule::new("reloaded", SlidingLog::new(Rate::per_day(100)).unwrap());
    let after = Rule::new("reloaded", SlidingParts::new(Rate::per_day(100), 7).unwrap()).replacing(&before);
    for key in 0..5 {
        assert!(take(&store, &before, key, 30));
    }
    // More rules than there are floors, each for a second.
    for n in 0..40 {
        let short = Rule::new(&format!("flood {n}"), SlidingLog::new(Rate::per_second(10)).unwrap());
        for key in 0..200 {
            take(&store, &short, 1_000 + key, 10);
        }
    }
    let remaining =
        |key: u64| store.decide_now(&[Check::new(&after, &key.to_le_bytes(), 0)]).outcomes[0].remaining;
    assert!((0..5).any(|key| remaining(key) == 0), "no floor is closed");
    store.clock().advance(Span::from_secs(5));
    for key in 0..5 {
        assert_eq!(remaining(key), 70, "key {key}");
    }
}

#[test]
fn usage_carried_over_into_a_calendar_day_counts_until_midnight_of_the_wall_clock() {
    let day = Window::Calendar(Calendar::new(CalendarUnit::Day, "UTC").unwrap());
    let quotas: [Quota; 3] = [
        Bucket::new(Rate::per_day(20)).unwrap().into(),
        FixedWindow::epoch(Rate::per_hour(20)).unwrap().into(),
        SlidingLog::new(Rate::per_day(20)).unwrap().into(),
    ];
    let targets = [FixedWindow::new(20, day.clone()).unwrap(), FixedWindow::tally(20, day).unwrap()];
    for (quota, target) in quotas.iter().flat_map(|quota| targets.iter().map(move |it| (quota, it))) {
        for (wall, hours_left) in [(NOON.before(Span::from_hours(6)), 18), (NOON + Span::from_hours(6), 6)] {
            let store = store_for(2_000);
            store.clock().set_wall(wall);
            let before = Rule::new("reloaded", quota.clone());
            let after = Rule::new("reloaded", target.clone()).replacing(&before);
            assert_eq!(admitted(&store, &before, 1, 30), 20);
            let outcome = store.decide_now(&[Check::new(&after, &1u64.to_le_bytes(), 1)]).outcomes[0];
            assert_eq!(outcome.reset_after, Span::from_hours(hours_left), "{quota}");
            store.clock().advance(Span::from_secs(hours_left * 3_600 - 1));
            assert_eq!(admitted(&store, &after, 1, 30), 0, "{quota}, before midnight");
            store.clock().advance(Span::from_secs(1));
            assert_eq!(admitted(&store, &after, 1, 30), 20, "{quota}, after midnight");
        }
    }
}

#[test]
fn marks_of_reloads_evict_no_key_and_refuse_no_new_key() {
    for rates in [[100, 101, 102, 103, 104], [100, 99, 98, 97, 96]] {
        let store = store_for(1_000);
        let mut rule = bucket(rates[0]);
        for key in 0..900 {
            assert!(take(&store, &rule, key, 10));
        }
        let mut new_keys = 100_000..;
        for rate in &rates[1..] {
            rule = bucket(*rate).replacing(&rule);
            for key in 0..900 {
                take(&store, &rule, key, 1);
            }
            let refused =
                new_keys.by_ref().take(50).filter(|&key| !take(&store, &rule, key, rate / 2)).count();
            assert_eq!(refused, 0, "{rates:?}: after the change to {rate}");
        }
    }
}
