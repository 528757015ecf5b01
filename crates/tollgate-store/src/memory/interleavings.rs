//! Model checks of all interleavings of two threads, in small cases.
//!
//! Run by `make test-loom`, on loom's atomics. Each guard of the table was removed once to see a
//! case fail.

use loom::sync::Arc;
use tollgate_core::{Amount, Bucket, Rate, Timestamp};

use super::action::Action;
use super::hash::RULE_BITS;
use super::prior_usage::NoPriorUsage;
use super::table::Table;

const NOW: Timestamp = Timestamp::from_secs(1_000_000_000);
const LATER: Timestamp = Timestamp::from_secs(1_000_010_000);
const LONG_AGO: Timestamp = Timestamp::from_secs(999_000_000);

/// Two threads acquire one unit of a key each, in a table of a single line. In every interleaving,
/// `most` of them are admitted, and `left` units are left to each key.
fn check(bucket: Bucket, prepare: fn(&Table), keys: [u64; 2], most: usize, left: usize) {
    let mut model = loom::model::Builder::new();
    // Enough for every order of the few relevant steps, in seconds instead of minutes.
    model.preemption_bound = Some(3);
    model.max_branches = 10_000; // a full line is scanned many times
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
    // Buckets that fill in the same number of hours stand for one rule.
    let rule = bucket.fill_time().as_micros() / 3_600_000_000 & RULE_BITS;
    let hash = key << RULE_BITS.count_ones() | rule;
    match table.pay(hash, ticks, ticks.price(1).unwrap(), now) {
        Some((_, paid)) => paid,
        None => {
            table.run(hash, &bucket, Action::Acquire(Amount::Exactly(1)), now, &NoPriorUsage).is_admitted()
        }
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
fn two_threads_insert_one_key_only_once() {
    check(hourly(), |_| {}, [1, 1], 1, 0);
}

#[test]
fn two_keys_never_share_the_last_free_slot() {
    // The second key starts from the state of the least spent key of its class, which has nothing
    // left.
    check(daily(), one_slot_free, [1, 2], 1, 0);
}

#[test]
fn a_returning_key_and_its_replacement_never_both_pay_in_one_slot() {
    // The fourth slot has expired by LATER. Its own key finds it and pays; the other key claims it.
    // Only one of them can have it.
    let lapsed = |table: &Table| {
        one_slot_free(table);
        assert!(take(table, daily(), 1, LONG_AGO));
    };
    check(daily(), lapsed, [1, 2], 1, 0);
}

#[test]
fn an_evicted_drained_key_is_always_refused() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(|| {
        let table = Arc::new(Table::new(1, NOW));
        one_slot_free(&table);
        assert!(take(&table, hourly(), 1, LATER));
        // It has the smallest worth of the four, so the new key takes its slot.
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
fn a_key_that_lost_its_slot_never_charges_the_new_key() {
    // The first slot has expired and another is empty: both keys find room, and neither pays for
    // the other.
    let twice_hourly = Bucket::new(Rate::per_hour(2)).unwrap();
    let roomy = |table: &Table| {
        assert!(take(table, hourly(), 1, NOW));
        for other in [12, 13] {
            assert!(take(table, daily(), other, NOW));
        }
    };
    check(twice_hourly, roomy, [1, 2], 2, 1);
}
