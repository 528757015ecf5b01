//! The oracle: the permitted behavior of the fleet, computed from the executed calls and the faults.
//!
//! | invariant | checked |
//! |---|---|
//! | bound | at every executed admission (`account`), at every decision without the store (`share`), and over any stretch of time at the end (`stretch`) |
//! | conservation | the ledger of each node against its decisions (`share`); at the end, each charge against the decision that it belongs to |
//! | all or nothing | at the end, the charges of each request |
//! | no refusal with room | at every executed refusal, and at every refusal of the deny cache |
//! | degraded and in time | at every decision |
//! | recovery | at every decision from two seconds after the last fault, and at the end |
//!
//! That tables do not grow and that a seed has one trace is checked by the world and by the tests.

#![allow(clippy::cast_precision_loss, reason = "units of a simulation are few")]

mod account;
mod calls;
mod checks;
mod decisions;
mod incidents;
mod leases;
mod lots;
mod share;
mod stretch;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate::{Adjustment, Rule, RuleId, Span};

use self::account::{Bounds, Charged, StoreAccount};
use self::leases::{LocalSpend, UndoneCharges};
use self::lots::{LeaseUsage, LotBook};
use self::share::NodeAccount;
use self::stretch::Stretch;
use super::clock::TrueTime;
use super::fault::FaultKind;
use super::plan::{Counting, LimitPlan, Plan};
use super::wire::{Failure, RequestId};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) invariant: &'static str,
    pub(super) text: String,
}

pub(super) type Checked = Result<(), Violation>;

pub(super) fn violation(invariant: &'static str, text: impl Into<String>) -> Checked {
    Err(Violation { invariant, text: text.into() })
}

/// A limit and a key of it.
type AccountId = (usize, Vec<u8>);

/// The accounts of one key.
struct Account {
    /// The shard of the key, among those of a region.
    shard: usize,
    /// The usage in the store of each region.
    stores: Vec<StoreAccount>,
    nodes: Vec<NodeAccount>,
    /// All admissions, and those that the store or a lease answered.
    stretch: Stretch,
    answered: Stretch,
    /// The charges that were undone.
    undone: UndoneCharges,
    /// The leased units that each node may spend.
    lots: Vec<LotBook>,
    /// The last time at which units came back in another way than by time.
    given_back_at: Option<TrueTime>,
    /// The policy under which a late charge of an earlier one gave units back.
    relieved_under: Option<usize>,
}

impl Account {
    /// Records that a fault allows more units.
    fn credit(&mut self, at: TrueTime, units: f64) {
        self.stretch.credit(at, units);
        self.answered.credit(at, units);
    }
}

/// The charge of a request that the store executed.
struct Charge {
    account: AccountId,
    /// The shard, among those of all regions.
    shard: usize,
    amount: Charged,
    at: TrueTime,
    status: ChargeState,
    /// Whether the node has sent the call that undoes it. The call may be executed after the decision, or be lost.
    is_undo_sent: bool,
    /// Whether the request was admitted with it.
    is_counted: bool,
}

