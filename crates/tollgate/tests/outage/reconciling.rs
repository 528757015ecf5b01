//! The charges to the store after an outage.

use std::pin::pin;
use std::time::Duration;

use tollgate::{BreakerState, OutageSettings, Span};
use tollgate_testkit::poll_once;

use super::support::{Mood, Subject, ann, parse, subject, with_settings};

/// Fails until the breaker is open. Nothing is charged anywhere.
fn open(subject: &Subject) {
    // The breaker stays closed right after an answer.
    subject.clock.advance(Span::from_millis(100));
    subject.store.turn(Mood::Refusing);
    subject.admitted(&ann().cost(0), 5);
    assert_eq!(subject.limiter.health().breaker, BreakerState::Open);
}

/// The store recovers, and the clock advances until a probe is due.
fn recover(subject: &Subject) {
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_millis(100));
}

#[test]
fn usage_during_an_outage_is_replayed_once() {
    for written in [
        "rate: 100/day, algorithm: fixed-window",
        "rate: 100/day, algorithm: sliding-window",
        "rate: 100/day, algorithm: sliding-log",
    ] {
        let subject = subject(&format!("limits: [{{name: api, by: user, {written}}}]"));
        assert_eq!(subject.admitted(&ann(), 10), 10);
        open(&subject);
        assert_eq!(subject.admitted(&ann(), 50), 20);
        assert_eq!(
            (subject.reconcile(), subject.limiter.health().ledger_keys),
            (0, 1),
            "the breaker is open"
        );
        recover(&subject);
        assert_eq!(subject.reconcile(), 1, "{written}");
        assert_eq!(subject.left(), 70, "{written}");
        assert_eq!((subject.reconcile(), subject.left()), (0, 70), "{written}");
        let health = subject.limiter.health();
        assert_eq!((health.replayed_units, health.ledger_keys, health.lost_entries), (20, 0, 0), "{written}");
    }
}

#[test]
fn expired_usage_is_not_replayed() {
    let subject = subject("limits: [{name: api, by: user, bucket: 100/100s}]");
    open(&subject);
    assert_eq!(subject.admitted(&ann(), 50), 20);
    subject.clock.advance(Span::from_secs(15));
    recover(&subject);
    assert_eq!(subject.reconcile(), 1);
    assert_eq!(subject.left(), 95, "twenty less fifteen that have come back");
    open(&subject);
    subject.admitted(&ann(), 50);
    subject.clock.advance(Span::from_secs(100));
    recover(&subject);
    assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (0, 0));
}

#[test]
fn uncounted_usage_is_replayed_down_to_zero_remaining() {
    let subject = subject("limits: [{name: api, by: user, bucket: 100/day, on_outage: allow}]");
    open(&subject);
    assert_eq!(subject.admitted(&ann(), 30), 30);
    assert_eq!(subject.admitted(&ann().user("bob"), 500), 500);
    recover(&subject);
    assert_eq!(subject.reconcile(), 2);
    assert_eq!(subject.left(), 70);
    let bob = subject.decide(&ann().user("bob"));
    assert!(!bob.is_allowed());
    assert!(bob.retry_after().unwrap() <= Duration::from_secs(864), "exhausted without a debt");
}

#[test]
fn a_call_in_doubt_is_not_charged_again() {
    for (mood, left) in [(Mood::Mute, 96), (Mood::Broken, 100)] {
        let subject = subject("limits: [{name: api, by: user, bucket: 100/day}, {by: user, slots: 100}]");
        subject.store.turn(mood);
        assert_eq!(subject.admitted(&ann(), 4), 4);
        let health = subject.limiter.health();
        assert_eq!((health.ledger_keys, health.lost_entries), (0, 4), "{mood:?}");
        subject.store.turn(Mood::Well);
        assert_eq!((subject.reconcile(), subject.left()), (0, left), "{mood:?}");
    }
}

#[test]
fn a_refusal_in_doubt_is_lost_only_under_count_denied() {
    let subject = subject(
        "limits: [{name: api, by: user, bucket: 5/day}, {by: global, bucket: 50/day, count_denied: true}]",
    );
    subject.store.turn(Mood::Broken);
    for (admitted, lost) in [(1, 2), (0, 3), (0, 4)] {
        assert_eq!(subject.admitted(&ann(), 1), admitted);
        assert_eq!(subject.limiter.health().lost_entries, lost);
    }
}

