//! Settlement, refund and release of decisions made without the store.

use std::pin::pin;

use tollgate::{OutageSettings, Span};
use tollgate_testkit::poll_once;

use super::support::{Mood, Subject, ann, parse, standing, subject, with_settings};

const POLICY: &str = "limits: [{name: api, by: user, rate: 100/day, algorithm: fixed-window}]";
const ALLOW: &str =
    "limits: [{name: api, by: user, rate: 100/day, algorithm: fixed-window, on_outage: allow}]";

fn recover(subject: &Subject) {
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_millis(100));
}

/// Returns the remaining units of this node's share.
fn left_here(subject: &Subject) -> Option<u64> {
    let decision = subject.decide(&ann().cost(0));
    assert!(decision.is_degraded());
    standing(&decision).first().map(|(_, _, left)| *left)
}

/// Settles a charge of ten at `cost`, under every algorithm.
#[track_caller]
fn check_settling(policy: &str, before: Option<u64>, cost: u64, after: Option<u64>) {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        check_settling_of(&policy.replace("fixed-window", algorithm), before, cost, after);
    }
}

#[track_caller]
fn check_settling_of(policy: &str, before: Option<u64>, cost: u64, after: Option<u64>) {
    // While it is still in the ledger.
    let here = subject(policy);
    here.store.turn(Mood::Refusing);
    let decision = here.decide(&ann().cost(10));
    assert!(decision.is_allowed());
    assert_eq!(left_here(&here), before);
    pollster::block_on(here.limiter.settle(&decision, cost)).unwrap();
    assert_eq!(left_here(&here), after);
    assert_eq!(here.store.adjustments(), 0, "the store is not called");
    recover(&here);
    here.reconcile();
    assert_eq!(here.left(), 100 - cost, "{policy} settled at {cost}");

    // After the store has been charged with it.
    let later = subject(policy);
    later.store.turn(Mood::Refusing);
    let receipt = later.decide(&ann().cost(10)).receipt().unwrap();
    recover(&later);
    assert_eq!((later.reconcile(), later.left()), (1, 90), "{policy}");
    // The next window of any small length.
    later.clock.advance(Span::from_secs(1));
    pollster::block_on(later.limiter.settle_receipt(&receipt, cost)).unwrap();
    assert_eq!((later.left(), later.reconcile()), (100 - cost, 0), "{policy} settled at {cost}");
}

#[test]
fn a_final_cost_replaces_the_charge_locally_and_in_the_store() {
    check_settling(POLICY, Some(10), 4, Some(16));
    check_settling(POLICY, Some(10), 10, Some(10));
    check_settling(POLICY, Some(10), 15, Some(5));
    check_settling(POLICY, Some(10), 60, Some(0));
    check_settling(POLICY, Some(10), 0, Some(20));
    check_settling(ALLOW, None, 4, None);
    check_settling(ALLOW, None, 60, None);
    check_settling(ALLOW, None, 0, None);
}

#[test]
fn a_refund_returns_the_whole_charge() {
    for policy in [POLICY, ALLOW] {
        let subject = subject(policy);
        subject.store.turn(Mood::Refusing);
        let decision = subject.decide(&ann().cost(10));
        pollster::block_on(subject.limiter.refund(&decision)).unwrap();
        recover(&subject);
        assert_eq!((subject.reconcile(), subject.left()), (0, 100), "{policy}");
    }
}

#[test]
fn each_limit_settles_its_own_cost_without_the_store() {
    let subject = subject(
        "limits:
           - {name: api, by: user, rate: 100/day, algorithm: fixed-window}
           - {name: tokens, by: user, rate: 100/day, algorithm: fixed-window, on_outage: allow, cost: {settle: 'json:n'}}",
    );
    subject.store.turn(Mood::Refusing);
    let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
    assert!(receipt.limits().eq(["api", "tokens"]));
    pollster::block_on(subject.limiter.settle_limits(&receipt, &[("tokens", 30)])).unwrap();
    recover(&subject);
    assert_eq!(subject.reconcile(), 2);
    assert_eq!(standing(&subject.decide(&ann().cost(0))), [("api", 100, 90), ("tokens", 100, 70)]);
}