impl Charge {
    /// Returns whether an adjustment of a key undoes this charge.
    fn is_undone_by(&self, (limit, key): (usize, &[u8]), adjustment: Adjustment) -> bool {
        self.account.0 == limit
            && self.account.1 == key
            && match (self.amount, adjustment) {
                (Charged::Slot(owner), Adjustment::Release { owner: released }) => owner == released.0,
                (Charged::Units(charged), Adjustment::Refund { units, .. }) => charged == units,
                _ => false,
            }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChargeState {
    Applied,
    Undone,
    Forgotten,
}

/// A request and everything that became of it.
#[allow(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(super) struct RequestRecord {
    pub(super) node: usize,
    node_start: u64,
    pub(super) user: u64,
    pub(super) cost: u64,
    /// The policy that decides it.
    policy: usize,
    started_local: u64,
    pauses: u64,
    charges: Vec<Charge>,
    /// The time of its last call, by true time and by the clock of the node, and the units that it asked for.
    sent: Option<(TrueTime, u64)>,
    /// The number of shards of that call.
    parts: usize,
    requested_units: BTreeMap<usize, u64>,
    /// The decision of the node without a call.
    local: Option<bool>,
    spends: Vec<LocalSpend>,
    /// The answers of the store that were lost, and the undo calls that were sent and executed.
    lost_answers: u64,
    undos: [u64; 2],
    answer: Option<Result<bool, Failure>>,
    is_recalled: bool,
    is_cancelled: bool,
    pub(super) is_decided: bool,
    pub(super) is_allowed: bool,
    pub(super) is_degraded: bool,
    /// The settlement: its cost, and the number of times that it was applied to each charge.
    settled: Option<u64>,
    is_settlement_kept: bool,
    applied: BTreeMap<u64, u64>,
}

/// A node as the oracle sees it.
struct NodeRecord {
    starts: u64,
    min_nodes: usize,
    max_nodes: usize,
    first_failure: Option<u64>,
    last_answer: Option<TrueTime>,
    lost_entries: u64,
    /// Whether it was ever paused.
    has_paused: bool,
    /// Whether it counts lost charges at the end.
    has_lost: bool,
}

/// The oracle.
pub(super) struct Oracle {
    plan: Plan,
    bounds: Vec<Bounds>,
    /// The bounds of the share of each region, for each limit.
    shares: Vec<Vec<Bounds>>,
    /// The limit of each rule, and the region whose share it is.
    rules: HashMap<RuleId, (usize, usize)>,
    /// How long units of a limit may be held under each policy, for each limit, in microseconds; 0: not at all.
    ttls: Vec<Vec<TrueTime>>,
    /// The policies that have each rule, and the policy in force.
    versions: HashMap<RuleId, BTreeSet<usize>>,
    policy: usize,
    keys: HashMap<(usize, u64), Vec<u8>>,
    accounts: BTreeMap<AccountId, Account>,
    pub(super) requests: BTreeMap<RequestId, RequestRecord>,
    nodes: Vec<NodeRecord>,
    /// The usage of leased units, for each node since it started.
    leases: Vec<LeaseUsage>,
    /// Units that a node returned and did not hold.
    over_returned: u64,
    /// The adjustments that were executed, and those of the ledger that were sent.
    executed: HashMap<u128, u64>,
    replays: BTreeSet<u128>,
    store_crashes: u64,
    reloads: u64,
    pub(super) decisions: u64,
    pub(super) degraded: u64,
    pub(super) refused: u64,
    pub(super) spent_from_leases: u64,
    pub(super) borrowed: u64,
}

/// The local time of a node at a report.
#[derive(Clone, Copy)]
pub(super) struct NodeMoment {
    pub(super) node: usize,
    pub(super) now: TrueTime,
    pub(super) local: u64,
}

/// The bit that the ids of requests have, as ids of decisions.
const REQUEST_BIT: u64 = 1 << 63;

/// Returns the id of the decision about a request.
pub(super) const fn decision_id(request: RequestId) -> u64 {
    request | REQUEST_BIT
}

impl Oracle {
    pub(super) fn new(plan: &Plan) -> Self {
        let nodes = |node| plan.regions.nodes_in(plan.regions.of_node(node), plan.nodes);
        let node = |node| NodeRecord {
            starts: 0,
            min_nodes: nodes(node),
            max_nodes: nodes(node),
            first_failure: None,
            last_answer: None,
            lost_entries: 0,
            has_paused: false,
            has_lost: false,
        };
        Self {
            plan: plan.clone(),
            bounds: plan.policies[0].iter().map(|limit| Bounds::of(limit.counting)).collect(),
            shares: plan.policies[0]
                .iter()
                .map(|limit| shares(limit, plan).map(Bounds::of).collect())
                .collect(),
            rules: HashMap::new(),
            ttls: plan.policies.iter().map(|limits| vec![0; limits.len()]).collect(),
            versions: HashMap::new(),
            policy: 0,
            keys: HashMap::new(),
            accounts: BTreeMap::new(),
            requests: BTreeMap::new(),
            nodes: (0..plan.nodes).map(node).collect(),
            leases: vec![LeaseUsage::default(); plan.nodes],
            over_returned: 0,
            executed: HashMap::new(),
            replays: BTreeSet::new(),
            store_crashes: 0,
            reloads: 0,
            decisions: 0,
            degraded: 0,
            refused: 0,
            spent_from_leases: 0,
            borrowed: 0,
        }
    }

    /// Learns a rule of a limit in a region under one of the policies.
    pub(super) fn learn_rule(&mut self, rule: &Rule, (limit, region): (usize, usize), policy: usize) {
        self.rules.insert(rule.id, (limit, region));
        self.versions.entry(rule.id).or_default().insert(policy);
        // Leases of the near store and borrowed units are held for the same time.
        let borrowed = || rule.far.as_ref()?.iter().find_map(|it| it.rule.lease);
        self.ttls[policy][limit] = rule.lease.or_else(borrowed).map_or(0, Span::as_micros);
    }

