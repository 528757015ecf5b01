//! The contract of leases, one sentence a test.

use pollster::block_on;
use tollgate_core::{Adjustment, Amount, Bucket, Rate, Rule, Span, Verdict};
use tollgate_lease::Leased;
use tollgate_store::{Answer, Check, ManualClock, Outcomes, Store};

use crate::remote::{Remote, START};

const TTL: Span = Span::from_millis(100);

struct Node {
    clock: ManualClock,
    remote: Remote,
    store: Leased<Remote, ManualClock>,
    rule: Rule,
}

impl Node {
    /// A node on a bucket of 1,000 a second with a burst of 4,000.
    fn new() -> Self {
        let clock = ManualClock::at(START);
        let remote = Remote::new(&clock, 1);
        let bucket = Bucket::new(Rate::per_second(1_000)).unwrap().with_burst(4_000).unwrap();
        let rule = Rule::new("hot", bucket).leased_for(Some(TTL));
        Self { store: remote.node(&clock, 1), clock, remote, rule }
    }

    /// A node whose key is hot: it holds a lease.
    fn hot() -> Self {
        let node = Self::new();
        (0..40).for_each(|_| assert!(node.ask(1).admitted));
        assert!(node.held() >= 8, "{:?}", node.store.counters());
        node
    }

    fn ask(&self, cost: u64) -> Answer {
        block_on(self.store.decide(&[Check::new(&self.rule, b"key", cost)])).expect("the store answers")
    }

    fn held(&self) -> u64 {
        self.store.counters().held
    }

    fn left(&self) -> u64 {
        self.remote.inside().adjust_now(&self.rule, b"key", Adjustment::Grant { units: 0 }).remaining
    }
}

#[test]
fn a_cold_key_is_decided_by_the_store() {
    let node = Node::new();
    for calls in 1..=6 {
        assert!(node.ask(1).admitted);
        assert_eq!((node.remote.calls(), node.held()), (calls, 0));
        node.clock.advance(TTL);
    }
}

#[test]
fn a_hot_key_is_decided_here() {
    let node = Node::hot();
    let calls = node.remote.calls();
    let mut outcomes = Outcomes::new();
    let check = [Check::new(&node.rule, b"key", 1)];
    assert!(node.store.try_decide(&check, &mut outcomes).is_some_and(|(admitted, _)| admitted));
    assert_eq!(outcomes[0].verdict, Verdict::admitted_from_lease(1), "and the verdict says so");
    assert_eq!(node.store.holding(&node.rule, b"key").map(|it| it.units), Some(node.held()));
    assert_eq!(node.remote.calls(), calls);
    assert_eq!(outcomes[0].remaining, node.left() + node.held());
}

#[test]
fn a_lease_ends_by_the_local_clock() {
    let node = Node::hot();
    node.remote.silence(true);
    node.clock.advance(TTL);
    let check = [Check::new(&node.rule, b"key", 1)];
    assert!(node.store.try_decide(&check, &mut Outcomes::new()).is_none());
    assert!(block_on(node.store.decide(&check)).is_err());
}

#[test]
fn half_a_lease_of_silence_is_bridged() {
    let node = Node::new();
    // 800 a second.
    let step = Span::from_micros(1_250);
    let serve = |rounds: u32| {
        for round in 0..rounds {
            assert!(node.ask(1).admitted, "round {round}");
            if round % 8 == 0 {
                block_on(node.store.tend());
            }
            node.clock.advance(step);
        }
    };
    serve(1_000);
    for round in 0..20 {
        // Silent for half a lease, at another time of the lease each round.
        node.remote.silence(true);
        serve(39);
        node.remote.silence(false);
        serve(200 + 13 * round);
    }
}

#[test]
fn the_rest_of_a_cost_is_asked_for() {
    let node = Node::hot();
    let (held, left) = (node.held(), node.left());
    let answer = node.ask(held + 10);
    assert!(answer.admitted);
    assert_eq!(answer.outcomes[0].units(), held + 10);
    assert!(node.left() + node.held() <= left - 10);
    assert!(matches!(node.ask(4_001).outcomes[0].verdict, Verdict::Never));
}