#[test]
fn records_after_a_replay_are_distinguished_from_earlier_ones() {
    let subject = subject(POLICY);
    subject.store.turn(Mood::Refusing);
    let early = subject.decide(&ann().cost(10)).receipt().unwrap();
    recover(&subject);
    assert_eq!((subject.reconcile(), subject.left()), (1, 90));
    subject.store.turn(Mood::Refusing);
    assert!(subject.decide(&ann().cost(7)).is_degraded());
    subject.store.turn(Mood::Well);
    pollster::block_on(subject.limiter.refund_receipt(&early)).unwrap();
    assert_eq!(subject.left(), 100, "the early one was in the store");
    assert_eq!((subject.reconcile(), subject.left()), (1, 93), "the late one still is to come");
}

/// Settles a charge of ten while the store is in a mood, at each cost, and compares the units left.
#[track_caller]
fn check_settling_during(mood: Mood, settled: &[(u64, u64)]) {
    for &(cost, left) in settled {
        let subject = subject(POLICY);
        subject.store.turn(mood);
        let decision = subject.decide(&ann().cost(10));
        pollster::block_on(subject.limiter.settle(&decision, cost)).unwrap();
        recover(&subject);
        subject.reconcile();
        assert_eq!(subject.left(), left, "settled at {cost}");
    }
}

#[test]
fn a_call_in_doubt_is_not_refunded_but_charged_more() {
    check_settling_during(Mood::Broken, &[(0, 100), (4, 100), (30, 80)]);
}

#[test]
fn a_timed_out_call_is_settled_like_a_rejected_one() {
    check_settling_during(Mood::TimingOut, &[(0, 100), (4, 96), (30, 70)]);
}

#[test]
fn a_timed_out_slot_is_released_by_the_store() {
    let subject = subject("limits: [{name: jobs, by: user, slots: 5}]");
    subject.store.turn(Mood::TimingOut);
    let held = subject.decide(&ann());
    assert!(held.is_allowed() && held.is_degraded());
    subject.store.turn(Mood::Well);
    pollster::block_on(subject.limiter.release(&held)).unwrap();
    assert_eq!(subject.store.adjustments(), 0, "the store compensates it");
}

#[test]
fn a_replayed_charge_is_settled_after_the_next_recovery() {
    let subject = subject(POLICY);
    subject.store.turn(Mood::Refusing);
    let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
    recover(&subject);
    subject.reconcile();
    subject.store.turn(Mood::Refusing);
    assert_eq!(left_here(&subject), Some(10));
    pollster::block_on(subject.limiter.settle_receipt(&receipt, 4)).unwrap();
    assert_eq!(left_here(&subject), Some(16), "refunded locally");
    recover(&subject);
    assert_eq!((subject.reconcile(), subject.left()), (1, 96));
    assert_eq!((subject.reconcile(), subject.left()), (0, 96), "once");
}

#[test]
fn a_final_cost_is_deferred_until_the_store_is_back() {
    for mood in [Mood::Refusing, Mood::TimingOut] {
        for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
            for (cost, left) in [(0, 100), (4, 96), (10, 90), (30, 70), (150, 0)] {
                let subject = subject(&POLICY.replace("fixed-window", algorithm));
                let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
                subject.store.turn(mood);
                pollster::block_on(subject.limiter.settle_receipt(&receipt, cost)).unwrap();
                let kept = usize::from(cost != 10);
                assert_eq!(subject.limiter.health().ledger_keys, kept, "{algorithm} at {cost}");
                // A store that still fails takes nothing, and the attempt loses nothing.
                assert_eq!(subject.reconcile(), 0);
                recover(&subject);
                assert_eq!((subject.reconcile(), subject.left()), (kept, left), "{algorithm} at {cost}");
                assert_eq!((subject.reconcile(), subject.left()), (0, left), "once");
                assert_eq!(subject.limiter.health().lost_entries, 0);
            }
        }
    }
}

