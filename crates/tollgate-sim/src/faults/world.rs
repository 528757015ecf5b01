//! The simulated world: one thread, one queue of events, one seed.
//!
//! ```text
//! event ──► fault, message, timer or request ──► tasks that it woke are polled ──► their commands become events
//! ```
//!
//! The nodes run the real limiter (`node`) on simulated stores (`store`), links (`link`), shards (`shard`) and clocks
//! (`clock`). Nothing reads the time or a random number of the machine, so a seed has one run.

mod calls;
mod event;
mod injection;
mod traffic;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Context;

use fastrand::Rng;
use tollgate::{Policy, Receipt, Store as _};
use tollgate_lease::{FarStore, LeaseCounters};

use self::event::{Event, LeaseTrialStep};
use super::clock::{SimClock, TrueTime};
use super::defect::Defect;
use super::deny_cache;
use super::leasing::NodeStore;
use super::link::Link;
use super::node::{Node, Report};
use super::oracle::{Checked, NodeMoment, Oracle, Violation, violation};
use super::plan::Plan;
use super::regions;
use super::shard::Shard;
use super::store::{SimStore, StoreSettings};
use super::trace::Trace;
use super::wire::{Body, CallId, Command, Failure, Origin, Reply, RequestId, Wire};
use crate::executor::{ReadyQueue, Sender, TaskFuture, TaskId};

/// The largest number of tasks that a healthy fleet has at a time: a bound on leaks, far above the traffic.
const MAX_TASKS: usize = 4_000;

/// The interval of `reconcile`, as in `tollgate-daemon`, and of probes.
const RECONCILE_INTERVAL: TrueTime = 200_000;
const PROBE_INTERVAL: TrueTime = 3_000_000;

/// The action of a client after a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterRequest {
    Leave,
    Settle,
    Renew,
    Release,
}

/// A call to a shard.
struct Call {
    node: usize,
    starts: u64,
    shard: usize,
    origin: Origin,
    body: Body,
    reply: Option<Sender<Result<Reply, Failure>>>,
    /// The readings of the node's clock when it was sent, and at the deadline.
    sent_at: u64,
    due: u64,
    answer: Option<Reply>,
    is_late: bool,
    is_executed: bool,
}

struct Task {
    node: usize,
    origin: Origin,
    future: TaskFuture,
}

/// An admitted request that is not over.
struct OpenRequest {
    node: usize,
    starts: u64,
    receipt: Option<Arc<Receipt>>,
    task: Option<TaskId>,
    ends: TrueTime,
}

/// The numbers of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSummary {
    /// A hash of all events: the same for the same seed.
    pub trace_hash: u64,
    /// Events.
    pub events: u64,
    /// Decisions about requests.
    pub decisions: u64,
    /// Decisions that refused.
    pub refused: u64,
    /// Decisions without the store.
    pub degraded: u64,
    /// Units that requests spent from leases.
    pub spent_from_leases: u64,
    /// Units that regions borrowed from each other.
    pub borrowed: u64,
    /// Faults that were injected.
    pub faults: usize,
}

/// The simulated world.
pub(super) struct World {
    plan: Plan,
    defect: Option<Defect>,
    now: TrueTime,
    events: BTreeMap<(TrueTime, u64), Event>,
    next_event: u64,
    link_rng: Rng,
    traffic_rng: Rng,
    lease_trial_rng: Rng,
    wire: Arc<Wire>,
    ready: ReadyQueue,
    tasks: HashMap<TaskId, Task>,
    next_task: TaskId,
    calls: BTreeMap<CallId, Call>,
    next_call: CallId,
    nodes: Vec<Node>,
    shards: Vec<Shard>,
    links: Vec<Vec<Link>>,
    /// The policies in force so far, by their number.
    policies: Vec<usize>,
    open: BTreeMap<RequestId, OpenRequest>,
    next_request: RequestId,
    oracle: Oracle,
    trace: Trace,
}

/// A run that failed, with its last events.
pub(super) struct Broken {
    pub(super) violation: Violation,
    pub(super) events: Vec<String>,
}