#[test]
fn a_timed_out_call_is_replayed() {
    let subject = subject("limits: [{name: api, by: user, bucket: 100/day}]");
    subject.store.turn(Mood::TimingOut);
    assert_eq!(subject.admitted(&ann(), 4), 4);
    assert_eq!((subject.limiter.health().ledger_keys, subject.limiter.health().lost_entries), (1, 0));
    assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (0, 1), "the replay is kept");
    recover(&subject);
    assert_eq!((subject.reconcile(), subject.left()), (1, 96));
}

#[test]
fn keys_of_a_failed_part_are_kept_and_the_others_replayed() {
    // A breaker that needs more consecutive failures than a pass allows.
    let settings = OutageSettings { failures: 20, ..OutageSettings::default() };
    let subject = with_settings("limits: [{name: api, by: user, bucket: 100/day}]", &settings);
    subject.store.turn(Mood::Refusing);
    for user in 0..60 {
        let part = if user % 3 == 0 { "gone" } else { "well" };
        assert!(subject.admits(&ann().user(&format!("{part}-{user}"))));
    }
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_secs(2));
    subject.store.lose(Some("gone-"));
    let mut charged = 0;
    for _ in 0..40 {
        let calls_before = subject.store.adjustments();
        charged += subject.reconcile();
        assert!(subject.store.adjustments() - calls_before <= 60, "each is tried once in a pass");
        // Requests for other keys are answered.
        subject.clock.advance(Span::from_secs(2));
        assert!(!subject.decide(&ann().cost(0)).is_degraded());
    }
    let health = subject.limiter.health();
    assert_eq!((charged, health.ledger_keys, health.lost_entries), (40, 20, 0));
    let calls_before = subject.store.adjustments();
    assert_eq!(subject.reconcile(), 0);
    assert_eq!(subject.store.adjustments() - calls_before, 8, "consecutive failures end a pass");
    subject.store.lose(None);
    assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (20, 0));
}

#[test]
fn a_store_that_fails_again_opens_the_breaker_and_loses_nothing() {
    let subject = subject("limits: [{name: api, by: user, bucket: 100/day}]");
    open(&subject);
    let users: Vec<_> = (0..50).map(|user| format!("user-{user}")).collect();
    for user in &users {
        assert!(subject.admits(&ann().user(user)));
    }
    recover(&subject);
    assert!(!subject.decide(&ann().cost(0)).is_degraded());
    subject.clock.advance(Span::from_millis(100));
    subject.store.turn(Mood::Refusing);
    assert_eq!(subject.reconcile(), 0);
    assert_eq!((subject.store.adjustments(), subject.limiter.health().ledger_keys), (5, 50));
    assert_eq!(subject.limiter.health().breaker, BreakerState::Open, "which ended the pass");
    recover(&subject);
    assert_eq!(subject.reconcile(), 50);
    for user in &users {
        let decision = subject.decide(&ann().user(user).cost(0));
        assert_eq!(decision.limits().next().unwrap().outcome().remaining, 99);
    }
    assert_eq!((subject.limiter.health().lost_entries, subject.limiter.health().replayed_units), (0, 50));
}

#[test]
fn a_charge_in_doubt_is_repeated_and_counted_once() {
    for (mood, lost) in [(Mood::Mute, 0), (Mood::Broken, 0), (Mood::Foreign, 1)] {
        let subject = subject("limits: [{name: api, by: user, bucket: 100/day}]");
        open(&subject);
        subject.admits(&ann());
        recover(&subject);
        assert!(!subject.decide(&ann().cost(0)).is_degraded());
        subject.store.turn(mood);
        assert_eq!(subject.reconcile(), 0);
        recover(&subject);
        let kept = usize::from(lost == 0);
        assert_eq!((subject.reconcile(), subject.limiter.health().lost_entries), (kept, lost), "{mood:?}");
        assert_eq!(subject.left(), 99 + lost, "{mood:?}");
        assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (0, 0), "{mood:?}");
    }
}

