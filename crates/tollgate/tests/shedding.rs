//! The shedder of a node, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use tollgate::{
    Call, Fate, InFlightGuard, Level, Limiter, ManualClock, Measurement, MemoryStore, Mode, NodeShedSettings,
    NodeShedder, Policy, PriorityClass, ShedCause, Span, Timestamp,
};

type TestLimiter = Limiter<MemoryStore<ManualClock>>;

/// Creates a limiter on a clock that the test moves.
fn limiter(policy: &str) -> (TestLimiter, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let store = MemoryStore::with_clock(1_000, clock.clone());
    let limiter = Limiter::with_store(Policy::parse(policy).unwrap(), store);
    (limiter.with_node_shedder(NodeShedder::with_clock(clock.clone())), clock)
}

/// Lets time pass, with a sample every 100 milliseconds.
fn pass(limiter: &TestLimiter, clock: &ManualClock, seconds: u64) {
    for _ in 0..seconds * 10 {
        clock.advance(Span::from_millis(100));
        limiter.sample_load();
    }
}

fn requests(limiter: &TestLimiter, count: usize) -> Vec<InFlightGuard> {
    (0..count).map(|_| limiter.track_in_flight().expect("the policy has a shedder of the node")).collect()
}

fn is_shed(limiter: &TestLimiter) -> bool {
    matches!(limiter.check(&Call::new("GET", "/")).fate(), Fate::Shed(_))
}

/// Counts the shed requests of a hundred.
fn shed_of_100(limiter: &TestLimiter) -> usize {
    (0..100).filter(|_| is_shed(limiter)).count()
}

#[test]
fn requests_in_flight_above_the_target_shed_and_their_end_admits_again() {
    let (limiter, clock) = limiter("shed: {node: {inflight: 10}}");
    let running = requests(&limiter, 10);
    pass(&limiter, &clock, 60);
    assert_eq!((limiter.node_shedder().in_flight(), shed_of_100(&limiter)), (10, 0));
    let more = requests(&limiter, 2);
    pass(&limiter, &clock, 2);
    // 1.2 times the target: a class takes 2.5 seconds.
    assert!((25..=90).contains(&shed_of_100(&limiter)), "{:?}", limiter.node_shedder());
    pass(&limiter, &clock, 10);
    assert_eq!(shed_of_100(&limiter), 100);
    drop((running, more));
    // The level falls after two seconds without overload.
    pass(&limiter, &clock, 1);
    assert_eq!(shed_of_100(&limiter), 100);
    pass(&limiter, &clock, 7);
    assert_eq!((limiter.node_shedder().level(), shed_of_100(&limiter)), (Level::ZERO, 0));
}

#[test]
fn a_shed_decision_has_the_level_and_the_measured_signals_and_charges_nothing() {
    let policy = "limits: [{name: a, by: global, bucket: 5/hour, count_denied: true}]
shed: {node: {inflight: 10, cpu: 80%, delay: 20ms}}";
    let (limiter, clock) = limiter(policy);
    let _running = requests(&limiter, 30);
    limiter.node_shedder().report(Measurement::Cpu(400));
    pass(&limiter, &clock, 3);
    let decision = limiter.check(&Call::new("GET", "/"));
    let Fate::Shed(shed) = decision.fate() else { panic!("{decision:?}") };
    let ShedCause::Node(node) = shed.cause else { panic!("{shed:?}") };
    assert_eq!((shed.name(), shed.priority, node.share), ("shed.node", None, 1_000));
    assert_eq!(node.level, Level::from_thousandths(1_000));
    let signals: Vec<_> = node.signals.iter().map(|(name, it)| (name, it.value, it.target)).collect();
    assert_eq!(signals, [("inflight", 30, 10), ("cpu", 400, 800)]);
    assert_eq!(node.signals.largest().map(|(name, _)| name), Some("inflight"));
    assert!(!decision.is_allowed() && decision.is_shed() && decision.advised_wait().is_some());
    assert_eq!((decision.limits().len(), decision.receipt().is_none()), (0, true));
    assert_eq!(limiter.node_shedder().shed_requests(0), (1, 0));
    let limit = limiter.policy().limit("a").unwrap();
    let key = limiter.policy().key(limit, &[]).unwrap();
    // A decision by the name of a limit is about a key: it is not shed.
    let named = pollster::block_on(limiter.decide_named(limit, key, None, None));
    assert_eq!(named.limiting().map(|it| it.remaining()), Some(4));
}

#[test]
fn a_list_is_decided_before_the_shedder() {
    let policy = "allow: [{ip: 10.0.0.0/8}]\nshed: {node: {inflight: 1}}";
    let (limiter, clock) = limiter(policy);
    let _running = requests(&limiter, 5);
    pass(&limiter, &clock, 5);
    let from = |ip: [u8; 4]| limiter.check(&Call::new("GET", "/").ip(ip)).is_allowed();
    assert!(from([10, 1, 2, 3]) && !from([203, 0, 113, 9]));
}

#[test]
fn a_signal_that_is_not_measured_is_ignored() {
    let (limiter, clock) = limiter("shed: {node: {cpu: 50%, delay: 10ms}}");
    pass(&limiter, &clock, 10);
    assert_eq!((shed_of_100(&limiter), limiter.node_shedder().signals().iter().count()), (0, 0));
    limiter.node_shedder().report(Measurement::Cpu(1_000));
    pass(&limiter, &clock, 4);
    assert_eq!(shed_of_100(&limiter), 100);
    // The CPU is not reported any more: after five seconds its last value is dropped.
    pass(&limiter, &clock, 20);
    assert_eq!(shed_of_100(&limiter), 0);
}

