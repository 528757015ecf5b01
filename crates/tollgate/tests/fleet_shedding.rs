//! Priority classes in decisions, and the fleet shedder.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use pollster::block_on;
use tollgate::{Call, Fate, Limiter, ManualClock, MemoryStore, Policy, PriorityClass, Span, Timestamp};

use crate::outage::support::{Mood, subject};
use crate::permits::Remote;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

fn text(shed: &str) -> String {
    format!(
        "
allow: [{{user: probe}}]
priorities:
  - {{name: critical, endpoint: /pay}}
  - {{name: normal}}
  - {{name: bulk, headers: {{x-priority: bulk}}}}
shed: {{fleet: {{{shed}}}}}
limits: [{{name: api, by: user, bucket: 100/second}}]
"
    )
}

fn policy(shed: &str) -> Policy {
    Policy::parse(&text(shed)).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn limiter(shed: &str) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::at(START);
    (Limiter::with_store(policy(shed), MemoryStore::with_clock(1_000, clock.clone())), clock)
}

fn critical() -> Call<'static> {
    Call::new("POST", "/pay").user("ann")
}

fn normal() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

fn bulk() -> Call<'static> {
    normal().header("x-priority", "bulk")
}

#[test]
fn the_class_of_a_request_is_in_its_decision() {
    let (limiter, _) = limiter("slots: 10");
    for (call, name) in [(critical(), "critical"), (normal(), "normal"), (bulk(), "bulk")] {
        assert_eq!(limiter.check(&call).priority().map(PriorityClass::name), Some(name));
        let considered = block_on(limiter.consider(&call)).unwrap();
        assert_eq!(considered.priority().map(PriorityClass::name), Some(name));
    }
    // A decision that had to wait has its class, too.
    let remote = Limiter::with_store(
        policy("slots: 10"),
        Remote(MemoryStore::with_clock(100, ManualClock::at(START))),
    );
    let decision = block_on(remote.decide(&bulk()));
    assert_eq!(decision.priority().map(PriorityClass::name), Some("bulk"));
}

#[test]
fn a_class_uses_all_slots_except_those_reserved_for_more_important_classes() {
    let (limiter, _) = limiter("slots: 10, reserve: {critical: 20%, normal: 3}");
    let admitted = |call: &Call<'_>| (0..20).filter(|_| limiter.check(call).is_allowed()).count();
    assert_eq!(admitted(&bulk()), 5, "two are for `critical`, three for `normal` and `critical`");
    assert_eq!(admitted(&normal()), 3);
    let refused = limiter.check(&normal());
    assert_eq!((refused.fate(), refused.is_shed()), (Fate::Refused, true));
    let limiting = refused.limiting().unwrap();
    assert_eq!((limiting.name(), limiting.outcome().limit), ("shed.fleet", 8));
    assert_eq!(refused.advised_wait(), Some(Duration::from_secs(1)));
    assert_eq!(admitted(&critical()), 2);
    let refused = limiter.check(&critical());
    assert_eq!(refused.limiting().unwrap().outcome().limit, 10);
}

#[test]
fn a_refusal_by_the_shedder_charges_nothing_and_a_release_admits_the_next() {
    let (limiter, _) = limiter("slots: 2, reserve: {critical: 1}");
    let held = limiter.check(&bulk());
    assert!(held.is_allowed());
    for _ in 0..5 {
        assert!(limiter.check(&bulk()).is_shed());
    }
    let spent = limiter.check(&critical());
    let api = spent.limits().find(|it| it.name() == "api").unwrap();
    assert_eq!(api.remaining(), 98, "two were admitted");
    block_on(limiter.release(&held)).unwrap();
    block_on(limiter.release(&spent)).unwrap();
    assert!(limiter.check(&bulk()).is_allowed());
}

#[test]
fn a_rate_of_the_fleet_keeps_tokens_for_the_important_classes() {
    let (limiter, clock) = limiter("rate: 10/second, reserve: {critical: 40%}");
    let admitted = |call: &Call<'_>| (0..20).filter(|_| limiter.check(call).is_allowed()).count();
    assert_eq!(admitted(&bulk()), 6);
    assert_eq!(admitted(&critical()), 4);
    assert!(limiter.check(&critical()).is_shed());
    // While `critical` has used its reserve, the others wait until it is full again.
    clock.advance(Span::from_millis(400));
    assert_eq!(admitted(&normal()), 0);
    clock.advance(Span::from_millis(100));
    assert_eq!(admitted(&normal()), 1);
    let refused = limiter.check(&normal());
    assert_eq!(refused.advised_wait(), Some(Duration::from_secs(1)), "100 ms would be too soon");
}

#[test]
fn a_quota_of_the_caller_outranks_the_shedder_in_the_answer() {
    let text = "shed: {fleet: {slots: 1}}\nlimits: [{name: own, by: user, bucket: 1/hour}]";
    let limiter = Limiter::from_policy(text).unwrap();
    assert!(limiter.check(&normal()).is_allowed());
    let refused = limiter.check(&normal());
    assert_eq!((refused.limiting().map(|it| it.name()), refused.is_shed()), (Some("own"), false));
    let other = limiter.check(&Call::new("GET", "/").user("bob"));
    assert_eq!((other.limiting().map(|it| it.name()), other.is_shed()), (Some("shed.fleet"), true));
}

#[test]
fn allow_listed_requests_are_not_shed_and_a_shadow_shedder_refuses_nothing() {
    let (limiter, _) = limiter("slots: 1");
    assert!(limiter.check(&bulk()).is_allowed());
    assert!(limiter.check(&critical()).is_shed());
    let probe = limiter.check(&Call::new("GET", "/").user("probe"));
    assert!(probe.is_allowed() && probe.priority().is_some_and(|it| it.name() == "normal"));

    let (shadow, _) = self::limiter("slots: 1, mode: shadow");
    for _ in 0..3 {
        assert!(shadow.check(&bulk()).is_allowed());
    }
    let off = limiter.policy().with_modes(|_| tollgate::Mode::Off);
    assert!(limiter.with_policy(off).check(&bulk()).is_allowed(), "the switch of an operator");
}

#[test]
fn a_reload_keeps_the_slots_that_are_held() {
    let (limiter, _) = limiter("slots: 4");
    for _ in 0..4 {
        assert!(limiter.check(&bulk()).is_allowed());
    }
    let larger = limiter.with_policy(policy("slots: 6, reserve: {critical: 1}"));
    assert!(larger.check(&bulk()).is_allowed());
    assert!(larger.check(&bulk()).is_shed());
    assert!(larger.check(&critical()).is_allowed());
}

#[test]
fn without_its_store_the_shedder_admits_unless_the_file_says_otherwise() {
    let admitted = |shed: &str| {
        let subject = subject(&text(shed));
        subject.store.turn(Mood::Refusing);
        let first = subject.admitted(&bulk(), 2);
        // Longer than any grace period.
        subject.clock.advance(Span::from_hours(30));
        first + subject.admitted(&bulk(), 2)
    };
    assert_eq!(admitted("slots: 2"), 4);
    assert_eq!(admitted("slots: 2, on_outage: deny"), 0);
    assert_eq!(admitted("rate: 2/day"), 4);
    assert_eq!(admitted("slots: 2, ttl: 2d, on_outage: local"), 1, "the share of this node");
}