impl World {
    /// Runs a plan to its end.
    pub(super) fn run(plan: &Plan, defect: Option<Defect>) -> Result<RunSummary, Broken> {
        let mut world = match Self::new(plan, defect) {
            Ok(world) => world,
            Err(violation) => return Err(Broken { violation, events: Vec::new() }),
        };
        match world.live() {
            Ok(()) => Ok(RunSummary {
                trace_hash: world.trace.hash(),
                events: world.trace.events(),
                decisions: world.oracle.decisions,
                refused: world.oracle.refused,
                degraded: world.oracle.degraded,
                spent_from_leases: world.oracle.spent_from_leases,
                borrowed: world.oracle.borrowed,
                faults: plan.faults.len(),
            }),
            Err(violation) => Err(Broken { violation, events: world.trace.into_lines() }),
        }
    }

    fn new(plan: &Plan, defect: Option<Defect>) -> Result<Self, Violation> {
        use super::fault::FaultKind;
        let has_replica = plan.has(|it| matches!(it, FaultKind::Failover { .. }));
        let shards =
            (0..plan.all_shards() as u64).map(|number| Shard::new(plan.seed ^ number, has_replica, defect));
        let mut world = Self {
            defect,
            now: 0,
            events: BTreeMap::new(),
            next_event: 0,
            link_rng: Rng::with_seed(plan.seed ^ 0x11_4b5),
            traffic_rng: Rng::with_seed(plan.seed ^ 0x7a_ff1c),
            lease_trial_rng: Rng::with_seed(plan.seed ^ 0x9_015e),
            wire: Arc::default(),
            ready: ReadyQueue::default(),
            tasks: HashMap::new(),
            next_task: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            nodes: Vec::new(),
            shards: shards.collect(),
            links: (0..plan.nodes).map(|node| links(plan, node)).collect(),
            policies: vec![0],
            open: BTreeMap::new(),
            next_request: 0,
            oracle: Oracle::new(plan),
            trace: Trace::new(),
            plan: plan.clone(),
        };
        for policy in 0..plan.policies.len() {
            for region in 0..plan.regions.count() {
                world.learn(policy, region)?;
            }
        }
        for node in 0..plan.nodes {
            let node = world.create_node(node, SimClock::new(0), 0)?;
            world.nodes.push(node);
        }
        for node in 0..plan.nodes {
            world.begin_background_work(node);
        }
        world.schedule(1_000, Event::Request);
        if plan.lease_trials.is_some() {
            world.schedule(1_500, Event::LeaseTrial);
        }
        world.schedule(plan.drain_at, Event::DrainAll);
        for (number, fault) in plan.faults.iter().enumerate() {
            world.schedule(fault.from, Event::FaultBegins(number));
        }
        Ok(world)
    }

    /// Tells the oracle about the rules and keys of a policy in a region.
    fn learn(&mut self, version: usize, region: usize) -> Result<(), Violation> {
        let policy = Policy::parse(&self.plan.policy_text(version, region))
            .map_err(|it| Violation { invariant: "plan", text: it.to_string() })?;
        for (number, limit) in policy.limits().iter().enumerate() {
            for rule in limit.rules() {
                self.oracle.learn_rule(rule, (number, region), version);
            }
            for user in 0..self.plan.users {
                let name = user_name(user);
                let values: &[&str] = if self.plan.policies[0][number].is_global { &[] } else { &[&name] };
                if let Some(key) = policy.key(limit, values) {
                    self.oracle.learn_key(number, user, key.as_bytes().to_vec());
                }
            }
        }
        Ok(())
    }

