//! `on_outage`: each rule alone and mixed.

use std::time::Duration;

use tollgate::{BreakerState, Fate, OutageSettings, Span, Verdict};

use super::support::{Mood, ann, parse, standing, subject, with_settings};

const ALGORITHMS: [(&str, &str); 6] = [
    ("bucket: 100/hour", "token-bucket"),
    ("rate: '100/hour, burst 100', algorithm: gcra", "gcra"),
    ("rate: 100/hour, algorithm: fixed-window", "fixed-window"),
    ("rate: 100/hour, algorithm: sliding-window", "sliding-window"),
    ("rate: 100/hour, algorithm: sliding-log", "sliding-log"),
    ("slots: 100", "concurrency"),
];

#[test]
fn a_local_limit_grants_exactly_its_share_under_every_algorithm() {
    for (written, algorithm) in ALGORITHMS {
        for (nodes, granted) in [(1, 20), (3, 6), (20, 1), (1_000, 1)] {
            let subject = subject(&format!("limits: [{{name: api, by: user, {written}}}]"));
            subject.store.turn(Mood::Refusing);
            subject.store.set_nodes(nodes);
            let first = subject.decide(&ann());
            assert!(first.is_degraded() && first.is_allowed(), "{algorithm}");
            assert_eq!(standing(&first), [("api", granted, granted - 1)], "{algorithm} on {nodes} nodes");
            let granted = usize::try_from(granted).unwrap();
            assert_eq!(subject.admitted(&ann(), 50), granted - 1, "{algorithm} on {nodes} nodes");
            assert_eq!(subject.decide(&ann()).fate(), Fate::Refused);
        }
    }
}

#[test]
fn the_share_of_a_rate_is_exact() {
    let subject =
        subject("limits: [{by: user, bucket: 1/minute}, {by: global, bucket: '7/minute, burst 700'}]");
    subject.store.turn(Mood::Broken);
    assert!(subject.admits(&ann()));
    let refused = subject.decide(&ann());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(300)), "a fifth of one a minute");
    let shared = refused.limits().nth(1).unwrap();
    assert_eq!(shared.outcome().limit, 140);
    assert_eq!(shared.outcome().reset_after, Span::from_micros((300_000_000_u64).div_ceil(7)));
}

#[test]
fn more_nodes_get_smaller_shares_and_usage_still_counts() {
    let subject = subject("limits: [{by: user, bucket: 100/hour}]");
    subject.store.turn(Mood::Refusing);
    assert_eq!(subject.admitted(&ann(), 5), 5);
    subject.store.set_nodes(2);
    assert_eq!(subject.admitted(&ann(), 50), 5, "ten on each node, and five are spent");
    subject.store.set_nodes(1);
    assert_eq!(subject.admitted(&ann(), 50), 10, "twenty, and ten are spent");
}

#[test]
fn a_reload_in_an_outage_keeps_usage() {
    let mut subject = subject("limits: [{name: api, by: user, bucket: 100/hour}]");
    subject.store.turn(Mood::Refusing);
    assert_eq!(subject.admitted(&ann(), 15), 15);
    subject.limiter = subject.limiter.with_policy(parse("limits: [{name: api, by: user, bucket: 200/hour}]"));
    assert_eq!(subject.admitted(&ann(), 100), 25, "a fifth of 200, and 15 are spent");
    assert_eq!(subject.limiter.health().degraded.local, 115, "one outage, before and after");
    subject.limiter = subject
        .limiter
        .with_policy(parse("limits: [{name: api, by: user, bucket: 200/hour, on_outage: deny}]"));
    assert_eq!(subject.decide(&ann()).fate(), Fate::Uncountable);
}

#[test]
fn one_limit_that_denies_refuses_and_charges_nothing() {
    let subject = subject(
        "limits:
           - {name: counted, by: user, bucket: 100/hour}
           - {name: open, by: user, bucket: 100/hour, on_outage: allow}
           - {name: strict, by: user, windows: [10/minute, 100/hour], on_outage: deny}
           - {name: stricter, by: user, bucket: 100/hour, on_outage: deny}",
    );
    subject.store.turn(Mood::Refusing);
    for _ in 0..10 {
        let decision = subject.decide(&ann());
        assert_eq!((decision.fate(), decision.is_allowed()), (Fate::Uncountable, false));
        assert!(decision.is_degraded());
        assert_eq!(decision.limits().len(), 0);
        assert!(decision.limiting().is_none() && decision.receipt().is_none());
        let names: Vec<_> = decision.uncountable().map(tollgate::Limit::name).collect();
        assert_eq!(names, ["strict", "stricter"]);
    }
    assert_eq!((subject.limiter.health().degraded.deny, subject.limiter.health().ledger_keys), (10, 0));
}

#[test]
fn a_shadow_limit_with_deny_does_not_refuse() {
    let subject = subject(
        "limits:
           - {name: watched, by: user, bucket: 5/hour, on_outage: deny, mode: shadow}
           - {name: trial, by: user, bucket: 5/hour, mode: shadow}
           - {name: live, by: user, bucket: 50/hour}",
    );
    subject.store.turn(Mood::Refusing);
    for (trial, live) in [(0, 9), (0, 8), (0, 7)] {
        let decision = subject.decide(&ann());
        assert!(decision.is_allowed());
        assert_eq!(standing(&decision), [("trial", 1, trial), ("live", 10, live)]);
    }
}

