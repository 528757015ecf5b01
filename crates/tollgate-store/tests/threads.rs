//! Threads together never admit more than the limit.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{
    Adjustment, Amount, Bucket, ChargeTimes, Concurrency, FixedWindow, Owner, Quota, Rate, Rule, SlidingLog,
    SlidingParts, SlidingWindow, Span, Timestamp, Window,
};
use tollgate_store::{Check, ManualClock, MemoryStore};

const NOW: Timestamp = Timestamp::from_secs(1_772_366_400);
const THREADS: u64 = 4;

fn store() -> MemoryStore<ManualClock> {
    MemoryStore::with_seed(1_000, ManualClock::at(NOW), 7)
}

/// Runs `work` on every thread and returns the sum.
fn together(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let (total, work) = (AtomicU64::new(0), &work);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let total = &total;
            scope.spawn(move || total.fetch_add(work(thread), Ordering::Relaxed));
        }
    });
    total.into_inner()
}

#[test]
fn threads_lose_no_hit_of_a_tally_under_any_limit() {
    let tally =
        |limit| Rule::new("tally", FixedWindow::tally(limit, Window::Epoch(Span::from_days(1))).unwrap());
    let (store, rules) = (store(), [tally(100), tally(1_000)]);
    let admitted = together(|thread| {
        let rule = &rules[usize::from(thread % 2 == 1)];
        let hit = Check { count_denied: true, ..Check::new(rule, b"key", 1) };
        (0..1_000).filter(|_| store.decide_now(&[hit]).admitted).count() as u64
    });
    assert!(admitted <= 1_000, "{admitted} were admitted");
    let all = store.decide_now(&[Check::new(&tally(10_000), b"key", 0)]);
    assert_eq!(all.outcomes[0].remaining, 10_000 - 1_000 * THREADS);
}

#[test]
fn threads_never_admit_one_more_than_the_limit() {
    let rate = Rate::per_hour(1_000);
    let quotas: [Quota; 7] = [
        Bucket::new(rate).unwrap().into(),
        Bucket::new(Rate::new(1_000, Span::from_micros(3_599_999_983))).unwrap().into(),
        FixedWindow::epoch(rate).unwrap().into(),
        FixedWindow::anchored(rate).unwrap().into(),
        SlidingWindow::new(rate).unwrap().into(),
        SlidingParts::new(rate, 4).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
    ];
    for quota in quotas {
        let (store, rule) = (store(), Rule::new("shared", quota));
        let admitted = together(|_| {
            (0..5_000).filter(|_| store.decide_now(&[Check::new(&rule, b"key", 1)]).admitted).count() as u64
        });
        assert_eq!(admitted, 1_000, "{}", rule.quota);
    }
}

#[test]
fn threads_that_all_insert_the_same_new_keys_share_one_allowance_each() {
    let store = store();
    let rule = Rule::new("new", Bucket::new(Rate::per_hour(1)).unwrap());
    let keys: Vec<String> = (0..500).map(|n| format!("key {n}")).collect();
    let admitted = together(|_| {
        keys.iter().filter(|key| store.take(&Check::new(&rule, key.as_bytes(), 1), NOW).is_admitted()).count()
            as u64
    });
    assert_eq!(admitted, 500);
}

#[test]
fn batches_that_race_for_two_limits_charge_both_or_neither() {
    let store = store();
    let wide = Rule::new("wide", Bucket::new(Rate::per_hour(100_000)).unwrap());
    let narrow = Rule::new("narrow", Bucket::new(Rate::per_hour(700)).unwrap());
    let batch = [Check::new(&wide, b"key", 1), Check::new(&narrow, b"key", 1)];
    let admitted = together(|_| (0..3_000).filter(|_| store.decide_now(&batch).admitted).count() as u64);
    assert_eq!(admitted, 700);
    let left = |rule| store.take(&Check::new(rule, b"key", 0), NOW).remaining;
    assert_eq!((left(&wide), left(&narrow)), (100_000 - 700, 0), "refused batches were refunded");
}

#[test]
fn refunds_and_charges_that_race_cancel_out() {
    let store = store();
    let rule = Rule::new("paid back", Bucket::new(Rate::per_hour(100)).unwrap());
    together(|_| {
        for _ in 0..5_000 {
            let outcome = store.take(&Check::new(&rule, b"key", 1), NOW);
            if outcome.is_admitted() {
                let charge = ChargeTimes::of(NOW, &outcome);
                store.adjust_now(&rule, b"key", Adjustment::Refund { units: 1, charge });
            }
        }
        0
    });
    assert_eq!(store.take(&Check::new(&rule, b"key", 0), NOW).remaining, 100);
}

#[test]
fn concurrent_holders_never_exceed_the_slots() {
    let store = store();
    let rule = Rule::new("slots", Concurrency::new(3, Span::from_hours(1)).unwrap());
    let (holding, most) = (AtomicU64::new(0), AtomicU64::new(0));
    together(|thread| {
        let owner = Owner(thread.into());
        let check = Check { amount: Amount::Slot(owner), ..Check::new(&rule, b"key", 0) };
        for _ in 0..5_000 {
            if store.decide_now(&[check]).admitted {
                most.fetch_max(holding.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                holding.fetch_sub(1, Ordering::SeqCst);
                store.adjust_now(&rule, b"key", Adjustment::Release { owner });
            }
        }
        0
    });
    assert!(most.into_inner() <= 3);
}

#[test]
fn threads_never_admit_one_more_than_a_raised_limit() {
    let rule = |limit| Rule::new("raised", Bucket::new(Rate::per_day(limit)).unwrap());
    let before = rule(10);
    let after = rule(11).replacing(&before);
    for seed in 0..2_000 {
        let store = MemoryStore::with_seed(100, ManualClock::at(NOW), seed);
        assert!(store.decide_now(&[Check::new(&before, b"key", 5)]).admitted);
        let start = Barrier::new(usize::try_from(THREADS).unwrap());
        let more = together(|_| {
            start.wait();
            (0..20).filter(|_| store.decide_now(&[Check::new(&after, b"key", 1)]).admitted).count() as u64
        });
        assert!(5 + more <= 11, "{} of 11 were admitted", 5 + more);
    }
}
