//! Several nodes on one store: their budgets add up to at most the limit, whatever happens to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Limiter, ManualClock, MemoryStore, Outcome, Policy, Rule, SharedLimiter, Span, Store,
    StoreError, Timestamp,
};
use tollgate_rlqs::Quotas;

use crate::fleet::{Pipe, Service};

const POLICY: &str = "limits: [{name: edge, rlqs: {domain: edge, bucket: {name: search}}, rate: 300/second}]";

/// A store that several nodes share, and that can be down.
#[derive(Clone)]
struct SharedStore {
    store: Arc<MemoryStore<ManualClock>>,
    is_down: Arc<AtomicBool>,
}

impl SharedStore {
    fn check(&self) -> Result<(), StoreError> {
        let error = || StoreError::Failed("down".into());
        if self.is_down.load(Ordering::Relaxed) { Err(error()) } else { Ok(()) }
    }
}

impl Store for SharedStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.check()?;
        self.store.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.check()?;
        self.store.adjust(rule, key, adjustment).await
    }

    fn nodes(&self) -> usize {
        2
    }
}

struct Node {
    quotas: Quotas,
    streams: Vec<(crate::fleet::Connection, u64)>,
}

struct Fleet {
    clock: ManualClock,
    store: SharedStore,
    /// For encoding.
    service: Service,
}

impl Fleet {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_000));
        let store = Arc::new(MemoryStore::with_seed(1_000, clock.clone(), 1));
        let store = SharedStore { store, is_down: Arc::default() };
        Self { clock, store, service: Service::new(POLICY) }
    }

    /// Starts a node with streams that demand these rates.
    fn node(&self, demands: &[u64]) -> Node {
        let limiter = Limiter::with_store(Policy::parse(POLICY).unwrap(), self.store.clone());
        let quotas = Quotas::new(SharedLimiter::from(limiter), self.clock.clone());
        let connect = |demand_rate: &u64| {
            let pipe = Pipe::default();
            (crate::fleet::Connection::new(quotas.open(pipe.clone()).unwrap(), pipe), *demand_rate)
        };
        let streams = demands.iter().map(connect).collect();
        Node { quotas, streams }
    }

    /// Runs all nodes for a time. The rates that they have assigned, with those of streams that have
    /// ended less than a TTL ago, are within the limit.
    fn run(&self, nodes: &mut [&mut Node], seconds: u64, limit: f64, note: &str) {
        for second in 0..seconds {
            self.clock.advance(Span::from_secs(1));
            for node in &mut *nodes {
                for (connection, demand_rate) in &mut node.streams {
                    if second % 5 == 0 {
                        let usages = json!([{
                            "bucketId": {"bucket": {"name": "search"}},
                            "numRequestsAllowed": (*demand_rate * 5).to_string(),
                        }]);
                        connection.report(&self.service, "edge", &usages);
                    }
                    while connection.receive(&self.service) != crate::fleet::Received::Nothing {}
                }
                for _ in 0..4 {
                    pollster::block_on(node.quotas.tend(&self.store));
                }
                for (connection, _) in &mut node.streams {
                    while connection.receive(&self.service) != crate::fleet::Received::Nothing {}
                }
            }
            let sum: f64 = nodes.iter().map(|it| assigned(it)).sum();
            assert!(sum <= limit, "{note}: {sum} of {limit} in second {second}");
        }
    }
}

fn assigned(node: &Node) -> f64 {
    node.quotas.view().quotas.iter().map(|it| it.assigned).sum()
}

#[test]
fn a_single_node_holds_the_whole_limit() {
    let fleet = Fleet::new();
    let mut node = fleet.node(&[400]);
    fleet.run(&mut [&mut node], 12, 300.0, "alone");
    assert!(assigned(&node) >= 285.0, "{}", assigned(&node));
}

#[test]
fn two_nodes_share_the_limit_by_their_proxies_and_never_exceed_it() {
    let fleet = Fleet::new();
    let (mut one, mut two) = (fleet.node(&[400, 400]), fleet.node(&[400]));
    fleet.run(&mut [&mut one], 15, 300.0, "one");
    fleet.run(&mut [&mut one, &mut two], 120, 300.0, "both");
    let (first, second) = (assigned(&one), assigned(&two));
    assert!((first - 200.0).abs() < 30.0 && (second - 100.0).abs() < 30.0, "{first} and {second}");
    assert!(first + second > 270.0, "{first} and {second}");
}

#[test]
fn a_node_that_does_not_need_its_part_leaves_it_to_the_other() {
    let fleet = Fleet::new();
    let (mut one, mut two) = (fleet.node(&[400]), fleet.node(&[20]));
    fleet.run(&mut [&mut one, &mut two], 120, 300.0, "both");
    assert!(assigned(&one) > 240.0 && assigned(&two) >= 20.0, "{} and {}", assigned(&one), assigned(&two));
}

#[test]
fn the_share_of_a_dead_node_is_used_after_its_quanta_have_expired() {
    let fleet = Fleet::new();
    let (mut one, mut two) = (fleet.node(&[400]), fleet.node(&[400]));
    fleet.run(&mut [&mut one, &mut two], 120, 300.0, "both");
    let of_the_dead = assigned(&two);
    drop(two);
    // Its proxies use their assignments for 11 seconds; its quanta are held for 30.
    fleet.run(&mut [&mut one], 20, 300.0 - of_the_dead + 1.0, "dead");
    fleet.run(&mut [&mut one], 30, 300.0, "expired");
    assert!(assigned(&one) >= 270.0, "{}", assigned(&one));
}

#[test]
fn a_process_that_starts_again_has_the_share_of_the_one_before_within_seconds() {
    let fleet = Fleet::new();
    let mut node = fleet.node(&[400]);
    fleet.run(&mut [&mut node], 12, 300.0, "before");
    drop(node);
    let mut node = fleet.node(&[400]);
    fleet.run(&mut [&mut node], 12, 300.0, "after");
    assert!(assigned(&node) >= 250.0, "{}", assigned(&node));
}

#[test]
fn assignments_are_kept_while_the_store_is_down() {
    let fleet = Fleet::new();
    let (mut one, mut two) = (fleet.node(&[400]), fleet.node(&[400]));
    fleet.run(&mut [&mut one, &mut two], 60, 300.0, "both");
    let before = assigned(&one);
    fleet.store.is_down.store(true, Ordering::Relaxed);
    fleet.run(&mut [&mut one, &mut two], 60, 300.0, "down");
    assert!((assigned(&one) - before).abs() < 10.0, "{before} became {}", assigned(&one));
    assert!(one.quotas.view().degraded);
    fleet.store.is_down.store(false, Ordering::Relaxed);
    fleet.run(&mut [&mut one, &mut two], 60, 300.0, "up again");
    assert!(!one.quotas.view().degraded && assigned(&one) > 100.0, "{}", assigned(&one));
}
