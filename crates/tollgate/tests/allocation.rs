//! An admitted request allocates nothing between matching and decision.

use std::future::pending;

use tollgate::{
    Bucket, Call, Decision, Gate, Limiter, ManualClock, NodeShedder, PriorityClass, Rate, Sleeper, Span,
    Timestamp,
};
use tollgate_testkit::{CountingAllocator, allocations, poll_once, retained_bytes};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const POLICY: &str = "
limits:
  - {name: login-by-ip, endpoint: /api/v1/login, by: ip, bucket: 1000/minute}
  - {name: login-by-user, endpoint: /api/v1/login, by: user, bucket: 1000/minute}
  - {name: api, endpoint: '/api/**', by: [tenant, user], bucket: 7000/hour}
  - {name: day, endpoint: '/api/**', by: api_key, rate: 5000/day, algorithm: fixed-window}
";

#[test]
fn an_admitted_request_allocates_nothing() {
    let limiter = Limiter::from_policy(POLICY).unwrap();
    let call =
        Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]).user("ann").tenant("acme").api_key("k-1");
    // Known keys and new keys.
    for round in 0..3 {
        let counted = allocations(|| {
            let decision = limiter.check(&call);
            assert!(decision.is_allowed());
            assert_eq!(decision.limits().count(), 4);
            assert!(decision.limiting().is_some());
        });
        assert_eq!(counted, 0, "in round {round}");
    }
}

#[test]
fn a_refused_request_allocates_nothing_either() {
    let limiter =
        Limiter::from_policy("limits: [{by: ip, bucket: 1/hour}, {by: global, bucket: 9/hour}]").unwrap();
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    assert!(limiter.check(&call).is_allowed());
    let counted = allocations(|| assert!(limiter.check(&call).retry_after().is_some()));
    assert_eq!(counted, 0);
}

#[test]
fn a_shed_request_allocates_nothing_either() {
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let limiter = Limiter::from_policy(&format!("{POLICY}shed: {{node: {{inflight: 1}}}}")).unwrap();
    let limiter = limiter.with_node_shedder(NodeShedder::with_clock(clock.clone()));
    let _running = [(); 5].map(|()| limiter.track_in_flight());
    for _ in 0..50 {
        clock.advance(Span::from_millis(100));
        limiter.sample_load();
    }
    let call = Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]).user("ann");
    let counted = allocations(|| {
        clock.advance(Span::from_millis(100));
        assert!(limiter.check(&call).is_shed());
    });
    assert_eq!(counted, 0);
}

const CLASSES: &str = "
priorities: [{name: critical, endpoint: /pay}, {name: normal, plan: gold}, {name: bulk, headers: {x-priority: bulk}}]
";

#[test]
fn an_admitted_request_allocates_nothing_with_classes_and_shedders() {
    let shed = "shed: {node: {inflight: 100, cpu: 90%, delay: 20ms}, fleet: {rate: 1000/second, reserve: {critical: 20%}}}";
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    // Four outcomes fit a decision without the heap: these and that of the fleet.
    let limits = "limits: [{by: ip, bucket: 9000/minute}, {by: user, bucket: 9000/minute}]\n";
    let limiter = Limiter::from_policy(&format!("{limits}{CLASSES}{shed}")).unwrap();
    let limiter = limiter.with_node_shedder(NodeShedder::with_clock(clock.clone()));
    let call =
        Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]).user("ann").header("x-priority", "bulk");
    for round in 0..3 {
        let counted = allocations(|| {
            // A sample of the load is due.
            clock.advance(Span::from_millis(100));
            let in_flight = limiter.track_in_flight();
            let decision = limiter.check(&call);
            assert!(decision.is_allowed() && in_flight.is_some());
            assert_eq!(decision.priority().map(PriorityClass::name), Some("bulk"));
        });
        assert_eq!(counted, 0, "in round {round}");
    }
    // The fleet has no room for this class.
    let shed = (0..2_000).map(|_| limiter.check(&call)).find(Decision::is_shed);
    assert!(shed.is_some());
    assert_eq!(allocations(|| assert!(limiter.check(&call).is_shed())), 0);
}

#[test]
fn a_learned_limit_allocates_only_the_guard_of_an_admitted_request() {
    let limits = "limits: [{by: global, slots: {adaptive: {max: 2}}}]";
    let limiter = Limiter::from_policy(&format!("{CLASSES}{limits}")).unwrap();
    let call = Call::new("GET", "/").header("x-priority", "bulk");
    drop(limiter.check(&call));
    let mut held = Vec::with_capacity(2);
    for _ in 0..2 {
        let counted = allocations(|| held.push(limiter.check(&call)));
        assert_eq!(counted, 1, "the guard that the response shares");
    }
    assert_eq!(allocations(|| assert!(limiter.check(&call).is_shed())), 0);
}

#[test]
fn a_gate_allocates_nothing() {
    let gate = Gate::new("gate", Bucket::new(Rate::per_hour(2)).unwrap());
    let counted = allocations(|| {
        assert!(gate.check("ann").is_ok());
        assert!(gate.check("ann").is_ok());
        assert!(gate.check("ann").is_err_and(|refusal| refusal.retry_after.is_some()));
    });
    assert_eq!(counted, 0);
}

#[test]
fn a_request_that_waits_for_a_slot_takes_at_most_six_kilobytes() {
    const WAITING: usize = 10_000;
    let policy = "limits: [{by: global, slots: 1, queue: {length: 10000, wait: 1h}, fair_by: user}]";
    let limiter = Limiter::from_policy(policy).unwrap().with_sleeper(Sleeper::new(|_| pending()));
    let (users, call) = (["ann", "bob", "cy"], |user| Call::new("GET", "/").user(user));
    let running = limiter.acquire_now(&call("ann")).unwrap();
    let calls: Vec<_> = (0..WAITING).map(|number| call(users[number % users.len()])).collect();
    let (waiting, bytes) = retained_bytes(|| {
        let waits = calls.iter().map(|call| {
            let mut waits = Box::pin(limiter.until_ready(call));
            assert!(poll_once(waits.as_mut()).is_pending());
            waits
        });
        waits.collect::<Vec<_>>()
    });
    assert_eq!(limiter.waiting(), WAITING);
    assert!(bytes / WAITING <= 6_144, "{} bytes", bytes / WAITING);
    drop(waiting);
    assert_eq!(limiter.waiting(), 0);
    drop(running);
    assert!(limiter.check(&call("ann")).is_allowed());
}
