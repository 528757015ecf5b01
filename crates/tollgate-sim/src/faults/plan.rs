//! The plan of a run: the fleet, its limits, its traffic and its faults, all drawn from one seed.
//!
//! Each seed draws a subset of the kinds of faults (swarm testing): a run with every fault at once would mostly show
//! a store that is out of reach.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use tollgate::OutageSettings;

use super::clock::TrueTime;
use super::fault::{Draw, Fault, FaultKind};
use super::regions::Regions;

const SECOND: TrueTime = 1_000_000;

/// No fault begins before this time.
const FAULTS_FROM: TrueTime = 2 * SECOND;
/// No fault lasts longer than this.
const CALM_FROM: TrueTime = 12 * SECOND;
/// Requests end here.
const TRAFFIC_UNTIL: TrueTime = 19 * SECOND;
/// All leases are returned here.
const DRAIN_AT: TrueTime = 23 * SECOND;
/// The run ends here.
const END: TrueTime = 24 * SECOND;

/// The shortest lease of a policy.
const MIN_LEASE_MS: u64 = 10;

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// A bucket of `burst` units that gains `count` units a second.
    Bucket { count: u64, burst: u64 },
    /// A window of `limit` units that opens every `period` seconds.
    Window { limit: u64, period: u64 },
    /// `slots` concurrent requests, each with a lease of `ttl` seconds.
    Slots { slots: u64, ttl: u64 },
}

/// The outage rule of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnOutage {
    Local,
    Allow,
    Deny,
}

/// One limit of the policy.
#[derive(Clone, Debug)]
pub(super) struct LimitPlan {
    pub(super) name: &'static str,
    pub(super) is_global: bool,
    pub(super) counting: Counting,
    pub(super) on_outage: OnOutage,
    /// How long a node may hold units, in milliseconds; 0: every request is decided by the store.
    pub(super) lease_ms: u64,
    /// Whether regions share it.
    pub(super) is_split: bool,
}

impl LimitPlan {
    /// Returns how long a node may hold units, in microseconds.
    pub(super) const fn lease(&self) -> TrueTime {
        1_000 * self.lease_ms
    }
}

impl fmt::Display for LimitPlan {
    /// The limit in the words of a policy file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.is_global { "global" } else { "user" };
        write!(f, "{{name: {}, by: {by}, ", self.name)?;
        match self.counting {
            Counting::Bucket { count, burst } => write!(f, "bucket: \"{count}/second, burst {burst}\"")?,
            Counting::Window { limit, period } => {
                write!(f, "algorithm: fixed-window, rate: {limit}/{period}s")?;
            }
            Counting::Slots { slots, ttl } => write!(f, "slots: {slots}, ttl: {ttl}s")?,
        }
        let on_outage = match self.on_outage {
            OnOutage::Local => "local",
            OnOutage::Allow => "allow",
            OnOutage::Deny => "deny",
        };
        if self.lease_ms > 0 {
            write!(f, ", lease: {}ms", self.lease_ms)?;
        }
        if self.is_split {
            f.write_str(", scope: global")?;
        }
        write!(f, ", on_outage: {on_outage}}}")
    }
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    /// The shards of each region.
    pub(super) shards: usize,
    pub(super) regions: Regions,
    pub(super) users: u64,
    /// The limits of each policy that is in force, one after the other. All have the same names.
    pub(super) policies: Vec<Vec<LimitPlan>>,
    pub(super) outage: OutageSettings,
    pub(super) deadline: TrueTime,
    pub(super) deny_cache: TrueTime,
    pub(super) traffic: Traffic,
    /// The lease trials of a fleet with leases: a key is hot for a short time.
    pub(super) lease_trials: Option<LeaseTrials>,
    pub(super) faults: Vec<Fault>,
    pub(super) calm_from: TrueTime,
    pub(super) traffic_until: TrueTime,
    pub(super) drain_at: TrueTime,
    pub(super) end: TrueTime,
}