    fn create_node(&mut self, number: usize, clock: SimClock, starts: u64) -> Result<Node, Violation> {
        let (plan, here) = (&self.plan, self.plan.regions.of_node(number));
        let settings = |region: usize| StoreSettings {
            first_shard: region * plan.shards,
            shards: plan.shards,
            deadline: if region == here { plan.deadline } else { regions::FAR_DEADLINE },
            // Refusals of other regions are not cached.
            deny_cache: if region == here { plan.deny_cache } else { 0 },
            nodes: plan.regions.nodes_in(here, plan.nodes),
            defect: self.defect,
        };
        let store = |region| SimStore::new(number, &settings(region), &self.wire, clock.shown());
        let others = (0..plan.regions.count()).filter(|&region| region != here);
        let far = others.map(|region| FarStore::new(&regions::name(region), store(region))).collect();
        let store = store(here);
        let seed = plan.seed ^ (number as u64) << 32 ^ starts << 48;
        // States of the local share must not be older than the clock of a node that is set later.
        let leases = NodeStore::new(number, &store, &clock, (self.defect, seed), far);
        let policies = self.policies.iter().map(|&policy| plan.policy_text(policy, here));
        let limiter = Node::start(&leases, &clock, policies, &plan.outage, seed)
            .map_err(|it| Violation { invariant: "plan", text: it.to_string() })?;
        clock.sync(self.now);
        Ok(Node {
            clock,
            store,
            leases,
            limiter,
            starts,
            is_up: true,
            is_serving: true,
            paused_by: Vec::new(),
            waiting: Vec::new(),
            pauses: 0,
            is_reconciling: false,
            returns_delay: 0,
            is_drained: false,
        })
    }

    /// Starts the periodic work of a node.
    fn begin_background_work(&mut self, node: usize) {
        let tending = self.nodes[node].leases.clone().tend();
        self.spawn(node, Origin::Tend, Box::pin(tending));
        if self.plan.regions.are_several() {
            let borrowing = self.nodes[node].leases.clone().tend_far();
            self.spawn(node, Origin::Tend, Box::pin(borrowing));
        }

        let starts = self.nodes[node].starts;
        for (is_probe, interval) in [(false, RECONCILE_INTERVAL), (true, PROBE_INTERVAL)] {
            let first = self.now + self.traffic_rng.u64(1..interval);
            self.schedule(first, Event::Tick { node, starts, is_probe });
        }
    }

    fn schedule(&mut self, at: TrueTime, event: Event) {
        self.next_event += 1;
        self.events.insert((at.max(self.now), self.next_event), event);
    }

