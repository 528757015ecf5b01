//! Regions that share a limit: a split that always holds, and units that are borrowed across it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use pollster::block_on;
use tollgate_core::{Adjustment, Bucket, FarRule, FixedWindow, Quota, Rate, Rule, RuleId, Span};
use tollgate_lease::{FarStore, Leased};
use tollgate_store::{Answer, Check, Clock as _, ManualClock, MemoryStore, Store, StoreError};

use crate::bound::excess;
use crate::remote::START;
use crate::wire::{Link, Wire};

/// The time between two regions, one way.
const DELAY: Span = Span::from_millis(40);

/// How long the clock stands still between two visits of the background work.
const STEP: Span = Span::from_millis(5);

type Node = Leased<Wire, ManualClock>;

/// The rules of all regions, by their shares in percent.
fn rules(quota: &Quota, shares: &[u64], ttl: Span, lease: Option<Span>) -> Vec<Rule> {
    let own = |at: usize, lease: Option<Span>| {
        let (quota, region) = (quota.share(shares[at], 100), at.to_string());
        let id = RuleId::of(["plan", "region", &region, &quota.identity()]);
        Rule { id, ..Rule::new("plan", quota) }.leased_for(lease)
    };
    let far = |here: usize| {
        let others = (0..shares.len()).filter(|&at| at != here);
        others.map(|at| FarRule { region: at.to_string().into(), rule: own(at, Some(ttl)) }).collect()
    };
    (0..shares.len()).map(|here| Rule { far: Some(far(here)), ..own(here, lease) }).collect()
}

/// A node with its work between regions.
struct Member {
    region: usize,
    store: Arc<Node>,
    far_work: Pin<Box<dyn Future<Output = ()>>>,
}

struct World {
    clock: ManualClock,
    servers: Vec<Arc<MemoryStore<ManualClock>>>,
    /// The link from one region to another; that to itself is the near one.
    links: Vec<Vec<Arc<Link>>>,
    rules: Vec<Rule>,
    nodes: Vec<Member>,
    admitted: Vec<(u64, u64)>,
}

impl World {
    fn new(rules: Vec<Rule>, nodes_per_region: usize) -> Self {
        let clock = ManualClock::at(START);
        let regions = rules.len();
        let server = |at| Arc::new(MemoryStore::with_seed(1_000, clock.clone(), at as u64));
        let link = |one: usize, other| Link::new(if one == other { Span::ZERO } else { DELAY });
        let links = (0..regions).map(|one| (0..regions).map(|other| link(one, other)).collect()).collect();
        let servers = (0..regions).map(server).collect();
        let mut world = Self { clock, servers, links, rules, nodes: Vec::new(), admitted: Vec::new() };
        for at in 0..regions * nodes_per_region {
            let node = world.member(at % regions, nodes_per_region, at as u64);
            world.nodes.push(node);
        }
        world
    }

    fn member(&self, region: usize, nodes: usize, seed: u64) -> Member {
        let wire = |at: usize| Wire::new(&self.clock, &self.servers[at], &self.links[region][at], nodes);
        let others = (0..self.servers.len()).filter(|&at| at != region);
        let far = others.map(|at| FarStore::new(&at.to_string(), wire(at))).collect();
        let store = Arc::new(Leased::with_clock(wire(region), self.clock.clone(), seed).with_far_stores(far));
        let working = Arc::clone(&store);
        Member { region, store, far_work: Box::pin(async move { working.tend_far().await }) }
    }

    fn now(&self) -> u64 {
        self.clock.now().since(START).as_micros()
    }

    fn ask(&mut self, node: usize, cost: u64) -> Result<Answer, StoreError> {
        let Member { region, store, .. } = &self.nodes[node];
        let answer = block_on(store.decide(&[Check::new(&self.rules[*region], b"key", cost)]));
        if answer.as_ref().is_ok_and(|it| it.admitted) {
            self.admitted.push((self.now(), cost));
        }
        answer
    }