/// The requests of the clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// The mean time between two requests of the fleet, in microseconds.
    pub(super) gap: u64,
    pub(super) max_cost: u64,
    /// A user stays on a node for this long; 0: every request goes to a random node.
    pub(super) stay: TrueTime,
    /// The part of admitted requests that are settled, in percent, and the longest delay until then.
    pub(super) settled: u64,
    pub(super) settle_delay: TrueTime,
    /// The part of requests whose caller leaves early, in percent.
    pub(super) leaving: u64,
    /// The longest time for which a request holds its slot.
    pub(super) hold: TrueTime,
}

/// Requests in quick succession, on top of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTrials {
    /// The mean time between two lease trials, in microseconds.
    pub(super) gap: u64,
    pub(super) max_requests: u64,
    /// The longest time between two requests of a lease trial.
    pub(super) max_spacing: u64,
    /// The users that have lease trials.
    pub(super) users: u64,
    /// The longest lease of a limit, and the smallest capacity.
    pub(super) max_lease: TrueTime,
    pub(super) capacity: u64,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (nodes, shards) = (rng.usize(1..=4), if rng.bool() { 1 } else { rng.usize(2..=3) });
        let mut policy = draw_limits(&mut rng);
        // Drawn apart, so that the other seeds do not depend on regions.
        let mut region_rng = Rng::with_seed(seed ^ 0x4e_6102);
        let regions = Regions::draw(&mut region_rng);
        if regions.are_several() {
            split(&mut policy, &regions, &mut region_rng);
        }
        // Drawn apart, so that the other half of the seeds does not depend on leases.
        let mut lease_rng = Rng::with_seed(seed ^ 0x1e_a5e5);
        let is_leased = lease_rng.u8(..5) > 1;
        if is_leased {
            for limit in &mut policy {
                make_hot(limit, &regions, &mut lease_rng);
            }
        }
        let deadline = 50_000;
        let outage = OutageSettings {
            failures: rng.u32(1..=5),
            share: [1, 20, 20, 50, 100][rng.usize(..5)],
            grace: Duration::from_millis([0, 500, 2_000, 60_000][rng.usize(..4)]),
            keys: [4, 64, 4_096][rng.usize(..3)],
            ..OutageSettings::default()
        };
        let traffic = Traffic {
            gap: rng.u64(4_000..25_000),
            max_cost: if rng.bool() { 1 } else { rng.u64(2..=4) },
            stay: [0, 3 * SECOND, END][rng.usize(..3)],
            settled: [0, 0, 20, 60][rng.usize(..4)],
            settle_delay: [100_000, 3 * SECOND][rng.usize(..2)],
            leaving: [0, 0, 0, 5][rng.usize(..4)],
            hold: [50_000, SECOND, 4 * SECOND][rng.usize(..3)],
        };
        let max_lease = policy.iter().map(LimitPlan::lease).max().unwrap_or(0);
        let capacity = policy.iter().filter_map(|limit| match limit.counting {
            Counting::Bucket { burst, .. } => Some(burst),
            Counting::Window { limit, .. } => Some(limit),
            Counting::Slots { .. } => None,
        });
        let capacity = (capacity.min().unwrap_or(1) * regions.max_share() / 100).max(1);
        let has_trials = is_leased || regions.are_several();
        let mut plan = Self {
            seed,
            nodes: nodes.max(regions.count()),
            shards,
            regions,
            users: rng.u64(1..=6),
            policies: vec![policy],
            outage,
            deadline,
            deny_cache: [0, SECOND, SECOND][rng.usize(..3)],
            traffic,
            lease_trials: has_trials.then(|| LeaseTrials {
                gap: lease_rng.u64(100_000..2_000_000),
                max_requests: lease_rng.u64(20..200),
                max_spacing: [0, 500, 4_000][lease_rng.usize(..3)],
                users: lease_rng.u64(1..=2),
                max_lease: max_lease.max(10_000),
                capacity,
            }),
            faults: Vec::new(),
            calm_from: CALM_FROM,
            traffic_until: TRAFFIC_UNTIL,
            drain_at: DRAIN_AT,
            end: END,
        };
        plan.draw_faults_of(&FaultKind::DRAWS, 22, &mut rng);
        if plan.regions.are_several() {
            plan.draw_faults_of(&FaultKind::REGION_DRAWS, 60, &mut region_rng);
        }
        plan.draw_policies(&mut rng, &mut lease_rng);
        plan
    }

    /// Draws faults of each of these kinds with a probability in percent.
    fn draw_faults_of(&mut self, draws: &[Draw], percent: u8, rng: &mut Rng) {
        for draw in draws {
            if rng.u8(..100) >= percent {
                continue;
            }
            for _ in 0..rng.usize(1..=3) {
                let from = rng.u64(FAULTS_FROM..CALM_FROM - 300_000);
                let longest = [100_000, 600_000, 4 * SECOND][rng.usize(..3)];
                let until = (from + rng.u64(20_000..longest)).min(CALM_FROM);
                if let Some(kind) = draw(self, rng) {
                    self.faults.push(Fault { kind, from, until });
                }
            }
        }
    }

    /// Orders the faults, and draws the policies that come into force with them.
    fn draw_policies(&mut self, rng: &mut Rng, lease_rng: &mut Rng) {
        self.faults.sort_by_key(|fault| fault.from);
        // Policies come into force in the order of their numbers.
        let mut number = 0;
        for fault in &mut self.faults {
            if let FaultKind::Reload { policy } = &mut fault.kind {
                number += 1;
                *policy = number;
            }
        }
        for _ in 0..number {
            let before = self.policies[self.policies.len() - 1].clone();
            let mut limits: Vec<_> = before.iter().map(|limit| with_other_numbers(limit, rng)).collect();
            for limit in &mut limits {
                self.regions.fit(limit);
            }
            if self.lease_trials.is_some() {
                // Half of the changes are only to the leases, which the states of a limit survive.
                if lease_rng.bool() {
                    limits.clone_from(&before);
                }
                for limit in &mut limits {
                    draw_lease(limit, lease_rng);
                }
            }
            self.policies.push(limits);
        }
    }

    /// Returns whether the plan has a fault of a kind.
    pub(super) fn has(&self, is_meant: impl Fn(&FaultKind) -> bool) -> bool {
        self.faults.iter().any(|fault| is_meant(&fault.kind))
    }

    /// Returns whether two policies differ only in their leases.
    pub(super) fn has_same_numbers(&self, one: usize, other: usize) -> bool {
        let numbers = |policy: usize| self.policies[policy].iter().map(|limit| limit.counting);
        numbers(one).eq(numbers(other))
    }

    /// Returns the number of shards of all regions.
    pub(super) fn all_shards(&self) -> usize {
        self.shards * self.regions.count()
    }

    /// Returns the region of a shard.
    pub(super) const fn region_of_shard(&self, shard: usize) -> usize {
        shard / self.shards
    }

    /// Returns whether a shard is in another region than a node.
    pub(super) fn is_far(&self, node: usize, shard: usize) -> bool {
        self.regions.of_node(node) != self.region_of_shard(shard)
    }

    /// Returns the text of a policy in a region.
    pub(super) fn policy_text(&self, number: usize, region: usize) -> String {
        use fmt::Write as _;
        let mut text = self.regions.text(region);
        text.push_str("limits:\n");
        for limit in &self.policies[number] {
            let _never = writeln!(text, "  - {limit}");
        }
        text
    }
}