    fn live(&mut self) -> Checked {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > self.plan.end {
                break;
            }
            self.now = at;
            self.handle(event)?;
            self.run_ready()?;
            if self.tasks.len() > MAX_TASKS {
                return violation("tables never grow", format!("{} tasks are waiting", self.tasks.len()));
            }
        }
        self.now = self.plan.end;
        self.finish()
    }

    /// Checks the whole run.
    fn finish(&mut self) -> Checked {
        let mut idle = Vec::new();
        for number in 0..self.nodes.len() {
            let local = self.nodes[number].clock.sync(self.now);
            let health = self.nodes[number].limiter.health();
            if health.ledger_keys > 0 {
                let text = format!("node {number} owes the store {} keys at the end", health.ledger_keys);
                return violation("recovery", text);
            }
            idle.push((local, health.lost_entries == 0));
            self.check_drained(number)?;
            self.check_lease_counters(number)?;
        }
        self.oracle.finish(&idle)
    }

    /// Returns the leases of a node.
    fn drain_leases(&mut self, node: usize) {
        if self.nodes[node].is_up {
            let draining = self.nodes[node].leases.clone().drain();
            self.spawn(node, Origin::Tend, Box::pin(draining));
        }
    }

    /// Checks that a node that has returned its leases holds none.
    fn check_drained(&self, node: usize) -> Checked {
        let its = &self.nodes[node];
        its.clock.sync(self.now);
        let held: u64 = its.leases.leased().holdings(usize::MAX).iter().map(|it| it.units).sum();
        if its.is_drained && held > 0 {
            return violation("recovery", format!("node {node} was drained, and holds {held} leased units"));
        }
        Ok(())
    }

    /// Checks at the end that each leased unit was spent or returned, or has expired.
    fn check_lease_counters(&self, node: usize) -> Checked {
        let counters = self.nodes[node].leases.leased().counters();
        let LeaseCounters { leased, spent, returned, expired, .. } = counters;
        if leased != spent + returned + expired {
            return violation("conservation", format!("node {node}: {counters:?}"));
        }
        let known = self.oracle.lease_usage(node);
        if leased > known.leased || spent < known.spent || spent > known.spent + known.taken_in_vain {
            return violation("conservation", format!("node {node}: {counters:?}, but {known:?}"));
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Checked {
        match event {
            Event::Arrive(call) => self.arrive(call),
            Event::Return(call) => {
                self.deliver(call);
                Ok(())
            }
            Event::Break(call, failure) => {
                self.fail(call, failure);
                Ok(())
            }
            Event::Deadline(call) => {
                self.pass_deadline(call);
                Ok(())
            }
            Event::Wake { node, starts, due, done } => {
                let its = &self.nodes[node];
                if its.starts == starts && its.clock.read(self.now) < due {
                    let at = its.clock.true_time_of(due, self.now).max(self.now + 1);
                    self.schedule(at, Event::Wake { node, starts, due, done });
                } else {
                    done.send(());
                }
                Ok(())
            }
            Event::Request => {
                self.send_request();
                Ok(())
            }
            Event::LeaseTrial => {
                self.begin_lease_trial();
                Ok(())
            }
            Event::LeaseTrialRequest(step) => {
                self.continue_lease_trial(step);
                Ok(())
            }
            Event::DrainAll => {
                (0..self.nodes.len()).for_each(|node| self.drain_leases(node));
                Ok(())
            }
            Event::After(request, what) => {
                self.follow_up(request, what);
                Ok(())
            }
            Event::Tick { node, starts, is_probe } => self.tick(node, starts, is_probe),
            Event::FaultBegins(fault) => self.begin_fault(fault),
            Event::FaultEnds(fault) => self.end_fault(fault),
            Event::Flap(fault, is_cut) => {
                self.flap(fault, is_cut);
                Ok(())
            }
        }
    }

    /// Polls the tasks that were woken, until none is.
    fn run_ready(&mut self) -> Checked {
        loop {
            self.carry_out()?;
            let Some(task) = self.ready.pop() else { return Ok(()) };
            let Some(Task { node, .. }) = self.tasks.get(&task) else { continue };
            let node = *node;
            if !self.nodes[node].is_running() {
                self.nodes[node].waiting.push(task);
                continue;
            }
            self.nodes[node].clock.sync(self.now);
            let Some(Task { future, origin, .. }) = self.tasks.get_mut(&task) else { continue };
            self.wire.set_current(Some(*origin));
            let waker = self.ready.waker(task);
            let is_done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            if is_done {
                // Destructors may send calls, in the name of this task.
                self.tasks.remove(&task);
            }
            self.wire.set_current(None);
        }
    }

    fn spawn(&mut self, node: usize, origin: Origin, future: TaskFuture) -> TaskId {
        self.next_task += 1;
        let task = self.next_task;
        self.tasks.insert(task, Task { node, origin, future });
        self.ready.push(task);
        task
    }

    /// Carries out the commands of the futures that were polled.
    fn carry_out(&mut self) -> Checked {
        loop {
            let commands = self.wire.take();
            if commands.is_empty() {
                return Ok(());
            }
            for command in commands {
                match command {
                    Command::Send { node, shard, origin, body, reply } => {
                        self.send(node, shard, origin, body, reply);
                    }
                    Command::Spawn { node, origin, task } => {
                        if self.nodes[node].is_up {
                            self.spawn(node, origin, task);
                        }
                    }
                    Command::Sleep { node, span, done } => {
                        let its = &self.nodes[node];
                        let (starts, due) = (its.starts, its.clock.read(self.now) + span);
                        let at = its.clock.true_time_of(due, self.now);
                        self.schedule(at, Event::Wake { node, starts, due, done });
                    }
                    Command::Report { node, report } => self.observe(node, report)?,
                }
            }
        }
    }

    fn moment(&self, node: usize) -> NodeMoment {
        NodeMoment { node, now: self.now, local: self.nodes[node].clock.read(self.now) }
    }

    /// Passes the report of a task to the oracle.
    fn observe(&mut self, node: usize, report: Report) -> Checked {
        let moment = self.moment(node);
        match report {
            Report::Answered { request, admitted } => {
                self.trace
                    .note(self.now, format_args!("node {node}: request {request} answered {admitted:?}"));
                self.oracle.answered(request, admitted, moment);
                Ok(())
            }
            Report::Recalled { request, checks } => {
                self.trace
                    .note(self.now, format_args!("node {node}: request {request} refused by the deny cache"));
                let (shards, region) = (self.plan.shards, self.plan.regions.of_node(node));
                let refuses = checks.iter().any(|check| {
                    let shard = region * shards + super::store::shard_of(&check.key, shards);
                    let shard = &mut self.shards[shard];
                    shard.refuses(self.now, std::slice::from_ref(check))
                });
                self.oracle.recalled(request, &checks, refuses, self.now)
            }
            Report::DecidedLocally { request, is_admitted } => {
                self.trace.note(
                    self.now,
                    format_args!("node {node}: request {request} decided locally: {is_admitted}"),
                );
                self.oracle.decided_locally(request, is_admitted, moment)
            }
            Report::Decided(decided) => self.observe_decision(node, *decided, moment),
            Report::Settling { request, cost } => {
                self.oracle.settling(request, cost, moment.local);
                Ok(())
            }
            Report::Settled { request, is_kept } => {
                self.trace
                    .note(self.now, format_args!("node {node}: request {request} settled, kept {is_kept}"));
                self.oracle.settled(request, is_kept);
                Ok(())
            }
            Report::Answers => {
                self.oracle.store_answers(node);
                Ok(())
            }
            Report::Drained => {
                self.trace.note(self.now, format_args!("node {node}: has returned its leases"));
                self.nodes[node].is_drained = true;
                self.check_drained(node)
            }
            Report::Reconciled => {
                self.nodes[node].is_reconciling = false;
                Ok(())
            }
            Report::Replaying { rule, key, adjustment, id } => {
                self.trace.note(self.now, format_args!("node {node}: replays {adjustment:?}"));
                self.oracle.replaying((&rule, &key), adjustment, id, moment)
            }
            Report::Replayed { rule, key, adjustment, id, failure } => {
                self.trace.note(self.now, format_args!("node {node}: replayed {adjustment:?}: {failure:?}"));
                self.oracle.replayed((&rule, &key), id, failure, moment)
            }
        }
    }

    fn tick(&mut self, node: usize, starts: u64, is_probe: bool) -> Checked {
        if self.nodes[node].starts != starts {
            return Ok(());
        }
        let interval = if is_probe { PROBE_INTERVAL } else { RECONCILE_INTERVAL };
        // Half of the interval is random, so that nodes do not act together.
        let next = self.now + interval / 2 + self.traffic_rng.u64(..interval);
        self.schedule(next, Event::Tick { node, starts, is_probe });
        let its = &mut self.nodes[node];
        if !its.is_running() {
            return Ok(());
        }
        let (keys, health) = (self.plan.outage.keys, its.limiter.health());
        // Each of the sixteen parts of the ledger has room for its part of the keys, and releases and corrections
        // have queues of their own.
        let max_keys = keys.div_ceil(16) * 16 + 2 * keys;
        if health.ledger_keys > max_keys || its.store.cached_refusals() > deny_cache::MAX_BATCHES {
            return violation(
                "tables never grow",
                format!("node {node} remembers {} keys", health.ledger_keys),
            );
        }
        let keys = self.plan.policies.len()
            * self.plan.policies[0].len()
            * usize::try_from(self.plan.users).unwrap_or(usize::MAX);
        if its.leases.leased().holdings(usize::MAX).len() > keys {
            return violation(
                "tables never grow",
                format!("node {node} holds leases of more than {keys} keys"),
            );
        }
        let (limiter, wire) = (its.limiter.clone(), Arc::clone(&self.wire));
        if is_probe {
            self.spawn(node, Origin::Probe, Box::pin(async move { drop(limiter.probe().await) }));
        } else if !its.is_reconciling {
            its.is_reconciling = true;
            let reconciling = async move {
                limiter.reconcile().await;
                wire.push(Command::Report { node, report: Report::Reconciled });
            };
            self.spawn(node, Origin::Reconcile, Box::pin(reconciling));
        }
        Ok(())
    }
}

/// Returns the links of a node to all shards.
fn links(plan: &Plan, node: usize) -> Vec<Link> {
    let distance = |shard| if plan.is_far(node, shard) { plan.regions.distance } else { 0 };
    (0..plan.all_shards()).map(|shard| Link::new(distance(shard))).collect()
}

/// Returns the name of a user.
fn user_name(user: u64) -> String {
    format!("user{user}")
}