    fn is_admitted(&mut self, node: usize, cost: u64) -> bool {
        self.ask(node, cost).is_ok_and(|it| it.admitted)
    }

    /// Asks until a request is refused, and returns the number of admitted ones.
    fn exhaust(&mut self, node: usize) -> u64 {
        let mut admitted = 0;
        while self.is_admitted(node, 1) {
            admitted += 1;
        }
        admitted
    }

    /// Runs the background work of all nodes at this instant.
    fn tend(&mut self) {
        for node in &self.nodes {
            block_on(node.store.tend());
        }
        self.make_far_calls();
    }

    fn make_far_calls(&mut self) {
        for node in &mut self.nodes {
            let mut context = Context::from_waker(Waker::noop());
            assert!(node.far_work.as_mut().poll(&mut context).is_pending());
        }
    }

    fn pass(&mut self, span: Span) {
        let until = self.clock.now() + span;
        while self.clock.now() < until {
            self.clock.advance(STEP.min(until.since(self.clock.now())));
            self.tend();
        }
    }

    /// Cuts a region off from all others, or heals it.
    fn cut(&self, region: usize, is_cut: bool) {
        for other in (0..self.servers.len()).filter(|&it| it != region) {
            self.links[region][other].cut(is_cut);
            self.links[other][region].cut(is_cut);
        }
    }

    fn buckets(&self) -> Vec<Bucket> {
        let bucket = |rule: &Rule| match &rule.quota {
            Quota::Bucket(it) => *it,
            _ => unreachable!("a bucket"),
        };
        self.rules.iter().map(bucket).collect()
    }

    /// The units that a region has left.
    fn left(&self, region: usize) -> u64 {
        self.servers[region].adjust_now(&self.rules[region], b"key", Adjustment::Grant { units: 0 }).remaining
    }

    /// Runs traffic and faults that the seed chooses.
    fn run(&mut self, steps: usize, rng: &mut fastrand::Rng) {
        let ttl = self.rules[0].far.as_ref().unwrap()[0].rule.lease.unwrap().as_micros();
        let most = self.rules.iter().map(|it| it.quota.capacity()).max().unwrap();
        for _ in 0..steps {
            let node = rng.usize(..self.nodes.len());
            match rng.u8(..24) {
                0..10 => {
                    for _ in 0..rng.usize(1..80) {
                        _ = self.ask(node, 1);
                    }
                }
                10 => _ = self.ask(node, rng.u64(1..=most)),
                11..16 => self.pass(Span::from_micros(rng.u64(..=ttl / 8))),
                16 => self.pass(Span::from_micros(rng.u64(..=ttl * 2))),
                17..20 => self.tend(),
                20 => self.cut(rng.usize(..self.servers.len()), rng.bool()),
                // The near store fails, or answers again.
                21 => {
                    let region = self.nodes[node].region;
                    self.links[region][region].cut(rng.u8(..4) == 0);
                }
                22 => {
                    // Killed, and started again.
                    let region = self.nodes[node].region;
                    self.nodes[node] = self.member(region, 1, rng.u64(..));
                }
                _ => block_on(self.nodes[node].store.tend()).map_or((), drop),
            }
        }
    }
}

fn bucket(count: u64, burst: u64) -> Quota {
    Bucket::new(Rate::per_second(count)).unwrap().with_burst(burst).unwrap().into()
}

#[test]
fn regions_together_never_exceed_a_bucket() {
    for seed in 0..80 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shares: &[u64] = [&[50, 50][..], &[50, 30, 20], &[90, 10], &[33, 33, 34]][rng.usize(..4)];
        let count = rng.u64(20..2_000);
        let burst = count * rng.u64(10..60);
        let ttl = Span::from_millis(1_000 * burst / count / 40);
        let lease = rng.bool().then_some(ttl);
        let mut world = World::new(rules(&bucket(count, burst), shares, ttl, lease), rng.usize(1..3));
        world.run(300, &mut rng);
        let over = excess(&world.admitted, &world.buckets());
        assert!(over <= 1e-6, "seed {seed}: {over} above the bound");
    }
}