#[test]
fn a_refused_batch_puts_the_units_back() {
    let node = Node::hot();
    let (held, other) = (node.held(), Rule::new("other", Bucket::new(Rate::per_hour(1)).unwrap()));
    let batch = [Check::new(&node.rule, b"key", 3), Check::new(&other, b"key", 2)];
    let answer = block_on(node.store.decide(&batch)).unwrap();
    assert!(!answer.admitted);
    assert_eq!(answer.outcomes[0].verdict, Verdict::admitted(0));
    assert_eq!(node.held(), held);
    let batch = [Check::new(&node.rule, b"key", 3), Check::new(&other, b"key", 1)];
    let answer = block_on(node.store.decide(&batch)).unwrap();
    assert!(answer.admitted);
    assert_eq!((answer.outcomes[0].units(), answer.outcomes[1].units()), (3, 1));
    assert_eq!(node.held(), held - 3);
}

#[test]
fn a_failed_batch_puts_the_units_back() {
    let node = Node::hot();
    let (held, other) = (node.held(), Rule::new("other", Bucket::new(Rate::per_hour(1)).unwrap()));
    node.remote.silence(true);
    let batch = [Check::new(&node.rule, b"key", 3), Check::new(&other, b"key", 1)];
    assert!(block_on(node.store.decide(&batch)).is_err());
    assert_eq!(node.held(), held);
}

#[test]
fn an_idle_node_returns_what_it_holds() {
    let node = Node::hot();
    let mut waited = 0;
    while node.held() > 0 && waited < 400 {
        block_on(node.store.tend());
        node.clock.advance(Span::from_millis(1));
        waited += 1;
    }
    let counters = node.store.counters();
    assert!(counters.expired * 10 <= counters.leased, "{counters:?}");
    assert!(counters.returned > 0, "{counters:?}");
}

#[test]
fn a_drain_returns_everything_and_leases_no_more() {
    let node = Node::hot();
    block_on(node.store.drain());
    assert_eq!(node.held(), 0);
    (0..40).for_each(|_| assert!(node.ask(1).admitted));
    assert_eq!(node.held(), 0);
}

#[test]
fn a_reset_gives_up_the_leases_of_this_node() {
    let node = Node::hot();
    let reset = block_on(node.store.adjust(&node.rule, b"key", Adjustment::Reset)).unwrap();
    assert_eq!((reset.remaining, node.held()), (4_000, 0));
}

#[test]
fn a_grant_returns_the_leases_of_this_node_first() {
    let node = Node::hot();
    let granted =
        block_on(node.store.adjust(&node.rule, b"key", Adjustment::Grant { units: 10_000 })).unwrap();
    assert_eq!((granted.remaining, node.held()), (4_000, 0));
}

#[test]
fn an_exhausted_hot_key_is_refused_here_for_a_quarter_of_a_lease() {
    let node = Node::hot();
    node.remote
        .inside()
        .decide_now(&[Check { amount: Amount::UpTo(4_000), ..Check::new(&node.rule, b"key", 0) }]);
    while node.ask(1).admitted {}
    let calls = node.remote.calls();
    let refused = node.ask(1);
    assert!(!refused.admitted && node.remote.calls() == calls);
    assert!(refused.outcomes[0].retry_after().is_some_and(|wait| wait <= TTL));
    node.clock.advance(Span::from_millis(26));
    assert!(node.ask(1).admitted, "the store is asked again");
}

#[test]
fn a_rule_without_a_lease_is_always_asked() {
    let node = Node::hot();
    let exact = Rule { lease: None, ..node.rule.clone() };
    let calls = node.remote.calls();
    assert!(block_on(node.store.decide(&[Check::new(&exact, b"key", 1)])).unwrap().admitted);
    assert_eq!(node.remote.calls(), calls + 1);
}