fn draw_limits(rng: &mut Rng) -> Vec<LimitPlan> {
    let on_outage = |rng: &mut Rng| {
        [OnOutage::Local, OnOutage::Local, OnOutage::Local, OnOutage::Allow, OnOutage::Deny][rng.usize(..5)]
    };
    let mut limits = Vec::new();
    if rng.u8(..4) > 0 {
        let counting = draw_bucket(rng, 10..60);
        limits.push(LimitPlan {
            name: "user",
            is_global: false,
            counting,
            on_outage: on_outage(rng),
            lease_ms: 0,
            is_split: false,
        });
    }
    if rng.u8(..3) > 0 {
        let counting = draw_bucket(rng, 30..150);
        limits.push(LimitPlan {
            name: "everybody",
            is_global: true,
            counting,
            on_outage: on_outage(rng),
            lease_ms: 0,
            is_split: false,
        });
    }
    if rng.u8(..3) == 0 {
        let counting = Counting::Window { limit: rng.u64(10..120), period: [1, 2, 5][rng.usize(..3)] };
        limits.push(LimitPlan {
            name: "window",
            is_global: false,
            counting,
            on_outage: on_outage(rng),
            lease_ms: 0,
            is_split: false,
        });
    }
    if rng.u8(..4) == 0 || limits.is_empty() {
        let counting = Counting::Slots { slots: rng.u64(2..12), ttl: rng.u64(1..=4) };
        limits.push(LimitPlan {
            name: "slots",
            is_global: rng.bool(),
            counting,
            on_outage: on_outage(rng),
            lease_ms: 0,
            is_split: false,
        });
    }
    limits
}

