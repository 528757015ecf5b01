//! Limits that learn their number of slots: counting, refusing, learning, reloading, bounds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::time::Duration;

use pollster::block_on;
use tollgate::{
    Call, Decision, Fate, Limiter, ManualClock, MemoryStore, Permit, Policy, RequestOutcome, ShedCause, Span,
    Store, Timestamp,
};

use crate::permits::Remote;

const GLOBAL: &str = "limits: [{name: upstream, by: global, slots: adaptive}]";

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

fn limiter(policy: &str, clock: &ManualClock) -> Limiter<MemoryStore<ManualClock>> {
    let store = MemoryStore::with_clock(100, clock.clone());
    Limiter::with_store(Policy::parse(policy).unwrap(), store).with_latency_clock(clock.clone())
}

fn call() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

fn in_flight<S: Store>(limiter: &Limiter<S>) -> u64 {
    limiter.adaptive_summaries().iter().map(|it| it.in_flight).sum()
}

type Work = Permit<MemoryStore<ManualClock>>;

/// Sends as many requests as the limit admits to a service that answers `workers` of them in each 10 ms, for
/// a number of steps, and returns those that are left.
fn overload(
    limiter: &Limiter<MemoryStore<ManualClock>>,
    clock: &ManualClock,
    (workers, steps): (usize, usize),
    outcome: RequestOutcome,
) -> VecDeque<Work> {
    let mut running = VecDeque::new();
    for _ in 0..steps {
        while let Ok(permit) = limiter.acquire_now(&call()) {
            running.push_back(permit);
        }
        clock.advance(Span::from_millis(10));
        for permit in running.drain(..workers.min(running.len())) {
            permit.complete(outcome);
        }
    }
    running
}

#[test]
fn requests_beyond_the_slots_are_shed_with_the_measurements_and_charge_nothing() {
    let policy = "limits:
  - {name: units, by: user, bucket: 100/minute}
  - {name: upstream, by: global, slots: {adaptive: {min: 2, max: 2}}}";
    let limiter = limiter(policy, &clock());
    let held: Vec<_> = (0..2).map(|_| limiter.acquire_now(&call()).unwrap()).collect();
    let refused = limiter.check(&call());
    let Fate::Shed(shed) = refused.fate() else { panic!("{refused:?}") };
    let ShedCause::Adaptive(adaptive) = shed.cause else { panic!("{shed:?}") };
    assert_eq!((shed.name(), adaptive.in_flight, adaptive.slots), ("upstream", 2, 2));
    assert_eq!(refused.advised_wait(), Some(Duration::from_secs(1)));
    assert!(refused.is_shed() && refused.receipt().is_none() && refused.limits().len() == 0);
    drop(held);
    let admitted = limiter.check(&call());
    assert_eq!(admitted.limits().next().unwrap().remaining(), 97, "two permits and this one");
}

#[test]
fn all_classes_together_never_exceed_the_maximum() {
    let policy = "
priorities: [{name: critical, endpoint: /pay}, {name: normal}, {name: bulk, endpoint: /bulk}]
limits: [{name: upstream, by: global, slots: {adaptive: {min: 10, max: 10}}}]";
    for paths in [["/", "/pay", "/bulk"], ["/pay", "/", "/pay"], ["/bulk", "/", "/pay"]] {
        let limiter = limiter(policy, &clock());
        let all = paths.iter().flat_map(|path| std::iter::repeat_n(path, 60));
        let held: Vec<_> = all.filter_map(|path| limiter.acquire_now(&Call::new("GET", path)).ok()).collect();
        assert_eq!((held.len(), in_flight(&limiter)), (10, 10), "{paths:?}");
    }
}

#[test]
fn a_request_that_the_store_refuses_is_not_in_flight() {
    let policy = "limits:
  - {name: once, by: user, bucket: 1/hour}
  - {name: upstream, by: global, slots: adaptive}";
    let limiter = limiter(policy, &clock());
    let first: Decision<'_> = limiter.check(&call());
    assert_eq!(in_flight(&limiter), 1);
    let second = limiter.check(&call());
    assert_eq!((second.fate(), in_flight(&limiter)), (Fate::Refused, 1));
    drop(first);
    assert_eq!(in_flight(&limiter), 0, "a decision without a permit is in flight while it is kept");
}