#[test]
fn while_the_breaker_is_open_a_final_cost_is_deferred_without_a_call() {
    let subject = subject(POLICY);
    let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
    subject.store.turn(Mood::Refusing);
    while subject.limiter.health().breaker != tollgate::BreakerState::Open {
        drop(subject.decide(&ann().cost(0)));
    }
    pollster::block_on(subject.limiter.settle_receipt(&receipt, 30)).unwrap();
    assert_eq!(subject.store.adjustments(), 0);
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_secs(10));
    assert_eq!((subject.reconcile(), subject.left()), (1, 70));
}

#[test]
fn a_final_cost_in_doubt_is_repeated_and_counted_once() {
    for mood in [Mood::Mute, Mood::Broken] {
        for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
            for (cost, left) in [(0, 100), (4, 96), (30, 70)] {
                let subject = subject(&POLICY.replace("fixed-window", algorithm));
                let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
                subject.store.turn(mood);
                pollster::block_on(subject.limiter.settle_receipt(&receipt, cost)).unwrap();
                // The correction fails again, and is still kept.
                assert_eq!((subject.reconcile(), subject.limiter.health().ledger_keys), (0, 1));
                recover(&subject);
                assert_eq!(
                    (subject.reconcile(), subject.left()),
                    (1, left),
                    "{mood:?} {algorithm} at {cost}"
                );
                assert_eq!((subject.reconcile(), subject.left()), (0, left), "once");
                assert_eq!(subject.limiter.health().lost_entries, 0);
            }
        }
    }
}

#[test]
fn without_recognition_a_cost_in_doubt_is_charged_at_most_twice_and_refunded_at_most_once() {
    for (mood, cost, left) in
        [(Mood::Mute, 30, 50), (Mood::Broken, 30, 70), (Mood::Mute, 4, 96), (Mood::Broken, 4, 90)]
    {
        let subject = subject(POLICY);
        subject.store.ignore_ids();
        let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
        subject.store.turn(mood);
        let settled = pollster::block_on(subject.limiter.settle_receipt(&receipt, cost));
        assert_eq!(settled.is_ok(), cost > 10, "{mood:?} at {cost}");
        recover(&subject);
        subject.reconcile();
        assert_eq!((subject.reconcile(), subject.left()), (0, left), "{mood:?} at {cost}");
        assert_eq!(subject.limiter.health().lost_entries, u64::from(cost < 10));
    }
}

#[test]
fn a_refund_in_doubt_expires_before_the_store_forgets_its_id() {
    let subject = subject(POLICY);
    let receipts: Vec<_> = (0..2).map(|_| subject.decide(&ann().cost(10)).receipt().unwrap()).collect();
    for (receipt, mood) in receipts.iter().zip([Mood::Mute, Mood::Refusing]) {
        subject.store.turn(mood);
        pollster::block_on(subject.limiter.refund_receipt(receipt)).unwrap();
    }
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_minutes(5));
    assert_eq!((subject.reconcile(), subject.left()), (1, 100), "the second was certainly not applied");
    assert_eq!((subject.limiter.health().ledger_keys, subject.limiter.health().lost_entries), (0, 1));
}

#[test]
fn a_dropped_settlement_is_repeated_and_counted_once() {
    for (cost, left) in [(4, 96), (30, 70)] {
        let subject = subject(POLICY);
        let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
        subject.store.turn(Mood::Stuck);
        {
            let settling = pin!(subject.limiter.settle_receipt(&receipt, cost));
            assert!(poll_once(settling).is_pending());
        }
        assert_eq!(subject.limiter.health().ledger_keys, 1);
        // So is a pass that is dropped.
        {
            let pass = pin!(subject.limiter.reconcile());
            assert!(poll_once(pass).is_pending());
        }
        recover(&subject);
        assert_eq!((subject.reconcile(), subject.left()), (1, left));
        assert_eq!(subject.limiter.health().lost_entries, 0);
    }
}