#[test]
fn a_dropped_pass_charges_nothing_twice() {
    let subject = subject("limits: [{name: api, by: user, bucket: 100/day}]");
    open(&subject);
    for user in ["a", "b", "c"] {
        subject.admits(&ann().user(user));
    }
    recover(&subject);
    assert!(!subject.decide(&ann().cost(0)).is_degraded());
    subject.store.turn(Mood::Stuck);
    {
        let pass = pin!(subject.limiter.reconcile());
        assert!(poll_once(pass).is_pending());
    }
    let health = subject.limiter.health();
    assert_eq!((health.ledger_keys, health.lost_entries), (2, 1));
    subject.store.turn(Mood::Well);
    assert_eq!(subject.reconcile(), 2);
}

#[test]
fn a_node_without_traffic_replays_its_ledger() {
    let subject = subject("limits: [{name: api, by: user, bucket: 100/day}]");
    open(&subject);
    subject.admits(&ann());
    recover(&subject);
    assert_eq!(subject.reconcile(), 1);
    assert_eq!(subject.limiter.health().breaker, BreakerState::Closed);
}

#[test]
fn after_a_reload_usage_is_replayed_to_the_present_rule_or_lost() {
    let mut subject =
        subject("limits: [{name: api, by: user, bucket: 100/day}, {name: gone, by: ip, bucket: 9/day}]");
    open(&subject);
    subject.admits(&ann());
    subject.limiter = subject.limiter.with_policy(parse("limits: [{name: api, by: user, bucket: 200/day}]"));
    recover(&subject);
    assert_eq!((subject.reconcile(), subject.left()), (1, 199));
    assert_eq!((subject.limiter.health().ledger_keys, subject.limiter.health().lost_entries), (0, 1));
}

#[test]
fn the_ledger_is_bounded_and_counts_losses() {
    let settings = OutageSettings { keys: 64, ..OutageSettings::default() };
    let subject =
        with_settings("limits: [{name: api, by: user, bucket: 100/1000s, on_outage: allow}]", &settings);
    open(&subject);
    let flood = |from: u32| {
        for user in from..from + 1_000 {
            assert!(subject.admits(&ann().user(&format!("user-{user}"))));
        }
    };
    flood(0);
    let health = subject.limiter.health();
    assert!(health.ledger_keys <= 64);
    assert_eq!(health.ledger_keys as u64 + health.lost_entries, 1_000);
    subject.clock.advance(Span::from_secs(30));
    flood(1_000);
    assert_eq!(subject.limiter.health().ledger_keys, health.ledger_keys, "expired entries make room");
    recover(&subject);
    subject.clock.advance(Span::from_secs(1));
    assert_eq!(subject.reconcile(), health.ledger_keys);
    assert_eq!(subject.limiter.health().ledger_keys, 0);
}

#[test]
fn concurrent_passes_charge_each_key_once() {
    let subject = &subject("limits: [{name: api, by: user, bucket: 1000/day, on_outage: allow}]");
    open(subject);
    let users: Vec<_> = (0..500).map(|user| format!("user-{user}")).collect();
    for user in &users {
        subject.admitted(&ann().user(user), 3);
    }
    recover(subject);
    assert!(!subject.decide(&ann().cost(0)).is_degraded());
    let charged = std::thread::scope(|scope| {
        let passes: Vec<_> = (0..4).map(|_| scope.spawn(|| subject.reconcile())).collect();
        passes.into_iter().map(|pass| pass.join().unwrap()).sum::<usize>()
    });
    assert_eq!((charged, subject.limiter.health().replayed_units), (500, 1_500));
}

#[test]
fn concurrent_threads_neither_lose_nor_repeat_charges() {
    let policy =
        "limits: [{name: api, by: user, rate: 1000000/day, algorithm: fixed-window, on_outage: allow}]";
    // Short periods of health do not earn enough, so the grace period must be long.
    let settings =
        OutageSettings { grace: std::time::Duration::from_secs(3_600), ..OutageSettings::default() };
    let subject = &with_settings(policy, &settings);
    // So much that a refund always finds its units.
    assert!(subject.admits(&ann().cost(10_000)));
    let (admitted, given_back) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..400 {
                subject.store.turn(if turn % 2 == 0 { Mood::Refusing } else { Mood::Well });
                subject.clock.advance(Span::from_millis(30));
                subject.reconcile();
                std::thread::yield_now();
            }
        });
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (mut admitted, mut given_back) = (0, 0);
                    for turn in 0..4_000 {
                        let decision = subject.decide(&ann().cost(2));
                        assert!(decision.is_allowed());
                        admitted += 2;
                        if turn % 5 == 0 && pollster::block_on(subject.limiter.settle(&decision, 1)).is_ok() {
                            given_back += 1;
                        }
                    }
                    (admitted, given_back)
                })
            })
            .collect();
        let sums = callers.into_iter().map(|caller| caller.join().unwrap());
        sums.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    });
    recover(subject);
    subject.clock.advance(Span::from_secs(1));
    subject.reconcile();
    let health = subject.limiter.health();
    assert_eq!((health.breaker, health.ledger_keys, health.lost_entries), (BreakerState::Closed, 0, 0));
    assert_eq!(subject.left(), 990_000 - admitted + given_back);
}