#[test]
fn regions_together_never_exceed_a_window() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let quota =
            Quota::from(FixedWindow::anchored(Rate::new(rng.u64(50..3_000), Span::from_secs(60))).unwrap());
        let ttl = Span::from_millis(1_500);
        let mut world = World::new(rules(&quota, &[50, 30, 20], ttl, rng.bool().then_some(ttl)), 1);
        // All regions open their window at the same time.
        (0..3).for_each(|node| _ = world.ask(node, 1));
        while world.now() < 50_000_000 {
            world.run(1, &mut rng);
            world.clock.advance(Span::from_millis(20));
        }
        let within = world.admitted.iter().filter(|(at, _)| *at < 60_000_000);
        let admitted: u64 = within.map(|(_, units)| units).sum();
        assert!(admitted <= quota.capacity(), "seed {seed}: {admitted} of {}", quota.capacity());
    }
}

#[test]
fn a_tenant_that_moves_to_another_region_is_served_while_any_region_has_units() {
    let quota = Quota::from(FixedWindow::anchored(Rate::new(1_000, Span::from_hours(24))).unwrap());
    let mut world = World::new(rules(&quota, &[50, 30, 20], Span::from_secs(10), None), 1);
    // All requests are in the smallest region.
    let mut admitted = 0;
    for _ in 0..20_000 {
        admitted += u64::from(world.is_admitted(2, 1));
        world.pass(STEP);
        if admitted == 1_000 {
            break;
        }
    }
    assert_eq!(admitted, 1_000, "{:?}", world.nodes[2].store.far_counters());
    assert!(!world.is_admitted(0, 1) && !world.is_admitted(1, 1), "the other regions gave everything");
}

#[test]
fn more_units_are_there_one_round_trip_after_half_of_the_share_is_spent() {
    let mut world = World::new(rules(&bucket(10, 1_000), &[50, 50], Span::from_millis(2_500), None), 1);
    for _ in 0..300 {
        assert!(world.is_admitted(0, 1));
    }
    world.tend();
    world.pass(Span::from_millis(2 * 40 + 5));
    let counters = world.nodes[0].store.counters();
    assert!(counters.held >= 8, "{counters:?}");
    // The lease leaves the refill of two leases out of the burst: 25 units.
    assert_eq!(world.left(1) + world.nodes[0].store.far_counters()[0].borrowed, 500 - 25);
}

#[test]
fn a_rare_cost_that_the_share_does_not_have_is_borrowed_after_its_refusal() {
    let mut world = World::new(rules(&bucket(1, 1_000), &[50, 50], Span::from_secs(10), None), 1);
    assert!(world.is_admitted(0, 450));
    assert!(!world.is_admitted(0, 200), "no request waits for another region");
    world.pass(Span::from_millis(100));
    assert!(world.is_admitted(0, 200));
}

#[test]
fn a_region_that_is_cut_off_keeps_its_share_exactly() {
    let quota = Quota::from(FixedWindow::anchored(Rate::new(1_000, Span::from_hours(24))).unwrap());
    let mut world = World::new(rules(&quota, &[50, 50], Span::from_secs(10), None), 1);
    world.cut(0, true);
    assert_eq!(world.exhaust(0), 500);
    world.pass(Span::from_secs(30));
    assert_eq!(world.exhaust(0), 0);
    let [far] = &world.nodes[0].store.far_counters()[..] else { panic!("one other region") };
    assert!(!far.is_reachable && far.failures >= 1, "{far:?}");
    // The other region was not charged for calls that did not reach it.
    assert_eq!(world.exhaust(1), 500);
}