#[test]
fn a_full_queue_is_an_error_and_the_same_receipt_may_be_settled_again() {
    let policy = POLICY.replace('}', "}, {name: b, by: user, rate: 50/hour, algorithm: sliding-log}");
    let settings = OutageSettings { keys: 1, ..OutageSettings::default() };
    let subject = with_settings(&policy, &settings);
    let decision = subject.decide(&ann().cost(10));
    let receipt = decision.receipt().unwrap().with_id(subject.limiter.id_of(&decision));
    subject.store.turn(Mood::Mute);
    // One of two limits finds room, and the store has applied both.
    for _ in 0..3 {
        assert!(pollster::block_on(subject.limiter.settle_receipt(&receipt, 30)).is_err());
    }
    recover(&subject);
    pollster::block_on(subject.limiter.settle_receipt(&receipt, 30)).unwrap();
    subject.reconcile();
    assert_eq!(standing(&subject.decide(&ann().cost(0))), [("api", 100, 70), ("b", 50, 20)]);
}

#[test]
fn a_refund_by_key_is_deferred_and_counted_once() {
    for mood in [Mood::Refusing, Mood::TimingOut, Mood::Mute, Mood::Broken] {
        let subject = subject(POLICY);
        let decision = subject.decide(&ann().cost(10));
        let check = decision.limits().next().unwrap();
        subject.store.turn(mood);
        let refunded = subject.limiter.grant(check.name(), check.rule(), check.key(), 4);
        assert_eq!(pollster::block_on(refunded).unwrap(), None, "{mood:?}");
        recover(&subject);
        assert_eq!((subject.reconcile(), subject.left()), (1, 94), "{mood:?}");
        assert_eq!((subject.reconcile(), subject.left()), (0, 94), "{mood:?}");
    }
}

#[test]
fn a_late_settlement_excludes_expired_units() {
    let subject = subject("limits: [{name: api, by: user, bucket: 60/minute}]");
    let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
    subject.store.turn(Mood::Refusing);
    pollster::block_on(subject.limiter.settle_receipt(&receipt, 40)).unwrap();
    subject.store.turn(Mood::Well);
    // Of 40 spent units, 25 have come back.
    subject.clock.advance(Span::from_secs(25));
    subject.reconcile();
    assert_eq!(subject.left(), 45);
}

/// Found by seed 9005 of the fault simulator: the charge began the expired state of the earlier share anew, and the raised share
/// was relieved to it.
#[test]
fn a_late_settlement_does_not_relieve_a_raised_share() {
    let settle = |subject: &Subject, receipt| {
        pollster::block_on(subject.limiter.settle_receipt(receipt, 2)).unwrap();
    };
    let mut raised = subject("limits: [{name: api, by: user, bucket: 100/second}]");
    raised.store.turn(Mood::Refusing);
    let receipt = raised.decide(&ann()).receipt().unwrap();
    raised.limiter = raised.limiter.with_policy(parse("limits: [{name: api, by: user, bucket: 200/second}]"));
    raised.clock.advance(Span::from_secs(5));
    assert_eq!(raised.admitted(&ann(), 100), 40);
    settle(&raised, &receipt);
    assert_eq!(raised.admitted(&ann(), 100), 0, "after a reload");

    let alone = subject("limits: [{name: api, by: user, bucket: 100/second}]");
    alone.store.turn(Mood::Refusing);
    alone.store.set_nodes(2);
    let receipt = alone.decide(&ann()).receipt().unwrap();
    alone.store.set_nodes(1);
    alone.clock.advance(Span::from_secs(5));
    assert_eq!(alone.admitted(&ann(), 100), 20);
    settle(&alone, &receipt);
    assert_eq!(alone.admitted(&ann(), 100), 0, "after another node has left");
}

#[test]
fn a_release_is_deferred_until_the_store_is_back() {
    for mood in [Mood::Refusing, Mood::TimingOut, Mood::Broken, Mood::Mute] {
        let subject = subject("limits: [{name: jobs, by: user, slots: 1}]");
        let held = subject.decide(&ann());
        subject.store.turn(mood);
        pollster::block_on(subject.limiter.release(&held)).unwrap();
        recover(&subject);
        subject.reconcile();
        assert!(subject.admits(&ann()), "{mood:?}");
    }
}

