//! Several nodes on one key never admit more than the limit, whatever happens to them.

use pollster::block_on;
use tollgate_core::{Adjustment, Bucket, FixedWindow, Quota, Rate, Rule, Span};
use tollgate_lease::{LeaseCounters, Leased};
use tollgate_store::{Check, ManualClock, Store};

use crate::remote::{Remote, START};

/// Admitted units with their times in microseconds.
type Admitted = Vec<(u64, u64)>;

struct Fleet {
    clock: ManualClock,
    remote: Remote,
    nodes: Vec<Leased<Remote, ManualClock>>,
    rule: Rule,
    admitted: Admitted,
    requested_units: u64,
}

impl Fleet {
    fn new(rule: Rule, nodes: usize) -> Self {
        let clock = ManualClock::at(START);
        let remote = Remote::new(&clock, nodes);
        let nodes = (0..nodes).map(|at| remote.node(&clock, at as u64)).collect();
        Self { clock, remote, nodes, rule, admitted: Vec::new(), requested_units: 0 }
    }

    fn now(&self) -> u64 {
        use tollgate_store::Clock as _;
        self.clock.now().since(START).as_micros()
    }

    fn request(&mut self, node: usize, cost: u64) {
        let answer = block_on(self.nodes[node].decide(&[Check::new(&self.rule, b"key", cost)]));
        self.requested_units += cost;
        if answer.is_ok_and(|it| it.admitted) {
            self.admitted.push((self.now(), cost));
        }
    }

    fn tend(&self, node: usize) {
        block_on(self.nodes[node].tend());
    }

    /// Runs traffic and faults that the seed chooses.
    fn run(&mut self, steps: usize, rng: &mut fastrand::Rng, faults: bool) {
        let ttl = self.rule.lease.expect("a leased rule").as_micros();
        for _ in 0..steps {
            let node = rng.usize(..self.nodes.len());
            match rng.u8(..24) {
                0..12 => {
                    let burst = rng.usize(1..60);
                    (0..burst).for_each(|_| self.request(node, 1));
                }
                12 => self.request(node, rng.u64(1..=self.rule.quota.capacity())),
                13..18 => self.clock.advance(Span::from_micros(rng.u64(..=ttl / 8))),
                18 => self.clock.advance(Span::from_micros(rng.u64(..=ttl * 2))),
                19..22 => self.tend(node),
                22 if faults => self.remote.silence(rng.bool()),
                23 if faults => {
                    // Killed, and started again.
                    self.nodes[node] = self.remote.node(&self.clock, rng.u64(..));
                }
                _ => {}
            }
        }
    }

    /// The units above the bound of the bucket, in any stretch.
    fn excess(&self) -> f64 {
        let Quota::Bucket(bucket) = &self.rule.quota else { unreachable!("a bucket") };
        excess(&self.admitted, &[*bucket])
    }
}

/// The units above the sum of the bounds of these buckets, in any stretch.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn excess(admitted: &[(u64, u64)], buckets: &[Bucket]) -> f64 {
    let rate = |it: &Bucket| it.rate().count as f64 / it.rate().period.as_micros() as f64;
    let per_us: f64 = buckets.iter().map(rate).sum();
    let burst: u64 = buckets.iter().map(|it| Quota::from(*it).capacity()).sum();
    let (mut level, mut last, mut most) = (0.0_f64, 0, 0.0_f64);
    for &(at, units) in admitted {
        level = (level - (at - last) as f64 * per_us).max(0.0) + units as f64;
        most = most.max(level - burst as f64);
        last = at;
    }
    most
}

fn bucket(count: u64, burst: u64, ttl_ms: u64) -> Rule {
    let bucket = Bucket::new(Rate::per_second(count)).unwrap().with_burst(burst).unwrap();
    Rule::new("hot", bucket).leased_for(Some(Span::from_millis(ttl_ms)))
}

#[test]
fn nodes_with_leases_never_exceed_a_bucket() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (count, nodes) = (rng.u64(100..5_000), rng.usize(1..5));
        let burst = count * rng.u64(1..4);
        let ttl_ms = (1_000 * burst / count / 40).clamp(10, 1_000);
        let mut fleet = Fleet::new(bucket(count, burst, ttl_ms), nodes);
        fleet.run(400, &mut rng, true);
        assert!(fleet.excess() <= 1e-6, "seed {seed}: {} above the bound", fleet.excess());
    }
}

