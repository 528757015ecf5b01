//! Windows that are aligned to the calendar follow the wall clock; other states do not.

use tollgate_core::{
    Adjustment, Bucket, Calendar, CalendarUnit, ChargeTimes, FixedWindow, Quota, Rate, Rule, SlidingLog,
    SlidingParts, SlidingWindow, Span, Timestamp, Window,
};
use tollgate_store::{Check, Clock as _, ManualClock, MemoryStore};

/// Noon of a day in UTC.
const NOON: Timestamp = Timestamp::from_secs(1_800_014_400);

fn store() -> MemoryStore<ManualClock> {
    MemoryStore::with_seed(1_000, ManualClock::at(NOON), 7)
}

fn passed(store: &MemoryStore<ManualClock>, rule: &Rule) -> usize {
    (0..50).filter(|_| store.decide_now(&[Check::new(rule, b"key", 1)]).admitted).count()
}

/// Daily limits in the table of words and in the wide table.
fn days() -> [(&'static str, Rule); 4] {
    let calendar = Window::Calendar(Calendar::new(CalendarUnit::Day, "UTC").expect("a valid quota"));
    let large = FixedWindow::new(1 << 30, calendar.clone()).expect("a valid quota");
    [
        ("calendar", Rule::new("calendar", FixedWindow::new(20, calendar.clone()).expect("a valid quota"))),
        ("epoch", Rule::new("epoch", FixedWindow::epoch(Rate::per_day(20)).expect("a valid quota"))),
        ("tally", Rule::new("tally", FixedWindow::tally(20, calendar).expect("a valid quota"))),
        ("large", Rule::new("large", large)),
    ]
}

/// Spends all units.
fn drain(store: &MemoryStore<ManualClock>, rule: &Rule) {
    let cost = rule.quota.capacity();
    assert!(store.decide_now(&[Check::new(rule, b"key", cost)]).admitted);
    assert_eq!(passed(store, rule), 0);
}

#[test]
fn a_step_forward_by_thirty_hours_closes_the_day() {
    for (name, rule) in days() {
        let store = store();
        drain(&store, &rule);
        store.clock().set_wall(NOON + Span::from_hours(30));
        let outcome = store.decide_now(&[Check::new(&rule, b"key", 1)]).outcomes[0];
        assert!(outcome.is_admitted(), "{name}");
        assert_eq!(outcome.reset_after, Span::from_hours(6), "{name}: the time is 18:00");
    }
}

#[test]
fn a_step_back_grants_nothing_within_a_day() {
    for (name, rule) in days() {
        for hours in [1, 11, 13, 30, 24 * 40] {
            let store = store();
            drain(&store, &rule);
            store.clock().set_wall(NOON.before(Span::from_hours(hours)));
            assert_eq!(passed(&store, &rule), 0, "{name}: {hours} hours back");
            // A state from the far future is moved back, and belongs to the past from then on.
            if hours < 36 {
                store.clock().set_wall(NOON);
                assert_eq!(passed(&store, &rule), 0, "{name}: and forward again");
            }
        }
    }
}

#[test]
fn a_day_that_the_clock_enters_twice_is_counted_once() {
    for (name, rule) in days() {
        let store = store();
        drain(&store, &rule);
        store.clock().set_wall(NOON + Span::from_hours(12));
        drain(&store, &rule);
        for wall in [NOON + Span::from_hours(11), NOON + Span::from_hours(13)] {
            store.clock().set_wall(wall);
            assert_eq!(passed(&store, &rule), 0, "{name}: before midnight and after it again");
        }
        store.clock().set_wall(NOON + Span::from_hours(36));
        assert!(passed(&store, &rule) > 0, "{name}: the next day");
    }
}

#[test]
fn unaligned_limits_ignore_a_step() {
    let rate = Rate::per_day(20);
    let quotas: [(&str, Quota); 5] = [
        ("bucket", Bucket::new(rate).expect("a valid quota").into()),
        ("first request", FixedWindow::anchored(rate).expect("a valid quota").into()),
        ("sliding", SlidingWindow::new(rate).expect("a valid quota").into()),
        ("parts", SlidingParts::new(rate, 7).expect("a valid quota").into()),
        ("log", SlidingLog::new(rate).expect("a valid quota").into()),
    ];
    for (name, quota) in quotas {
        let (store, rule) = (store(), Rule::new(name, quota));
        drain(&store, &rule);
        let outcome_of = |store: &MemoryStore<ManualClock>| {
            store.decide_now(&[Check::new(&rule, b"key", 1)]).outcomes[0].retry_after()
        };
        let wait = outcome_of(&store);
        for wall in [NOON + Span::from_hours(30), NOON.before(Span::from_hours(30))] {
            store.clock().set_wall(wall);
            assert_eq!(outcome_of(&store), wait, "{name}");
        }
    }
}

#[test]
fn a_wall_clock_that_drifts_moves_the_end_of_the_day() {
    let (store, [(_, rule), ..]) = (store(), days());
    let reset = || store.decide_now(&[Check::new(&rule, b"key", 1)]).outcomes[0].reset_after;
    assert_eq!(reset(), Span::from_hours(12));
    store.clock().advance(Span::from_hours(1));
    // 236 ppm of an hour.
    store.clock().set_wall(store.clock().now() + Span::from_micros(849_600));
    assert_eq!(reset(), Span::from_micros(11 * 3_600_000_000 - 849_600));
}

#[test]
fn units_taken_before_a_step_are_refunded_after_it() {
    for (name, rule) in days() {
        let store = store();
        store.clock().set_wall(NOON + Span::from_hours(48));
        let answer = store.decide_now(&[Check::new(&rule, b"key", 5)]);
        let left = answer.outcomes[0].remaining;
        store.clock().advance(Span::from_hours(1));
        let charge = ChargeTimes::of(answer.at, &answer.outcomes[0]);
        let refund = Adjustment::Refund { units: 5, charge };
        assert_eq!(store.adjust_now(&rule, b"key", refund).remaining, left + 5, "{name}");
    }
}