const UNITS_AND_SLOTS: &str = "
limits:
  - {name: api, by: user, bucket: 100/day}
  - {name: jobs, by: user, slots: 1, ttl: 1h}
";

/// A limiter whose breaker never opens, with `count` users on a part of the store that is gone.
fn with_gone_users(count: usize) -> (Subject, Vec<String>) {
    let settings = OutageSettings { failures: u32::MAX, keys: count, ..OutageSettings::default() };
    let subject = with_settings(UNITS_AND_SLOTS, &settings);
    subject.store.lose(Some("gone"));
    (subject, (0..count).map(|number| format!("gone-{number}")).collect())
}

/// Takes a slot of `ann`, and releases it while the store refuses.
fn release_later(subject: &Subject) {
    let held = subject.decide(&ann());
    subject.store.turn(Mood::Refusing);
    pollster::block_on(subject.limiter.release(&held)).unwrap();
    subject.store.turn(Mood::Well);
    assert!(!subject.admits(&ann()));
}

#[test]
fn releases_and_debts_are_not_delayed_by_corrections_that_keep_failing() {
    let (subject, gone) = with_gone_users(20);
    for user in &gone {
        let receipt = subject.decide(&ann().user(user).cost(10)).receipt().unwrap();
        pollster::block_on(subject.limiter.settle_receipt(&receipt, 30)).unwrap();
    }
    // The corrections have filled their queue.
    assert_eq!(subject.limiter.health().ledger_keys, 20);
    release_later(&subject);
    subject.store.turn(Mood::Refusing);
    assert!(subject.decide(&ann().user("bob").cost(7)).is_degraded());
    subject.store.turn(Mood::Well);
    assert_eq!(subject.reconcile(), 2, "the slot of ann and the usage of bob");
    assert!(subject.admits(&ann()));
    assert_eq!((subject.limiter.health().ledger_keys, subject.limiter.health().lost_entries), (20, 0));
    subject.store.lose(None);
    assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (20, 0));
}

#[test]
fn releases_are_not_delayed_by_releases_that_keep_failing() {
    let (subject, gone) = with_gone_users(20);
    let held: Vec<_> = gone.iter().map(|user| subject.decide(&ann().user(user)).receipt().unwrap()).collect();
    for receipt in held.iter().skip(1) {
        pollster::block_on(subject.limiter.release_receipt(receipt)).unwrap();
    }
    // Three passes of at most eight failures try all of them.
    assert_eq!([(); 3].map(|()| subject.reconcile()), [0; 3]);
    release_later(&subject);
    assert_eq!(subject.reconcile(), 1);
    assert!(subject.admits(&ann()));
    subject.store.lose(None);
    assert_eq!((subject.reconcile(), subject.limiter.health().lost_entries), (19, 0));
}

#[test]
fn a_key_that_fails_is_tried_once_per_pass() {
    let settings = OutageSettings { failures: u32::MAX, ..OutageSettings::default() };
    let subject = with_settings("limits: [{name: api, by: user, bucket: 100/day}]", &settings);
    subject.store.lose(Some("gone"));
    for _ in 0..7 {
        let receipt = subject.decide(&ann().user("gone")).receipt().unwrap();
        pollster::block_on(subject.limiter.settle_receipt(&receipt, 2)).unwrap();
    }
    for _ in 0..2 {
        let before = subject.store.adjustments();
        assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (0, 7));
        assert_eq!(subject.store.adjustments(), before + 1);
    }
    subject.store.lose(None);
    assert_eq!((subject.reconcile(), subject.limiter.health().lost_entries), (7, 0));
}
