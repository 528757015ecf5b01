//! Rules that stand in no policy: whoever asks brings the numbers, in an outage too.

use tollgate::policy::Key;
use tollgate::throttle::Throttle;
use tollgate::{FixedWindow, Rule, Span, Window};

use crate::support::{Mood, Subject, subject};

/// Asks for so many units of a key, so often. How often it passes, and what is left.
fn ask(subject: &Subject, rule: &Rule, units: u64, times: usize) -> (usize, u64) {
    let (mut admitted, mut left) = (0, 0);
    for _ in 0..times {
        let decision = pollster::block_on(subject.limiter.decide_rule(rule, Key::named(b"ann"), units));
        admitted += usize::from(decision.is_allowed());
        left = decision.limits().next().unwrap().outcome().remaining;
    }
    (admitted, left)
}

fn left(subject: &Subject, rule: &Rule) -> u64 {
    ask(subject, rule, 0, 1).1
}

/// Nobody answers for as long as `during` takes, and then somebody does.
fn outage(subject: &Subject, mood: Mood, during: impl FnOnce()) {
    subject.store.turn(mood);
    during();
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_secs(2));
}

fn throttle(capacity: u64, count: u64, period: Span) -> Rule {
    Throttle { capacity, count, period }.rule().unwrap()
}

#[test]
fn what_was_admitted_by_numbers_of_the_call_is_charged_once() {
    // Whole microseconds apart, and fractions of them.
    for rule in [throttle(100, 1, Span::from_days(1)), throttle(100, 7, Span::from_days(8))] {
        for mood in [Mood::Refusing, Mood::TimingOut] {
            let subject = subject("limits: []");
            assert_eq!(ask(&subject, &rule, 1, 10), (10, 90));
            outage(&subject, mood, || assert_eq!(ask(&subject, &rule, 1, 50).0, 20, "its share"));
            assert_eq!((subject.reconcile(), left(&subject, &rule)), (1, 70), "{mood:?}");
            assert_eq!((subject.reconcile(), left(&subject, &rule)), (0, 70), "{mood:?}");
            let health = subject.limiter.health();
            assert_eq!((health.replayed_units, health.ledger_keys, health.lost_entries), (20, 0, 0));
        }
    }
}

#[test]
fn numbers_that_share_a_state_owe_together() {
    let (small, large) = (throttle(10, 1, Span::from_days(1)), throttle(100, 1, Span::from_days(1)));
    let subject = subject("limits: []");
    outage(&subject, Mood::Refusing, || {
        assert_eq!(ask(&subject, &small, 1, 5).0, 2);
        assert_eq!(ask(&subject, &large, 1, 50).0, 18, "with the two of before");
    });
    assert_eq!((subject.reconcile(), left(&subject, &large)), (1, 80));
}

#[test]
fn a_tally_that_the_call_brings_is_charged_with_all_it_counted() {
    let tally = |limit| {
        Rule::new("shop.user", FixedWindow::tally(limit, Window::Anchored(Span::from_days(1))).unwrap())
    };
    let subject = subject("limits: []");
    assert_eq!(ask(&subject, &tally(100), 1, 10), (10, 90));
    outage(&subject, Mood::Refusing, || {
        assert_eq!(ask(&subject, &tally(100), 1, 50).0, 20);
    });
    assert_eq!(subject.reconcile(), 1);
    // Refusals count, there as here.
    assert_eq!((subject.limiter.health().replayed_units, left(&subject, &tally(100))), (50, 40));
    assert_eq!(left(&subject, &tally(200)), 140, "whatever the limit is next");
    assert_eq!(subject.limiter.health().lost_entries, 0);
}