#[test]
fn a_decision_that_is_abandoned_while_the_store_is_awaited_is_not_in_flight() {
    let policy =
        Policy::parse("limits: [{by: user, bucket: 9/hour}, {name: upstream, by: global, slots: adaptive}]")
            .unwrap();
    let limiter = Limiter::with_store(policy, Remote(MemoryStore::with_clock(100, clock())));
    let pending = limiter.try_decide(&call(), |_| ()).unwrap_err();
    assert_eq!(in_flight(&limiter), 1);
    drop(pending);
    let detached = limiter.try_decide(&call(), |_| ()).unwrap_err().detach();
    assert_eq!(in_flight(&limiter), 1);
    drop(detached);
    assert_eq!(in_flight(&limiter), 0);
    let detached = limiter.try_decide(&call(), |_| ()).unwrap_err().detach();
    block_on(detached.finish(None, |decision| {
        assert!(decision.is_allowed() && decision.in_flight().is_some());
    }));
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn the_number_of_slots_follows_the_workers_of_the_service() {
    let clock = clock();
    let limiter = limiter(GLOBAL, &clock);
    let busy = overload(&limiter, &clock, (40, 500), RequestOutcome::Answered);
    let view = &limiter.adaptive_views(10)[0];
    assert!((36..=56).contains(&view.slots), "{view:?}");
    assert!(view.key.is_none() && view.latency.is_some(), "{view:?}");
    assert!(view.baseline.unwrap().as_millis().abs_diff(10) <= 2, "{view:?}");
    drop(busy);
    let busy = overload(&limiter, &clock, (20, 1_000), RequestOutcome::Answered);
    let view = &limiter.adaptive_views(10)[0];
    assert!((17..=28).contains(&view.slots), "{view:?}");
    drop(busy);
    // A service that fails keeps the least number of slots.
    drop(overload(&limiter, &clock, (20, 1_000), RequestOutcome::Failed));
    assert_eq!(limiter.adaptive_views(10)[0].slots, 3);
}

#[test]
fn ignored_work_teaches_nothing() {
    let clock = clock();
    let limiter = limiter(GLOBAL, &clock);
    drop(overload(&limiter, &clock, (20, 1_000), RequestOutcome::Ignored));
    let view = &limiter.adaptive_views(10)[0];
    assert_eq!((view.slots, view.baseline, view.in_flight), (20, None, 0));
}

#[test]
fn a_reload_keeps_requests_in_flight_and_everything_learned() {
    let clock = clock();
    let before = limiter(GLOBAL, &clock);
    let mut running = overload(&before, &clock, (40, 500), RequestOutcome::Answered);
    running.extend(std::iter::from_fn(|| before.acquire_now(&call()).ok()));
    let learned = before.adaptive_views(1)[0].slots;
    let after = before.with_policy(Policy::parse(GLOBAL).unwrap());
    let view = &after.adaptive_views(1)[0];
    assert_eq!((view.slots, u64::from(view.in_flight)), (learned, in_flight(&before)));
    let bounded = "limits: [{name: upstream, by: global, slots: {adaptive: {max: 25}}}]";
    let bounded = after.with_policy(Policy::parse(bounded).unwrap());
    assert_eq!(bounded.adaptive_views(1)[0].slots, 25);
    assert!(bounded.acquire_now(&call()).is_err(), "more are in flight than the new maximum");
    drop(running);
    assert_eq!(in_flight(&bounded), 0);
    let by_user = "limits: [{name: upstream, by: user, slots: adaptive}]";
    assert!(bounded.with_policy(Policy::parse(by_user).unwrap()).adaptive_views(9).is_empty());
}

#[test]
fn a_frozen_limit_keeps_its_number_and_counts_and_learns_again_when_it_is_released() {
    let clock = clock();
    let mut limiter = limiter(GLOBAL, &clock);
    let frozen = |is_frozen: bool| Policy::parse(GLOBAL).unwrap().with_frozen(|_| is_frozen);
    for round in 0..3 {
        drop(overload(&limiter, &clock, (40, 500), RequestOutcome::Answered));
        let learned = limiter.adaptive_views(1)[0].slots;
        assert!((36..=56).contains(&learned), "round {round}: {learned}");
        limiter = limiter.with_policy(frozen(true));
        let view = &limiter.adaptive_views(1)[0];
        assert_eq!((view.slots, view.in_force), (learned, learned), "no dip of a measurement is kept");
        // Fewer workers, then failures only.
        for (workers, outcome) in [(5, RequestOutcome::Answered), (20, RequestOutcome::Failed)] {
            let busy = overload(&limiter, &clock, (workers, 500), outcome);
            let view = &limiter.adaptive_views(1)[0];
            assert_eq!((view.slots, view.in_force), (learned, learned), "round {round}: it is frozen");
            assert!(busy.len() <= learned as usize, "requests in flight are bounded as before");
        }
        assert_eq!(in_flight(&limiter), 0);
        limiter = limiter.with_policy(frozen(false));
        let busy = overload(&limiter, &clock, (20, 1_000), RequestOutcome::Answered);
        let view = &limiter.adaptive_views(1)[0];
        assert!((17..=28).contains(&view.slots), "round {round}: it learns again: {view:?}");
        drop(busy);
    }
}

#[test]
fn a_key_that_is_new_while_its_limit_is_frozen_has_the_initial_number() {
    let clock = clock();
    let policy = "limits: [{name: upstream, by: user, slots: adaptive}]";
    let limiter = limiter(policy, &clock);
    let frozen = limiter.with_policy(Policy::parse(policy).unwrap().with_frozen(|_| true));
    drop(overload(&frozen, &clock, (5, 500), RequestOutcome::Failed));
    assert_eq!(frozen.adaptive_views(9)[0].slots, 20);
    let released = frozen.with_policy(Policy::parse(policy).unwrap());
    drop(overload(&released, &clock, (5, 500), RequestOutcome::Failed));
    assert_eq!(released.adaptive_views(9)[0].slots, 3);
}

#[test]
fn a_limit_in_shadow_mode_counts_and_never_refuses() {
    let policy = "limits: [{name: upstream, by: global, slots: {adaptive: {max: 3}}, mode: shadow}]";
    let limiter = limiter(policy, &clock());
    let all: Vec<_> = (0..10).map(|_| limiter.acquire_now(&call()).unwrap()).collect();
    let summary = &limiter.adaptive_summaries()[0];
    let exceeded: u64 = summary.exceeded.iter().map(|it| it.requests).sum();
    assert_eq!((summary.in_flight, exceeded), (10, 7));
    drop(all);
}

#[test]
fn a_flood_of_keys_is_bounded_and_gains_no_slots() {
    let clock = clock();
    let policy = "limits: [{name: upstream, by: user, slots: {adaptive: {max: 2}}}]";
    let limiter = limiter(policy, &clock);
    let users: Vec<_> = (0..10_100).map(|it| format!("user-{it}")).collect();
    let held: Vec<_> =
        users.iter().filter_map(|user| limiter.acquire_now(&Call::new("GET", "/").user(user)).ok()).collect();
    assert_eq!(held.len(), 10_002, "beyond 10,000 keys, all others share two slots");
    assert_eq!(limiter.adaptive_summaries()[0].keys, 10_001);
    drop(held);
    clock.advance(Span::from_secs(601));
    assert!(limiter.acquire_now(&Call::new("GET", "/").user("new")).is_ok());
    assert!(limiter.adaptive_summaries()[0].keys <= 2, "idle keys make room");
}

#[test]
fn a_request_with_several_keys_does_not_pass_uncounted() {
    let policy = "limits: [{name: upstream, by: api_key, slots: {adaptive: {max: 1}}}]";
    let limiter = limiter(policy, &clock());
    let ambiguous =
        Call::new("GET", "/").ip([203, 0, 113, 9]).header("x-api-key", "one").header("x-api-key", "two");
    let held = limiter.acquire_now(&ambiguous).unwrap();
    assert!(limiter.acquire_now(&ambiguous).is_err());
    drop(held);
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn two_learned_limits_are_entered_together_or_not_at_all() {
    let policy = "limits:
  - {name: wide, by: global, slots: {adaptive: {max: 5}}}
  - {name: narrow, by: user, slots: {adaptive: {max: 1}}}";
    let limiter = limiter(policy, &clock());
    let held = limiter.acquire_now(&call()).unwrap();
    let refused = limiter.acquire_now(&call()).unwrap_err();
    let Fate::Shed(shed) = refused.fate() else { panic!("{refused:?}") };
    assert_eq!((shed.name(), in_flight(&limiter)), ("narrow", 2));
    drop(held);
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn threads_together_never_exceed_the_slots() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let policy = "limits: [{name: upstream, by: global, slots: {adaptive: {min: 4, max: 4}}}]";
    let limiter = Limiter::from_policy(policy).unwrap();
    let (running, most) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    if let Ok(permit) = limiter.acquire_now(&call()) {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 4);
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn a_request_whose_caller_is_awaited_says_nothing_about_the_service() {
    let clock = clock();
    let limiter = limiter(GLOBAL, &clock);
    let request = |millis: u64, is_upload: bool, is_answered: bool| {
        let decision = limiter.check(&Call::new("POST", "/"));
        let in_flight = decision.in_flight().cloned().unwrap();
        in_flight.start();
        if is_upload {
            in_flight.stop();
            clock.advance(Span::from_secs(30));
            if is_answered {
                in_flight.start();
            }
        }
        clock.advance(Span::from_millis(millis));
        if is_answered {
            in_flight.complete(RequestOutcome::Answered);
        }
    };
    let latency = || limiter.adaptive_summaries()[0].latency;
    for _ in 0..60 {
        request(10, true, true);
    }
    assert_eq!(latency(), Some(Duration::from_millis(10)), "the time of the body does not count");
    let slots = limiter.adaptive_summaries()[0].slots;
    for _ in 0..600 {
        request(10, true, false);
    }
    // The callers left while the service waited for them.
    assert_eq!((latency(), limiter.adaptive_summaries()[0].slots), (Some(Duration::from_millis(10)), slots));
}