    /// Returns the bounds of the share of a node's region.
    fn share_of(&self, limit: usize, node: usize) -> Bounds {
        self.shares[limit][self.plan.regions.of_node(node)]
    }

    /// Returns whether a rule is that of an earlier policy. Requests that began before the reload are charged under it,
    /// and later ones do not see that.
    fn is_replaced(&self, rule: RuleId) -> bool {
        self.versions.get(&rule).is_some_and(|policies| !policies.contains(&self.policy))
    }

    pub(super) fn learn_key(&mut self, limit: usize, user: u64, key: Vec<u8>) {
        self.keys.insert((limit, user), key);
    }

    fn limits(&self) -> &[LimitPlan] {
        &self.plan.policies[0]
    }

    /// Returns whether the requests of a user are made in parts: their keys are on several shards, or they take slots.
    fn is_reserved(&self, user: u64) -> bool {
        let shard =
            |limit| self.keys.get(&(limit, user)).map(|key| super::store::shard_of(key, self.plan.shards));
        let limits = self.limits();
        limits.iter().any(|limit| matches!(limit.counting, Counting::Slots { .. }))
            || (1..limits.len()).any(|limit| shard(limit) != shard(0))
    }

    /// Returns whether the last call of a request was made in parts: leases cover some of its keys.
    fn is_made_in_parts(&self, record: &RequestRecord) -> bool {
        record.parts > 1 || self.limits().iter().any(|limit| matches!(limit.counting, Counting::Slots { .. }))
    }

    fn account(&mut self, limit: usize, key: &[u8]) -> (Bounds, &mut Account) {
        let (plan, bounds) = (&self.plan, self.bounds[limit]);
        let shard = super::store::shard_of(key, plan.shards);
        let reloads = self.reloads;
        let store = |region: usize| {
            let mut store = StoreAccount::new();
            let shard = region * plan.shards + shard;
            let steps = plan.has(|it| matches!(it, FaultKind::StoreStep { shard: it, .. } if *it == shard));
            let drifts = plan.has(|it| matches!(it, FaultKind::StoreDrift { shard: it, .. } if *it == shard));
            store.is_window_known = !steps && !drifts;
            store.is_high_known = !steps && reloads == 0;
            store.is_exact = !steps && !drifts && reloads == 0;
            store.max_drift_ppm = if drifts { 1_000 } else { 0 };
            store
        };
        let account = self.accounts.entry((limit, key.to_vec())).or_insert_with(|| Account {
            shard,
            stores: (0..plan.regions.count()).map(store).collect(),
            nodes: (0..plan.nodes).map(|_| NodeAccount::default()).collect(),
            stretch: Stretch::default(),
            answered: Stretch::default(),
            undone: UndoneCharges::default(),
            lots: (0..plan.nodes).map(|_| LotBook::default()).collect(),
            given_back_at: None,
            relieved_under: None,
        });
        (bounds, account)
    }

    /// Returns the account of a rule and a key, with the number of its limit, its region and the bounds of its share.
    fn account_of(&mut self, rule: RuleId, key: &[u8]) -> Option<(usize, usize, Bounds, &mut Account)> {
        let &(limit, region) = self.rules.get(&rule)?;
        let bounds = self.shares[limit][region];
        Some((limit, region, bounds, self.account(limit, key).1))
    }

    /// Records the start of a request.
    pub(super) fn start(
        &mut self,
        request: RequestId,
        user: u64,
        cost: u64,
        moment: NodeMoment,
        pauses: u64,
    ) {
        let node_start = self.nodes[moment.node].starts;
        self.requests.insert(
            request,
            RequestRecord {
                node: moment.node,
                node_start,
                user,
                cost,
                policy: self.policy,
                started_local: moment.local,
                pauses,
                charges: Vec::new(),
                sent: None,
                parts: 0,
                requested_units: BTreeMap::new(),
                local: None,
                spends: Vec::new(),
                lost_answers: 0,
                undos: [0, 0],
                answer: None,
                is_recalled: false,
                is_cancelled: false,
                is_decided: false,
                is_allowed: false,
                is_degraded: false,
                settled: None,
                is_settlement_kept: false,
                applied: BTreeMap::new(),
            },
        );
    }
}

/// Returns the shares of all regions in a limit.
fn shares(limit: &LimitPlan, plan: &Plan) -> impl Iterator<Item = Counting> {
    (0..plan.regions.count()).map(move |region| plan.regions.share(limit.counting, region))
}