#[test]
fn nodes_with_leases_never_exceed_a_window() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let quota = FixedWindow::anchored(Rate::new(rng.u64(50..2_000), Span::from_secs(4))).unwrap();
        let limit = Quota::from(quota.clone()).capacity();
        let rule = Rule::new("hot", quota).leased_for(Some(Span::from_millis(100)));
        let mut fleet = Fleet::new(rule, rng.usize(1..5));
        // All within the first window.
        while fleet.now() < 2_000_000 {
            fleet.run(1, &mut rng, true);
        }
        let admitted: u64 = fleet.admitted.iter().filter(|(at, _)| *at < 2_500_000).map(|it| it.1).sum();
        assert!(admitted <= limit, "seed {seed}: {admitted} of {limit}");
    }
}

#[test]
fn a_saturated_key_is_used_up_and_costs_few_calls() {
    // 2,000 a second, asked for 8,000 a second by four nodes for ten seconds.
    let mut fleet = Fleet::new(bucket(2_000, 4_000, 50), 4);
    let step = Span::from_micros(500);
    for round in 0..20_000_u64 {
        (0..4).for_each(|node| fleet.request(node, 1));
        if round % 12 == 0 {
            (0..4).for_each(|node| fleet.tend(node));
        }
        fleet.clock.advance(step);
    }
    assert!(fleet.excess() <= 1e-6);
    let admitted: u64 = fleet.admitted.iter().map(|it| it.1).sum();
    assert!(admitted >= 23_500, "{admitted} of 24,000");
    assert!(fleet.remote.calls() < 12_000, "{} calls for 80,000 requests", fleet.remote.calls());
}

#[test]
fn an_unsaturated_key_is_never_refused_and_costs_few_calls() {
    let mut fleet = Fleet::new(bucket(10_000, 20_000, 50), 2);
    for round in 0..20_000_u64 {
        (0..2).for_each(|node| fleet.request(node, 1));
        if round % 25 == 0 {
            (0..2).for_each(|node| fleet.tend(node));
        }
        fleet.clock.advance(Span::from_micros(250));
    }
    assert_eq!(fleet.admitted.len(), 40_000, "all of them");
    let leases = fleet.nodes.iter().map(Leased::counters).collect::<Vec<_>>();
    // Five seconds are a hundred lives: about three calls for each and each node.
    assert!(fleet.remote.calls() < 900, "{} calls: {leases:?}", fleet.remote.calls());
    block_on(async {
        for node in &fleet.nodes {
            node.drain().await;
            assert_eq!(node.counters().held, 0);
        }
    });
    for counters in fleet.nodes.iter().map(Leased::counters) {
        assert_eq!(counters.leased, counters.spent + counters.returned + counters.expired, "{counters:?}");
        assert!(counters.expired * 50 <= counters.leased, "{counters:?}");
    }
    let reset = fleet.remote.inside().adjust_now(&fleet.rule, b"key", Adjustment::Grant { units: 0 });
    assert!(reset.remaining > 0);
}

#[test]
fn few_units_end_unspent_if_requests_come_at_random() {
    // 5,000 a second, asked for 1.1 times of that by four nodes for ten seconds, at random times.
    let mut fleet = Fleet::new(bucket(5_000, 10_000, 50), 4);
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut requests, mut due) = (0_u64, 0_u64);
    while fleet.now() < 10_000_000 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few milliseconds")]
        let gap = (-rng.f64().ln() * 1_000_000.0 / 5_500.0) as u64;
        fleet.clock.advance(Span::from_micros(gap + 1));
        if fleet.now() >= due {
            (0..4).for_each(|node| fleet.tend(node));
            due = fleet.now() + 1_000;
        }
        requests += 1;
        fleet.request(rng.usize(0..4), 1);
    }
    let admitted: u64 = fleet.admitted.iter().map(|it| it.1).sum();
    let counters = fleet.nodes.iter().map(Leased::counters).collect::<Vec<_>>();
    let sum = |of: fn(&LeaseCounters) -> u64| counters.iter().map(of).sum::<u64>();
    let (leased, expired) = (sum(|it| it.leased), sum(|it| it.expired));
    assert_eq!(admitted, requests, "the burst lasts for twenty seconds");
    assert!(expired * 50 <= leased, "{counters:?}");
}