#[test]
fn local_batches_are_charged_as_a_whole_or_not_at_all() {
    let subject = subject(
        "limits:
           - {name: wide, by: user, bucket: 100/hour}
           - {name: narrow, by: global, bucket: 10/hour}
           - {name: attempts, by: user, bucket: 50/hour, count_denied: true}
           - {name: open, by: user, bucket: 50/hour, on_outage: allow}",
    );
    subject.store.turn(Mood::Refusing);
    for (wide, narrow, attempts) in [(19, 1, 9), (18, 0, 8), (18, 0, 7), (18, 0, 6)] {
        let decision = subject.decide(&ann());
        assert_eq!(
            standing(&decision),
            [("wide", 20, wide), ("narrow", 2, narrow), ("attempts", 10, attempts)]
        );
    }
    let refused = subject.decide(&ann());
    assert_eq!(refused.limiting().unwrap().name(), "narrow");
    assert!(refused.receipt().is_none());
}

#[test]
fn allow_passes_uncounted_during_grace_and_is_local_after_it() {
    let subject = subject("limits: [{name: open, by: user, bucket: 10/hour, on_outage: allow}]");
    subject.store.turn(Mood::Refusing);
    assert_eq!(subject.admitted(&ann(), 500), 500);
    let decision = subject.decide(&ann());
    assert!(decision.is_degraded());
    assert_eq!((decision.limits().len(), decision.at()), (0, None));
    subject.clock.advance(Span::from_secs(59));
    assert!(subject.admits(&ann()));
    subject.clock.advance(Span::from_secs(1));
    assert_eq!(subject.admitted(&ann(), 500), 2, "grace is over");
    let counted = subject.limiter.health().degraded;
    assert_eq!((counted.allow, counted.local), (502, 500));
}

#[test]
fn a_flapping_store_gets_no_new_grace() {
    let subject = subject("limits: [{name: open, by: user, bucket: 5/hour, on_outage: allow}]");
    let mut passed = 0;
    for _ in 0..100 {
        subject.store.turn(Mood::Refusing);
        for _ in 0..100 {
            passed += u32::from(subject.decide(&ann()).limits().len() == 0);
            subject.clock.advance(Span::from_millis(100));
        }
        subject.store.turn(Mood::Well);
        subject.clock.advance(Span::from_secs(1));
        drop(subject.decide(&ann().cost(0)));
        assert_eq!(subject.limiter.health().breaker, BreakerState::Closed);
        subject.clock.advance(Span::from_secs(1));
    }
    // A minute at the start, and a tenth of each second of health: ten requests a second.
    assert!((600..=600 + 2 * 99).contains(&passed), "{passed} of 10,000 passed uncounted");
}

#[test]
fn a_foreign_key_is_counted_locally_and_is_no_outage() {
    let subject = subject(
        "limits: [{name: a, by: user, bucket: 10/hour, on_outage: allow}, {name: b, by: user, bucket: 10/hour}]",
    );
    subject.store.turn(Mood::Foreign);
    for (left, passes) in [(1, true), (0, true), (0, false)] {
        let decision = subject.decide(&ann());
        assert_eq!((decision.is_allowed(), decision.is_degraded()), (passes, true));
        assert_eq!(standing(&decision), [("a", 2, left), ("b", 2, left)], "without an outage no grace");
    }
    subject.admitted(&ann(), 20);
    let health = subject.limiter.health();
    assert_eq!((health.breaker, health.opened, health.failures), (BreakerState::Closed, 0, 23));
    assert_eq!(subject.store.decisions(), 23, "every decision called the store");
    assert!(health.error.unwrap().contains("tollgate:key"));
}

#[test]
fn a_cost_above_the_share_but_below_the_limit_may_be_retried() {
    let subject = subject("limits: [{by: user, bucket: 10/hour}]");
    subject.store.turn(Mood::Refusing);
    let refused = subject.decide(&ann().cost(5));
    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Some(Duration::from_secs(1))));
    assert_eq!(refused.limiting().unwrap().outcome().remaining, 2);
    let never = subject.decide(&ann().cost(11));
    assert_eq!((never.limiting().unwrap().outcome().verdict, never.retry_after()), (Verdict::Never, None));
}

#[test]
fn decisions_without_a_store_call_are_never_degraded() {
    let subject = subject(
        "allow: [{user: root}]
deny: [{user: mallory}]
limits:
  - {name: a, by: user, bucket: 5/hour, on_outage: deny, overrides: {bad: blocked}}
  - {name: attempts, by: global, bucket: 100/hour, count_denied: true}
  - {name: here, endpoint: /here, by: global, bucket: 9/hour}",
    );
    subject.store.turn(Mood::Refusing);
    for _ in 0..20 {
        for (user, allowed) in [("root", true), ("mallory", false), ("bad", false)] {
            let decision = subject.decide(&ann().user(user));
            assert_eq!((decision.is_allowed(), decision.is_degraded()), (allowed, false), "{user}");
        }
    }
    assert_eq!(subject.limiter.health().degraded.total(), 0);
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_secs(2));
    subject.reconcile();
    let left = subject.decide(&ann().cost(0)).limits().nth(1).unwrap().outcome().remaining;
    assert_eq!(left, 80, "blocked requests are counted; deny-listed ones are not");
}

#[test]
fn protections_can_be_turned_off() {
    let settings = OutageSettings { failures: u32::MAX, share: 100, ..OutageSettings::default() };
    let subject = with_settings("limits: [{by: user, bucket: 10/hour}]", &settings);
    subject.store.turn(Mood::TimingOut);
    assert_eq!(subject.admitted(&ann(), 1_000), 10);
    assert_eq!(subject.store.decisions(), 1_000);
    assert_eq!(subject.limiter.health().breaker, BreakerState::Closed);
}