#[test]
fn the_longest_delay_since_the_last_sample_counts() {
    let (limiter, clock) = limiter("shed: {node: {delay: 10ms}}");
    let shedder = limiter.node_shedder().clone();
    for _ in 0..50 {
        for millis in [1, 30, 2] {
            shedder.report(Measurement::Delay(Duration::from_millis(millis)));
        }
        clock.advance(Span::from_millis(100));
        limiter.sample_load();
    }
    assert_eq!(shedder.signals().delay.map(|it| (it.value, it.target)), Some((30_000, 10_000)));
    assert_eq!(shed_of_100(&limiter), 100);
    // Without waiting requests, the delay is zero.
    pass(&limiter, &clock, 15);
    assert_eq!(shed_of_100(&limiter), 0);
}

#[test]
fn shadow_mode_counts_and_refuses_nothing() {
    let (limiter, clock) = limiter("shed: {node: {inflight: 1, mode: shadow}}");
    let _running = requests(&limiter, 5);
    pass(&limiter, &clock, 5);
    assert_eq!((shed_of_100(&limiter), limiter.node_shedder().shed_requests(0)), (0, (0, 100)));
}

#[test]
fn a_frozen_level_stays_and_a_shedder_that_is_off_starts_again_from_zero() {
    let (limiter, clock) = limiter("shed: {node: {inflight: 1}}");
    let running = requests(&limiter, 5);
    pass(&limiter, &clock, 5);
    let file = limiter.policy().node_shed().unwrap().clone();
    let with =
        |settings: NodeShedSettings| limiter.with_policy(limiter.policy().clone().with_node_shed(settings));
    let frozen = with(NodeShedSettings { is_frozen: true, ..file.clone() });
    drop(running);
    pass(&frozen, &clock, 60);
    assert_eq!(shed_of_100(&frozen), 100);
    let off = with(NodeShedSettings { mode: Mode::Off, ..file.clone() });
    assert_eq!((shed_of_100(&off), off.node_shedder().level()), (0, Level::ZERO));
    let on = with(file);
    let _running = requests(&on, 5);
    pass(&on, &clock, 1);
    assert!(on.node_shedder().level() > Level::ZERO);
    let without = on.with_policy(Policy::parse("limits: []").unwrap());
    assert_eq!((without.node_shedder().level(), without.track_in_flight().is_none()), (Level::ZERO, true));
}

#[test]
fn decisions_take_samples_without_a_timer() {
    let (limiter, clock) = limiter("shed: {node: {inflight: 1}}");
    let _running = requests(&limiter, 5);
    let shed = (0..100).filter(|_| {
        clock.advance(Span::from_millis(50));
        is_shed(&limiter)
    });
    assert!(shed.count() > 70);
}

const CLASSES: &str = "
priorities:
  - {name: critical, endpoint: /payments/**}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
allow: [{endpoint: /healthz}]
";

/// Counts the shed requests of a hundred of each class: critical, normal and bulk.
fn shed_by_class(limiter: &TestLimiter) -> [usize; 3] {
    let calls = [
        Call::new("POST", "/payments/7"),
        Call::new("GET", "/"),
        Call::new("GET", "/").header("x-priority", "bulk"),
    ];
    calls.map(|call| (0..100).filter(|_| limiter.check(&call).is_shed()).count())
}

#[test]
fn the_least_important_class_is_shed_first_and_the_most_important_one_last() {
    let (limiter, clock) = limiter(&format!("{CLASSES}shed: {{node: {{inflight: 8}}}}"));
    let running = requests(&limiter, 10);
    let mut seen = vec![shed_by_class(&limiter)];
    for _ in 0..200 {
        clock.advance(Span::from_millis(100));
        limiter.sample_load();
        let now = shed_by_class(&limiter);
        // A class is shed only when all less important ones are shed entirely.
        assert!((now[1] == 0 || now[2] == 100) && (now[0] == 0 || now[1] == 100), "{now:?}");
        seen.push(now);
    }
    assert_eq!((seen.first(), seen.last()), (Some(&[0; 3]), Some(&[100; 3])));
    assert!(seen.contains(&[0, 0, 100]) && seen.contains(&[0, 100, 100]), "{seen:?}");
    let decision = limiter.check(&Call::new("GET", "/"));
    assert_eq!(decision.priority().map(PriorityClass::name), Some("normal"));
    let Fate::Shed(shed) = decision.fate() else { panic!("{decision:?}") };
    assert_eq!(shed.priority.map(PriorityClass::name), Some("normal"));
    assert!(limiter.check(&Call::new("GET", "/healthz")).is_allowed());
    drop(running);
    pass(&limiter, &clock, 30);
    assert_eq!(shed_by_class(&limiter), [0; 3]);
}

#[test]
fn a_kept_class_is_never_shed() {
    for (keep, expected) in [("critical", [0, 100, 100]), ("normal", [0, 0, 100])] {
        let (limiter, clock) = limiter(&format!("{CLASSES}shed: {{node: {{inflight: 1, keep: {keep}}}}}"));
        let _running = requests(&limiter, 50);
        pass(&limiter, &clock, 60);
        assert_eq!(shed_by_class(&limiter), expected, "{keep}");
    }
}