#[test]
fn a_local_slot_is_released_locally() {
    let subject = subject("limits: [{name: jobs, by: user, slots: 10}]");
    subject.store.turn(Mood::Refusing);
    let (one, two) = (subject.decide(&ann()), subject.decide(&ann()));
    assert!(one.is_allowed() && two.is_allowed());
    assert!(!subject.admits(&ann()), "two of ten are this node's");
    assert_eq!(one.receipt().unwrap().slots(), 1);
    subject.store.set_nodes(2);
    pollster::block_on(subject.limiter.release(&one)).unwrap();
    pollster::block_on(subject.limiter.release(&one)).unwrap();
    assert!(!subject.admits(&ann()), "half the share, and the slot is held");
    pollster::block_on(subject.limiter.release(&two)).unwrap();
    assert!(subject.admits(&ann()));
    assert_eq!((subject.store.adjustments(), subject.limiter.health().ledger_keys), (0, 0));
}

#[test]
fn a_slot_that_the_store_may_hold_is_released_in_both() {
    let subject = subject("limits: [{name: jobs, by: user, slots: 5}]");
    subject.store.turn(Mood::Mute);
    let held = subject.decide(&ann());
    assert!(held.is_allowed() && held.is_degraded());
    subject.store.turn(Mood::Well);
    assert_eq!(standing(&subject.decide(&ann().cost(0))), [("jobs", 5, 4)], "the store has it");
    pollster::block_on(subject.limiter.release(&held)).unwrap();
    assert_eq!(standing(&subject.decide(&ann().cost(0))), [("jobs", 5, 5)]);
    subject.store.turn(Mood::Refusing);
    assert_eq!(left_here(&subject), Some(1));
}

#[test]
fn an_uncounted_slot_is_not_held() {
    let subject = subject("limits: [{name: jobs, by: user, slots: 5, on_outage: allow}]");
    subject.store.turn(Mood::Refusing);
    for _ in 0..20 {
        let decision = subject.decide(&ann());
        assert!(decision.is_allowed() && decision.receipt().is_none());
        pollster::block_on(subject.limiter.release(&decision)).unwrap();
    }
    assert_eq!(subject.store.adjustments(), 0);
}

const TWO: &str = "limits:
  - {name: api, by: user, rate: 100/day, algorithm: fixed-window}
  - {name: all, by: global, rate: 50/day, algorithm: fixed-window}";

#[test]
fn a_settlement_whose_caller_left_is_completed_for_every_limit() {
    for cost in [2, 30] {
        let subject = subject(TWO);
        let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
        subject.store.turn(Mood::Stuck);
        {
            let settling = pin!(subject.limiter.settle_receipt(&receipt, cost));
            assert!(poll_once(settling).is_pending());
        }
        recover(&subject);
        subject.reconcile();
        let expected = [("api", 100, 100 - cost), ("all", 50, 50 - cost)];
        assert_eq!(standing(&subject.decide(&ann().cost(0))), expected);
        assert_eq!(subject.reconcile(), 0);
    }
}

#[test]
fn a_repeated_settlement_without_an_id_is_counted_once() {
    let subject = with_settings(TWO, &OutageSettings { keys: 1, ..OutageSettings::default() });
    let receipt = subject.decide(&ann().cost(10)).receipt().unwrap();
    for _ in 0..3 {
        subject.store.turn(Mood::Foreign);
        assert!(pollster::block_on(subject.limiter.settle_receipt(&receipt, 2)).is_err());
        subject.store.turn(Mood::Well);
        pollster::block_on(subject.limiter.settle_receipt(&receipt, 2)).unwrap();
    }
    assert_eq!(standing(&subject.decide(&ann().cost(0))), [("api", 100, 98), ("all", 50, 48)]);
}