#[test]
fn a_healed_region_borrows_again() {
    let quota = Quota::from(FixedWindow::anchored(Rate::new(1_000, Span::from_hours(24))).unwrap());
    let mut world = World::new(rules(&quota, &[50, 50], Span::from_secs(10), None), 1);
    world.cut(0, true);
    assert_eq!(world.exhaust(0), 500);
    world.pass(Span::from_secs(10));
    world.cut(0, false);
    let mut admitted = 0;
    for _ in 0..8_000 {
        admitted += world.exhaust(0);
        world.pass(STEP);
    }
    assert_eq!(admitted, 500);
}

#[test]
fn borrowed_units_are_spent_while_the_near_store_is_silent() {
    let mut world = World::new(rules(&bucket(10, 1_000), &[50, 50], Span::from_millis(2_500), None), 1);
    (0..400).for_each(|_| assert!(world.is_admitted(0, 1)));
    world.pass(Span::from_millis(100));
    world.links[0][0].cut(true);
    assert!(world.is_admitted(0, 1));
}

#[test]
fn an_idle_node_returns_what_it_borrowed_to_where_it_came_from() {
    let mut world = World::new(rules(&bucket(1, 1_000), &[50, 50], Span::from_secs(10), None), 1);
    (0..400).for_each(|_| assert!(world.is_admitted(0, 1)));
    world.pass(Span::from_millis(100));
    assert!(world.nodes[0].store.far_counters()[0].borrowed >= 8);
    world.pass(Span::from_secs(120));
    let [far] = &world.nodes[0].store.far_counters()[..] else { panic!("one other region") };
    let counters = world.nodes[0].store.counters();
    assert_eq!((far.borrowed, counters.held), (far.returned + counters.expired, 0));
    assert!(far.borrowed < 500 && counters.expired * 10 <= far.borrowed, "{far:?} {counters:?}");
    assert_eq!(world.left(1), 500);
}

#[test]
fn a_drain_returns_borrowed_units() {
    let mut world = World::new(rules(&bucket(1, 1_000), &[50, 50], Span::from_secs(10), None), 1);
    (0..400).for_each(|_| assert!(world.is_admitted(0, 1)));
    world.pass(Span::from_millis(100));
    assert!(world.nodes[0].store.counters().held >= 8);
    let store = Arc::clone(&world.nodes[0].store);
    let mut drain = Box::pin(store.drain());
    while drain.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        world.clock.advance(STEP);
    }
    let counters = world.nodes[0].store.counters();
    assert_eq!(counters.held, 0);
    assert_eq!(counters.leased, counters.spent + counters.returned + counters.expired, "{counters:?}");
    assert!(counters.returned >= 8, "{counters:?}");
}

#[test]
fn leases_that_are_shorter_than_two_round_trips_are_not_borrowed() {
    let mut world = World::new(rules(&bucket(100, 200), &[50, 50], Span::from_millis(50), None), 1);
    for _ in 0..400 {
        world.exhaust(0);
        world.pass(STEP);
    }
    let [far] = &world.nodes[0].store.far_counters()[..] else { panic!("one other region") };
    assert_eq!((far.calls, far.round_trip), (1, Some(Span::from_millis(80))), "measured once: {far:?}");
}

#[test]
fn a_busy_key_costs_few_calls_between_regions() {
    // The whole rate is 1,000 a second; one region has half of it, and asks for all.
    let ttl = Span::from_secs(1);
    let mut world = World::new(rules(&bucket(1_000, 40_000), &[50, 50], ttl, Some(ttl)), 1);
    let mut refused = 0;
    for round in 0..12_000 {
        (0..5).for_each(|_| refused += u32::from(!world.is_admitted(0, 1)));
        world.clock.advance(STEP);
        // A key is visited eight times per lease.
        if round % 25 == 0 {
            world.tend();
        }
        world.make_far_calls();
    }
    assert!(refused < 300, "{refused} of 60,000 were refused");
    let calls = world.links[0][1].calls();
    assert!(calls < 300, "{calls} calls between regions in 60 s");
}
