//! Rules that are in no policy: the caller provides the numbers, in an outage too.

use tollgate::policy::Key;
use tollgate::throttle::Throttle;
use tollgate::{FixedWindow, Rule, Span, Window};

use super::support::{Mood, Subject, subject};

/// Requests units of a key `times` times. Returns the number of admissions and the remaining units.
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

/// Runs `during` while the store fails, and lets it recover after that.
fn outage(subject: &Subject, mood: Mood, during: impl FnOnce()) {
    subject.store.turn(mood);
    during();
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_secs(2));
}

fn throttle(capacity: u64, count: u64, period: Span) -> Rule {
    Throttle { capacity, count, period: period.into() }.rule().unwrap()
}

#[test]
fn usage_under_ad_hoc_rules_is_replayed_once() {
    // A whole number of microseconds per unit, and a fraction.
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
fn rules_that_share_a_state_share_a_debt() {
    let (small, large) = (throttle(10, 1, Span::from_days(1)), throttle(100, 1, Span::from_days(1)));
    let subject = subject("limits: []");
    outage(&subject, Mood::Refusing, || {
        assert_eq!(ask(&subject, &small, 1, 5).0, 2);
        assert_eq!(ask(&subject, &large, 1, 50).0, 18, "with the two of before");
    });
    assert_eq!((subject.reconcile(), left(&subject, &large)), (1, 80));
}

#[test]
fn an_ad_hoc_tally_is_replayed_in_full() {
    let tally = |limit| {
        Rule::new("shop.user", FixedWindow::tally(limit, Window::Anchored(Span::from_days(1))).unwrap())
    };
    let subject = subject("limits: []");
    assert_eq!(ask(&subject, &tally(100), 1, 10), (10, 90));
    outage(&subject, Mood::Refusing, || {
        assert_eq!(ask(&subject, &tally(100), 1, 50).0, 20);
    });
    assert_eq!(subject.reconcile(), 1);
    // Refusals count, in the store as on this node.
    assert_eq!((subject.limiter.health().replayed_units, left(&subject, &tally(100))), (50, 40));
    assert_eq!(left(&subject, &tally(200)), 140, "under any later limit");
    assert_eq!(subject.limiter.health().lost_entries, 0);
}
