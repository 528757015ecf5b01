//! Every order in which the steps of two threads can take effect, in small cases.
//!
//! Run by `make test-loom`, on loom's atomics. Each guard of the table was taken
//! away once to see a case fail.

use loom::sync::Arc;
use tollgate_core::{Amount, Bucket, Rate, Timestamp};

use super::action::Action;
use super::prior_usage::NoPriorUsage;
use super::table::Table;

const NOW: Timestamp = Timestamp::from_secs(1_000_000_000);
const LATER: Timestamp = Timestamp::from_secs(1_000_010_000);
const LONG_AGO: Timestamp = Timestamp::from_secs(999_000_000);

/// Two threads ask for one unit of a key each, in a table of a single line;
/// `most` of them get it, in whatever order things happen, and `left` units
/// are left to each key.
fn check(bucket: Bucket, prepare: fn(&Table), keys: [u64; 2], most: usize, left: usize) {
    let mut model = loom::model::Builder::new();
    // Enough for every order of the few steps that matter, and seconds instead of minutes.
    model.preemption_bound = Some(3);
    model.max_branches = 10_000; // a full line is looked over many times
    model.check(move || {
        let table = Arc::new(Table::new(1, NOW));
        prepare(&table);
        let threads = keys.map(|key| {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || take(&table, bucket, key, LATER))
        });
        let admitted = threads.into_iter().filter_map(|it| it.join().ok()).filter(|passed| *passed).count();
        assert_eq!(admitted, most);
        for key in keys {
            let more = (0..3).filter(|_| take(&table, bucket, key, LATER)).count();
            assert_eq!(more, left, "left to key {key}");
        }
    });
}

fn hourly() -> Bucket {
    Bucket::new(Rate::per_hour(1)).unwrap()
}

fn daily() -> Bucket {
    Bucket::new(Rate::per_day(1)).unwrap()
}

fn weekly() -> Bucket {
    Bucket::new(Rate::new(1, tollgate_core::Span::from_days(7))).unwrap()
}

fn take(table: &Table, bucket: Bucket, key: u64, now: Timestamp) -> bool {
    let ticks = bucket.in_ticks().unwrap();
    match table.pay(key, ticks, ticks.price(1).unwrap(), now) {
        Some((_, paid)) => paid,
        None => table.run(key, &bucket, Action::Meet(Amount::Exactly(1)), now, &NoPriorUsage).is_admitted(),
    }
}

/// Leaves one slot of the line free: the others are drained for a day.
fn one_slot_free(table: &Table) {
    for other in [12, 13, 14] {
        assert!(take(table, daily(), other, NOW));
    }
}

#[test]
fn two_threads_never_take_the_last_unit_of_a_known_key() {
    check(hourly(), |table| assert!(take(table, hourly(), 1, NOW)), [1, 1], 1, 0);
}

#[test]
fn two_threads_that_insert_one_key_insert_it_once() {
    check(hourly(), |_| {}, [1, 1], 1, 0);
}

#[test]
fn two_keys_that_fight_over_the_last_free_slot_do_not_both_get_it() {
    // Whoever comes second starts from what the least spent of its class has left: nothing.
    check(daily(), one_slot_free, [1, 2], 1, 0);
}

#[test]
fn a_key_that_returns_and_one_that_takes_its_slot_do_not_both_pay_there() {
    // The fourth slot has lapsed by LATER. Its own key finds it and pays; the
    // other key claims it. Only one of them can have it.
    let lapsed = |table: &Table| {
        one_slot_free(table);
        assert!(take(table, daily(), 1, LONG_AGO));
    };
    check(daily(), lapsed, [1, 2], 1, 0);
}

#[test]
fn a_drained_key_that_is_evicted_is_refused_at_every_moment() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(|| {
        let table = Arc::new(Table::new(1, NOW));
        one_slot_free(&table);
        assert!(take(&table, hourly(), 1, LATER));
        // It has the least to gain of the four, so the newcomer takes its slot.
        let evicting = {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || take(&table, weekly(), 2, LATER))
        };
        let returning = {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || take(&table, hourly(), 1, LATER))
        };
        assert_eq!((evicting.join().ok(), returning.join().ok()), (Some(true), Some(false)));
        assert!(!take(&table, hourly(), 1, LATER));
    });
}

#[test]
fn a_key_whose_slot_was_taken_does_not_charge_the_new_tenant() {
    // The first slot has lapsed and another is empty: both keys find room,
    // and neither pays for the other.
    let twice_hourly = Bucket::new(Rate::per_hour(2)).unwrap();
    let roomy = |table: &Table| {
        assert!(take(table, hourly(), 1, NOW));
        for other in [12, 13] {
            assert!(take(table, daily(), other, NOW));
        }
    };
    check(twice_hourly, roomy, [1, 2], 2, 1);
}
