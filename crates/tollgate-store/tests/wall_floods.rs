//! A step of the wall clock frees no key of an aligned window, also if other keys have taken the
//! memory of its state.

use tollgate_core::{
    Bucket, Calendar, CalendarUnit, FixedWindow, Quota, Rate, Rule, SlidingLog, Span, Timestamp, Window,
};
use tollgate_store::{Check, ManualClock, MemoryStore};

/// Noon of a day in UTC.
const NOON: Timestamp = Timestamp::from_secs(1_800_014_400);
const KEYS: u64 = 200;

type TestStore = MemoryStore<ManualClock>;

fn store() -> TestStore {
    MemoryStore::with_seed(2_000, ManualClock::at(NOON), 7)
}

/// Daily limits in the table of words and in the wide table.
fn days() -> Vec<Quota> {
    let window = || Window::Calendar(Calendar::new(CalendarUnit::Day, "UTC").expect("a valid quota"));
    let windows = [
        FixedWindow::new(20, window()),
        FixedWindow::epoch(Rate::per_day(20)),
        FixedWindow::tally(20, window()),
        FixedWindow::tally(20, Window::Epoch(Span::from_days(1))),
        FixedWindow::new(1 << 30, window()),
        FixedWindow::epoch(Rate::per_day(1 << 29)),
    ];
    windows.into_iter().map(|it| it.expect("a valid quota").into()).collect()
}

fn take(store: &TestStore, rule: &Rule, key: u64, cost: u64) -> bool {
    store.decide_now(&[Check::new(rule, &key.to_le_bytes(), cost)]).admitted
}

fn drain(store: &TestStore, rule: &Rule) {
    for key in 0..KEYS {
        assert!(take(store, rule, key, rule.quota.capacity()), "{}", rule.quota);
    }
}

/// Returns how many of the drained keys are admitted.
fn freed(store: &TestStore, rule: &Rule) -> u64 {
    (0..KEYS).map(|key| u64::from(take(store, rule, key, 1))).sum()
}

/// Rules whose keys take the memory of other keys, in both tables and on both clocks.
fn others() -> Vec<Rule> {
    let day = Window::Calendar(Calendar::new(CalendarUnit::Day, "UTC").expect("a valid quota"));
    let quotas: Vec<Quota> = vec![
        Bucket::new(Rate::new(1_000, Span::from_days(10))).expect("a valid quota").into(),
        FixedWindow::epoch(Rate::new(1_000, Span::from_days(7))).expect("a valid quota").into(),
        SlidingLog::new(Rate::new(3, Span::from_days(10))).expect("a valid quota").into(),
        FixedWindow::tally(3, day).expect("a valid quota").into(),
    ];
    quotas.into_iter().map(|quota| Rule::new("other", quota)).collect()
}

/// Sends requests with other keys under other limits.
fn crowd(store: &TestStore, keys: std::ops::Range<u64>) {
    for rule in others() {
        for key in keys.clone() {
            take(store, &rule, 1_000_000 + key, rule.quota.capacity());
        }
    }
}

/// Drains the keys of every limit, and takes their memory with floods of several sizes.
fn for_each_flood(check: impl Fn(&TestStore, &Rule, u64)) {
    for flood in [0, 300, 10_000] {
        for quota in days() {
            let (store, rule) = (store(), Rule::new("day", quota));
            drain(&store, &rule);
            crowd(&store, 0..flood);
            check(&store, &rule, flood);
        }
    }
}

#[test]
fn a_day_that_is_spent_before_a_step_back_stays_spent_until_midnight() {
    for_each_flood(|store, rule, flood| {
        store.clock().set_wall(NOON.before(Span::from_hours(6)));
        for hour in 0..13 {
            store.clock().advance(Span::from_hours(1));
            crowd(store, hour * flood..(hour + 1) * flood);
            assert_eq!(freed(store, rule), 0, "{}: {hour} hours after 6:00, flood of {flood}", rule.quota);
        }
        store.clock().advance(Span::from_hours(5));
        assert_eq!(freed(store, rule), KEYS, "{}: the next day", rule.quota);
    });
}

#[test]
fn keys_that_pause_gain_nothing_by_a_step_back() {
    for_each_flood(|store, rule, flood| {
        store.clock().set_wall(NOON.before(Span::from_hours(6)));
        store.clock().advance(Span::from_hours(13));
        crowd(store, flood..2 * flood);
        assert_eq!(freed(store, rule), 0, "{}: flood of {flood}", rule.quota);
    });
}

#[test]
fn a_step_forward_that_is_taken_back_restores_the_usage_of_the_day() {
    for_each_flood(|store, rule, flood| {
        store.clock().set_wall(NOON + Span::from_hours(13));
        // The states of the drained keys have expired: others may take their memory.
        crowd(store, flood..2 * flood);
        store.clock().advance(Span::from_minutes(10));
        store.clock().set_wall(NOON + Span::from_minutes(10));
        assert_eq!(freed(store, rule), 0, "{}: flood of {flood}", rule.quota);
    });
}
