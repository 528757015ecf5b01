//! The breaker as seen by requests.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{BreakerState, Span};
use tollgate_testkit::poll_once;

use super::support::{Mood, START, Subject, ann, subject};

const POLICY: &str = "limits: [{by: user, bucket: 1000000/hour}]";

/// A subject whose breaker has just opened.
fn opened() -> Subject {
    let subject = subject(POLICY);
    subject.store.turn(Mood::Broken);
    subject.admitted(&ann(), 5);
    assert_eq!(subject.limiter.health().breaker, BreakerState::Open);
    subject
}

#[test]
fn after_consecutive_failures_no_request_waits_for_the_store() {
    let subject = opened();
    assert_eq!(subject.store.decisions(), 5);
    assert_eq!(subject.admitted(&ann(), 1_000), 1_000);
    assert_eq!(subject.store.decisions(), 5, "the breaker is open");
    let health = subject.limiter.health();
    assert_eq!((health.failures, health.opened, health.degraded.local), (5, 1, 1_005));
    assert_eq!((health.since, health.is_degraded(), health.answers), (Some(START), true, false));
    assert_eq!(health.error.as_deref(), Some("the store failed: connection reset"));
}

#[test]
fn while_the_breaker_is_open_try_decide_answers() {
    let subject = opened();
    for _ in 0..10 {
        let immediate = subject.limiter.try_decide(&ann(), |it| (it.is_allowed(), it.is_degraded()));
        assert_eq!(immediate.ok(), Some((true, true)));
    }
    subject.clock.advance(Span::from_millis(100));
    let immediate = subject.limiter.try_decide(&ann(), |_| ());
    assert!(immediate.is_err(), "a probe is due, which must wait");
    assert_eq!(subject.store.decisions(), 5);
}

#[test]
fn failures_between_answers_do_not_open_the_breaker() {
    let subject = subject(POLICY);
    for _ in 0..20 {
        subject.store.turn(Mood::TimingOut);
        assert_eq!(subject.admitted(&ann(), 4), 4);
        subject.store.turn(Mood::Well);
        assert!(!subject.decide(&ann()).is_degraded());
    }
    assert_eq!((subject.limiter.health().opened, subject.store.decisions()), (0, 100));
}

#[test]
fn recovery_is_detected_within_two_seconds() {
    let subject = opened();
    // Long enough for the longest backoff.
    for _ in 0..1_000 {
        subject.clock.advance(Span::from_millis(10));
        assert!(subject.decide(&ann()).is_degraded());
    }
    let probes = subject.store.decisions() - 5;
    assert!((9..=30).contains(&probes), "{probes} probes in ten seconds");
    subject.store.turn(Mood::Well);
    let waited = (0..100).take_while(|_| {
        subject.clock.advance(Span::from_millis(10));
        subject.decide(&ann()).is_degraded()
    });
    assert!(waited.count() < 100, "it takes a second at most");
    let health = subject.limiter.health();
    assert_eq!((health.breaker, health.since, health.opened), (BreakerState::Closed, None, 1));
}

#[test]
fn nodes_that_failed_together_do_not_probe_together() {
    let first_probe = |subject: &Subject| {
        let waited = (0..).take_while(|_| {
            subject.clock.advance(Span::from_millis(1));
            subject.admits(&ann());
            subject.store.decisions() == 5
        });
        waited.count()
    };
    let mut waits: Vec<_> = (0..30).map(|_| first_probe(&opened())).collect();
    assert!(waits.iter().all(|wait| (49..100).contains(wait)), "{waits:?}");
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 5, "{waits:?}");
}

#[test]
fn an_abandoned_request_probe_does_not_block_the_breaker() {
    let subject = opened();
    subject.store.turn(Mood::Stuck);
    subject.clock.advance(Span::from_millis(100));
    for _ in 0..3 {
        let (ask, probing) = (ann(), subject.store.decisions());
        let mut probe = Box::pin(subject.limiter.decide(&ask));
        assert!(poll_once(probe.as_mut()).is_pending());
        assert_eq!(subject.store.decisions(), probing + 1);
        assert_eq!(subject.limiter.health().breaker, BreakerState::HalfOpen);
        assert!(subject.decide(&ann()).is_degraded(), "other requests do not wait");
        drop(probe);
        assert_eq!(subject.limiter.health().breaker, BreakerState::Open);
    }
    subject.store.turn(Mood::Well);
    assert!(!subject.decide(&ann()).is_degraded(), "the next request probes");
}

#[test]
fn a_node_without_traffic_detects_outage_and_recovery() {
    let subject = subject(POLICY);
    let probe = || pollster::block_on(subject.limiter.probe());
    let health = probe();
    assert_eq!((health.answers, health.is_degraded(), health.since), (true, false, None));
    subject.store.turn(Mood::Refusing);
    let first = probe();
    assert_eq!((first.answers, first.is_degraded(), first.since), (false, true, Some(START)));
    assert_eq!(
        (first.breaker, first.error.as_deref()),
        (BreakerState::Closed, Some("the store refused the batch: out of memory"))
    );
    subject.clock.advance(Span::from_millis(10));
    for _ in 0..4 {
        probe();
    }
    assert_eq!((probe().breaker, subject.store.probes()), (BreakerState::Open, 6), "the breaker is open");
    assert_eq!(probe().since, Some(START), "since the first failure");
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_millis(100));
    let back = probe();
    assert_eq!((back.breaker, back.answers, back.since), (BreakerState::Closed, true, None));
    assert_eq!((subject.store.decisions(), subject.store.adjustments()), (0, 0));
}

#[test]
fn an_abandoned_background_probe_does_not_block_the_breaker() {
    let subject = opened();
    subject.store.turn(Mood::Stuck);
    subject.clock.advance(Span::from_millis(100));
    {
        let probe = pin!(subject.limiter.probe());
        assert!(poll_once(probe).is_pending());
        assert_eq!(subject.limiter.health().breaker, BreakerState::HalfOpen);
    }
    subject.store.turn(Mood::Well);
    assert!(!subject.decide(&ann()).is_degraded());
}

#[test]
fn an_abandoned_request_is_not_a_failure() {
    let subject = subject(POLICY);
    subject.store.turn(Mood::Stuck);
    for _ in 0..10 {
        let ask = ann();
        let given_up = pin!(subject.limiter.decide(&ask));
        assert!(poll_once(given_up).is_pending());
    }
    let health = subject.limiter.health();
    assert_eq!((health.breaker, health.failures), (BreakerState::Closed, 0));
}

#[test]
fn only_one_of_many_threads_probes() {
    let subject = &opened();
    for round in 0..20 {
        subject.clock.advance(Span::from_secs(2));
        let before = subject.store.decisions();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| subject.admitted(&ann(), 50));
            }
        });
        assert_eq!(subject.store.decisions() - before, 1, "in round {round}");
    }
    subject.store.turn(Mood::Well);
    subject.clock.advance(Span::from_secs(2));
    let degraded = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    degraded.fetch_add(subject.decide(&ann()).is_degraded().into(), Ordering::Relaxed);
                }
            });
        }
    });
    // In any order of threads, the request that probed is not degraded, nor is any after it.
    assert!(degraded.into_inner() <= 7 * 200);
    assert_eq!(subject.limiter.health().breaker, BreakerState::Closed);
}

#[test]
fn threads_together_never_exceed_the_share() {
    let subject = &subject("limits: [{by: user, bucket: 500/hour}]");
    subject.store.turn(Mood::Broken);
    let admitted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| subject.admitted(&ann(), 100))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(admitted, 100);
}