/// Splits the limits between regions. Slots cannot be split.
fn split(limits: &mut Vec<LimitPlan>, regions: &Regions, rng: &mut Rng) {
    limits.retain(|limit| !matches!(limit.counting, Counting::Slots { .. }));
    if limits.is_empty() {
        limits.push(LimitPlan {
            name: "user",
            is_global: false,
            counting: draw_bucket(rng, 10..60),
            on_outage: OnOutage::Local,
            lease_ms: 0,
            is_split: true,
        });
    }
    for limit in limits {
        // Units are borrowed for a fortieth of the time to fill, which has to be longer than two round trips.
        if let Counting::Bucket { burst, .. } = &mut limit.counting {
            *burst *= [1, 4, 10][rng.usize(..3)];
        }
        regions.fit(limit);
    }
}

/// Makes a limit large enough to be leased, and draws its lease.
fn make_hot(limit: &mut LimitPlan, regions: &Regions, rng: &mut Rng) {
    limit.counting = match limit.counting {
        Counting::Bucket { count, .. } => {
            let count = count * rng.u64(3..=10);
            Counting::Bucket { count, burst: rng.u64(count / 2..=3 * count) }
        }
        Counting::Window { limit, period } => Counting::Window { limit: limit * rng.u64(3..=10), period },
        slots @ Counting::Slots { .. } => slots,
    };
    regions.fit(limit);
    draw_lease(limit, rng);
}

fn draw_lease(limit: &mut LimitPlan, rng: &mut Rng) {
    // A tenth of the time to fill, and of the window.
    let longest = match limit.counting {
        Counting::Bucket { count, burst } => 100 * burst / count.max(1),
        Counting::Window { period, .. } => 100 * period,
        Counting::Slots { .. } => 0,
    };
    let ttl = if rng.bool() { longest } else { rng.u64(..=longest) };
    limit.lease_ms = if rng.u8(..5) > 0 && ttl >= MIN_LEASE_MS { ttl } else { 0 };
}

fn draw_bucket(rng: &mut Rng, counts: std::ops::Range<u64>) -> Counting {
    let count = rng.u64(counts);
    Counting::Bucket { count, burst: rng.u64((count / 4).max(4)..=4 * count) }
}

fn with_other_numbers(limit: &LimitPlan, rng: &mut Rng) -> LimitPlan {
    let mut scale = |number: u64| (number * rng.u64(40..=250) / 100).max(4);
    let counting = match limit.counting {
        Counting::Bucket { count, burst } => Counting::Bucket { count: scale(count), burst: scale(burst) },
        Counting::Window { limit, period } => Counting::Window { limit: scale(limit), period },
        Counting::Slots { slots, ttl } => Counting::Slots { slots: scale(slots), ttl },
    };
    LimitPlan { counting, ..limit.clone() }
}
