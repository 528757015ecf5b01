//! The oracle: what the fleet may do, computed beside it from the calls that were executed and the faults.
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
//!
//! One file because a request, its charges and the faults that excuse them are one account.

#![allow(clippy::cast_precision_loss, reason = "units of a simulation are few")]

mod account;
mod leases;
mod lots;
mod share;
mod stretch;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate::store::{ADJUSTMENT_ID_LIFETIME, AdjustmentId};
use tollgate::{Adjustment, Amount, Rule, RuleId, Verdict};

use self::account::{Bounds, Charged, Moment, StoreAccount};
use self::leases::{LocalSpend, UndoneCharges};
use self::lots::{LeaseUsage, LotBook};
use self::share::{NodeAccount, Share};
use self::stretch::Stretch;
use super::clock::TrueTime;
use super::fault::FaultKind;
use super::plan::{Counting, LimitPlan, OnOutage, Plan};
use super::shard::JournalEntry;
use super::wire::{Body, Failure, Origin, OwnedCheck, Reply, RequestId};

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
    shard: usize,
    store: StoreAccount,
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
    amount: Charged,
    at: TrueTime,
    status: ChargeState,
    /// Whether the request was admitted with it.
    is_counted: bool,
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
    asked: BTreeMap<usize, u64>,
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
    rules: HashMap<RuleId, usize>,
    /// The policies that have each rule, and the policy in force.
    versions: HashMap<RuleId, BTreeSet<usize>>,
    policy: usize,
    keys: HashMap<(usize, u64), Vec<u8>>,
    accounts: BTreeMap<AccountId, Account>,
    pub(super) requests: BTreeMap<RequestId, RequestRecord>,
    nodes: Vec<NodeRecord>,
    /// What became of leased units, for each node since it started.
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
        let node = |_| NodeRecord {
            starts: 0,
            min_nodes: plan.nodes,
            max_nodes: plan.nodes,
            first_failure: None,
            last_answer: None,
            lost_entries: 0,
            has_paused: false,
            has_lost: false,
        };
        Self {
            plan: plan.clone(),
            bounds: plan.policies[0].iter().map(|limit| Bounds::of(limit.counting)).collect(),
            rules: HashMap::new(),
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
        }
    }

    /// Learns a rule of a limit under one of the policies.
    pub(super) fn learn_rule(&mut self, rule: RuleId, limit: usize, policy: usize) {
        self.rules.insert(rule, limit);
        self.versions.entry(rule).or_default().insert(policy);
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
        let account = self.accounts.entry((limit, key.to_vec())).or_insert_with(|| {
            let mut store = StoreAccount::new();
            let steps = plan.has(|it| matches!(it, FaultKind::StoreStep { shard: it, .. } if *it == shard));
            let drifts = plan.has(|it| matches!(it, FaultKind::StoreDrift { shard: it, .. } if *it == shard));
            store.is_window_known = !steps && !drifts;
            store.is_high_known = !steps && reloads == 0;
            store.is_exact = !steps && !drifts && reloads == 0;
            store.max_drift_ppm = if drifts { 1_000 } else { 0 };
            Account {
                shard,
                store,
                nodes: (0..plan.nodes).map(|_| NodeAccount::default()).collect(),
                stretch: Stretch::default(),
                answered: Stretch::default(),
                undone: UndoneCharges::default(),
                lots: (0..plan.nodes).map(|_| LotBook::default()).collect(),
                given_back_at: None,
            }
        });
        (bounds, account)
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
                asked: BTreeMap::new(),
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

    /// Records a call that a shard executed.
    pub(super) fn executed(
        &mut self,
        now: TrueTime,
        shown: u64,
        origin: Origin,
        body: &Body,
        (reply, is_effective): (&Reply, bool),
    ) -> Checked {
        let moment = Moment { now, shown };
        match (body, reply) {
            (Body::Decide(checks), Reply::Decided(answer)) => {
                for (check, outcome) in checks.iter().zip(&answer.outcomes) {
                    if let Amount::Lease(request) = check.amount {
                        let units = if answer.admitted { outcome.units() } else { 0 };
                        self.executed_lease(check, units, request.ttl.as_micros(), moment)?;
                    } else {
                        self.executed_check(origin, check, (answer.admitted, outcome.verdict), moment)?;
                    }
                }
                Ok(())
            }
            (Body::Change { rule, key, adjustment, id }, _) => {
                if let Origin::Undo(request) = origin
                    && let Some(record) = self.requests.get_mut(&request)
                {
                    record.undos[1] += 1;
                }
                if is_effective {
                    self.executed_change(origin, (rule, key), *adjustment, *id, moment)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn executed_check(
        &mut self,
        origin: Origin,
        check: &OwnedCheck,
        (admitted, verdict): (bool, Verdict),
        moment: Moment,
    ) -> Checked {
        let Some(&limit) = self.rules.get(&check.rule.id) else { return Ok(()) };
        let asked = match check.amount {
            Amount::Exactly(units) | Amount::UpTo(units) => Charged::Units(units),
            Amount::Slot(owner) => Charged::Slot(owner.0),
            Amount::Lease(_) => return Ok(()),
        };
        let (name, is_replaced) = (self.limits()[limit].name, self.is_replaced(check.rule.id));
        let (bounds, account) = self.account(limit, &check.key);
        if admitted {
            if !is_replaced && let Err(text) = account.store.admit(bounds, asked, moment) {
                return violation("bound", format!("limit {name}: {text}"));
            }
            if let Origin::Request(request) = origin
                && let Some(record) = self.requests.get_mut(&request)
            {
                let account = (limit, check.key.clone());
                let status = ChargeState::Applied;
                let charge = Charge { account, amount: asked, at: moment.now, status, is_counted: false };
                record.charges.push(charge);
            }
        } else if let Verdict::Refused { .. } = verdict
            && let Err(text) = account.store.refuse(bounds, asked, moment)
        {
            return violation("no refusal with room", format!("limit {name} refused {asked:?}: {text}"));
        }
        Ok(())
    }

    fn executed_lease(&mut self, check: &OwnedCheck, units: u64, ttl: u64, moment: Moment) -> Checked {
        let Some(&limit) = self.rules.get(&check.rule.id) else { return Ok(()) };
        if self.is_replaced(check.rule.id) {
            return Ok(());
        }
        let name = self.limits()[limit].name;
        let (bounds, account) = self.account(limit, &check.key);
        match account.store.lease(bounds, units, ttl, moment) {
            Err(text) => violation("bound", format!("limit {name}: {text}")),
            Ok(()) => Ok(()),
        }
    }

    fn executed_change(
        &mut self,
        origin: Origin,
        (rule, key): (&Rule, &[u8]),
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
        moment: Moment,
    ) -> Checked {
        let Some(&limit) = self.rules.get(&rule.id) else { return Ok(()) };
        let (name, max_refill) = (self.limits()[limit].name, self.refill_in_lease(limit));
        let (bounds, account) = self.account(limit, key);
        let returned = account.store.change(bounds, adjustment, moment);
        if returned > 0 || matches!(adjustment, Adjustment::Release { .. } | Adjustment::ReturnLease { .. }) {
            account.given_back_at = Some(moment.now);
            account.stretch.credit(moment.now, returned as f64);
            let credit = match (adjustment, origin) {
                (Adjustment::Refund { .. }, Origin::Undo(_)) => {
                    account.undone.credit(returned as f64, max_refill)
                }
                _ => returned as f64,
            };
            account.answered.credit(moment.now, credit);
        }
        if let Origin::Undo(request) = origin {
            self.undone(request, (limit, key), adjustment);
        }
        let Some(id) = id else { return Ok(()) };
        let times = self.executed.entry(id.0).or_default();
        *times += 1;
        if *times > 1 {
            return violation(
                "conservation",
                format!("limit {name}: one adjustment was applied {times} times"),
            );
        }
        let request = u64::try_from(id.0 >> 64).unwrap_or(0) & !REQUEST_BIT;
        if let Some(record) = self.requests.get_mut(&request) {
            *record.applied.entry(limit as u64).or_default() += 1;
        }
        Ok(())
    }

    fn undone(&mut self, request: RequestId, (limit, key): (usize, &[u8]), adjustment: Adjustment) {
        let Some(record) = self.requests.get_mut(&request) else { return };
        let is_meant = |charge: &&mut Charge| {
            charge.account.0 == limit
                && charge.account.1 == key
                && charge.status == ChargeState::Applied
                && match (charge.amount, adjustment) {
                    (Charged::Slot(owner), Adjustment::Release { owner: released }) => owner == released.0,
                    (Charged::Units(charged), Adjustment::Refund { units, .. }) => charged == units,
                    _ => false,
                }
        };
        if let Some(charge) = record.charges.iter_mut().find(is_meant) {
            charge.status = ChargeState::Undone;
        }
    }

    /// Records that the answer to a call of a request was lost.
    pub(super) fn lost_answer(&mut self, origin: Origin) {
        if let Origin::Request(request) = origin
            && let Some(record) = self.requests.get_mut(&request)
        {
            record.lost_answers += 1;
        }
    }

    /// Records that a client left.
    pub(super) fn cancelled(&mut self, request: RequestId) {
        if let Some(record) = self.requests.get_mut(&request) {
            record.is_cancelled = true;
        }
        self.taken_in_vain(request);
    }

    /// Records that the store answered a request, or failed.
    pub(super) fn answered(
        &mut self,
        request: RequestId,
        admitted: Result<bool, Failure>,
        moment: NodeMoment,
    ) {
        if let Some(record) = self.requests.get_mut(&request) {
            record.answer = Some(admitted);
        }
        self.observe_call(admitted.is_ok(), moment);
    }

    /// Records that a probe, a settlement, a release or a renewal of a node was answered.
    pub(super) fn store_answers(&mut self, node: usize) {
        self.nodes[node].first_failure = None;
    }

    /// Records whether a call of a node was answered.
    pub(super) fn observe_call(&mut self, is_ok: bool, moment: NodeMoment) {
        let node = &mut self.nodes[moment.node];
        if is_ok {
            (node.last_answer, node.first_failure) = (Some(moment.now), None);
        } else {
            node.first_failure = node.first_failure.or(Some(moment.local));
        }
    }

    /// Checks a refusal of the deny cache. `refuses`: the store would refuse as well.
    pub(super) fn recalled(
        &mut self,
        request: RequestId,
        checks: &[OwnedCheck],
        refuses: bool,
        now: TrueTime,
    ) -> Checked {
        if let Some(record) = self.requests.get_mut(&request) {
            record.is_recalled = true;
        }
        // Changes in another way are noticed within the lifetime of an entry. A cache allows for a drift of 0.1 %.
        let (keep, deadline) = (self.plan.deny_cache, self.plan.deadline);
        let is_recent = |at: TrueTime| now.saturating_sub(at) <= keep + deadline;
        let mut is_excused = self.reloads > 0
            || self.plan.has(|it| matches!(it, FaultKind::NodeFrozen { .. } | FaultKind::StoreStep { .. }))
            || (self.plan.has(|it| matches!(it, FaultKind::NodeRate { .. }))
                && self.plan.has(|it| matches!(it, FaultKind::StoreDrift { .. })));
        for check in checks {
            if let Some(&limit) = self.rules.get(&check.rule.id) {
                is_excused |= self.account(limit, &check.key).1.given_back_at.is_some_and(is_recent);
            }
        }
        if refuses || is_excused {
            return Ok(());
        }
        violation("no refusal with room", "the deny cache refused a request that the store would admit")
    }

    /// Checks a decision. `lost_entries`: the charges that the node counts as lost so far.
    pub(super) fn decided(
        &mut self,
        request: RequestId,
        (is_allowed, is_degraded): (bool, bool),
        moment: NodeMoment,
        (pauses, has_calls, lost_entries): (u64, bool, u64),
    ) -> Checked {
        self.decisions += 1;
        self.degraded += u64::from(is_degraded);
        self.refused += u64::from(!is_allowed);
        let Some(user) = self.requests.get(&request).map(|it| it.user) else { return Ok(()) };
        let has_reserved = self.is_reserved(user);
        let Some(record) = self.requests.get_mut(&request) else { return Ok(()) };
        (record.is_decided, record.is_allowed, record.is_degraded) = (true, is_allowed, is_degraded);
        let answered = matches!(record.answer, Some(Ok(_))) || record.is_recalled || record.local.is_some();
        if answered == is_degraded {
            let text = if is_degraded {
                "degraded, but the store answered"
            } else {
                "without the store, but not marked degraded"
            };
            return violation("degraded and in time", format!("request {request} was decided {text}"));
        }
        if let Some(admitted) = record.local.or(record.answer.and_then(Result::ok))
            && admitted != is_allowed
        {
            return violation(
                "degraded and in time",
                format!("request {request}: the store said {admitted}"),
            );
        }
        // A refused request may wait for the lease that another request takes meanwhile.
        let calls = if has_reserved { 2 } else { 1 } * if self.plan.lease_trials.is_some() { 2 } else { 1 };
        let longest = calls * self.plan.deadline + 2_000;
        let waited = moment.local.saturating_sub(record.started_local);
        if waited > longest && record.pauses == pauses {
            return violation("degraded and in time", format!("request {request} waited for {waited} µs"));
        }
        let (user, cost, failure) = (record.user, record.cost, record.answer.and_then(Result::err));
        let node = &mut self.nodes[moment.node];
        let has_recovered = node.last_answer.is_some_and(|at| at >= self.plan.calm_from) || !has_calls;
        let is_kept = node.lost_entries == lost_entries;
        node.lost_entries = lost_entries;
        if is_degraded && moment.now >= self.plan.calm_from + 2_000_000 && has_recovered {
            return violation(
                "recovery",
                format!("request {request} was decided without the store, which is back"),
            );
        }
        if is_allowed && !is_degraded {
            return self.spend(request, moment);
        }
        self.taken_in_vain(request);
        if is_degraded && is_allowed {
            return self.granted(request, (user, cost), failure, moment, is_kept);
        }
        Ok(())
    }

    /// Checks a request that a node admitted without the store.
    fn granted(
        &mut self,
        request: RequestId,
        (user, cost): (u64, u64),
        failure: Option<Failure>,
        moment: NodeMoment,
        is_kept: bool,
    ) -> Checked {
        let NodeMoment { node, local, now } = moment;
        let grace = u64::try_from(self.plan.outage.grace.as_micros()).unwrap_or(u64::MAX);
        let began = self.nodes[node].first_failure.unwrap_or(local);
        let has_grace = local < began.saturating_add(grace).saturating_add(self.plan.deadline);
        let share = Share { percent: self.plan.outage.share, nodes: self.nodes[node].min_nodes };
        // A request that began under an earlier policy is counted by the share of that policy.
        // So is one on a node whose settings have no room for the shares of all policies.
        let shares = self.plan.policies.len() * self.bounds.len();
        let is_replaced = self.requests.get(&request).is_some_and(|it| it.policy != self.policy)
            || (self.reloads > 0 && self.plan.outage.keys < shares);
        for limit in 0..self.bounds.len() {
            let LimitPlan { name, counting, on_outage, .. } = self.limits()[limit].clone();
            let is_counted = match on_outage {
                OnOutage::Deny => {
                    return violation(
                        "degraded and in time",
                        format!("limit {name} did not deny request {request}"),
                    );
                }
                OnOutage::Allow => !has_grace,
                OnOutage::Local => true,
            };
            let Some(key) = self.keys.get(&(limit, user)).cloned() else { continue };
            let (bounds, account) = self.account(limit, &key);
            let granted = match counting {
                _ if !is_counted || is_replaced => Ok(()),
                Counting::Slots { .. } => account.nodes[node].grant_slot(bounds, share, request, local),
                _ => {
                    account.stretch.admit(now, cost);
                    account.nodes[node].grant(bounds, share, cost, local)
                }
            };
            if let Err(text) = granted {
                return violation("bound", format!("limit {name}, node {node}: {text}"));
            }
            // A call in doubt is not charged again.
            if !matches!(counting, Counting::Slots { .. }) && failure != Some(Failure::Failed) {
                account.nodes[node].record(bounds, cost, local, is_kept);
            }
        }
        Ok(())
    }

    /// Records the settlement of a request at a cost.
    pub(super) fn settling(&mut self, request: RequestId, cost: u64, local: u64) {
        let Some(record) = self.requests.get_mut(&request) else { return };
        record.settled = Some(cost);
        let (node, user, before, is_degraded) = (record.node, record.user, record.cost, record.is_degraded);
        if !is_degraded {
            return;
        }
        for limit in 0..self.bounds.len() {
            let Some(key) = self.keys.get(&(limit, user)).cloned() else { continue };
            let (bounds, account) = self.account(limit, &key);
            let account = &mut account.nodes[node];
            account.correct(bounds, cost.saturating_sub(before), before.saturating_sub(cost), local);
            account.return_units(before.saturating_sub(cost));
        }
    }

    /// Records that a settlement has ended. `is_kept`: it was made or deferred.
    pub(super) fn settled(&mut self, request: RequestId, is_kept: bool) {
        if let Some(record) = self.requests.get_mut(&request) {
            record.is_settlement_kept = is_kept;
        }
    }

    /// Records that a request releases its slots.
    pub(super) fn releasing(&mut self, request: RequestId) {
        let Some(record) = self.requests.get(&request) else { return };
        let (node, user) = (record.node, record.user);
        for limit in 0..self.bounds.len() {
            if let Some(key) = self.keys.get(&(limit, user)).cloned() {
                self.account(limit, &key).1.nodes[node].release(request);
            }
        }
    }

    /// Returns whether an adjustment is usage from the ledger, which is sent for the first time.
    fn is_ledger(&self, adjustment: Adjustment, id: u128) -> bool {
        let request = u64::try_from(id >> 64).unwrap_or(0) & !REQUEST_BIT;
        matches!(adjustment, Adjustment::Charge { .. })
            && !self.requests.contains_key(&request)
            && !self.replays.contains(&id)
    }

    /// Checks an adjustment that a node sends after an outage.
    pub(super) fn replaying(
        &mut self,
        (rule, key): (&Rule, &[u8]),
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
        moment: NodeMoment,
    ) -> Checked {
        let (Some(&limit), Some(AdjustmentId(id))) = (self.rules.get(&rule.id), id) else { return Ok(()) };
        let Adjustment::Charge { units, .. } = adjustment else { return Ok(()) };
        if !self.is_ledger(adjustment, id) {
            return Ok(());
        }
        self.replays.insert(id);
        let name = self.limits()[limit].name;
        let (bounds, account) = self.account(limit, key);
        match account.nodes[moment.node].take(bounds, units, id, moment.local) {
            Ok(()) => Ok(()),
            Err(text) => violation("conservation", format!("limit {name}, node {}: {text}", moment.node)),
        }
    }

    /// Checks the reply to an adjustment after an outage.
    pub(super) fn replayed(
        &mut self,
        (rule, key): (&Rule, &[u8]),
        id: Option<AdjustmentId>,
        failure: Option<Failure>,
        moment: NodeMoment,
    ) -> Checked {
        self.observe_call(failure.is_none(), moment);
        let (Some(&limit), Some(AdjustmentId(id))) = (self.rules.get(&rule.id), id) else { return Ok(()) };
        match failure {
            None if !self.executed.contains_key(&id) && self.store_crashes == 0 => {
                let name = self.limits()[limit].name;
                return violation(
                    "conservation",
                    format!("limit {name}: an acknowledged adjustment was not applied"),
                );
            }
            Some(Failure::Refused | Failure::TimedOut) => {
                let (bounds, account) = self.account(limit, key);
                account.nodes[moment.node].put_back(bounds, id, moment.local);
            }
            None | Some(Failure::Failed) => self.account(limit, key).1.nodes[moment.node].conclude(id),
        }
        Ok(())
    }

    /// Records the start of a node: what it held in memory is gone.
    pub(super) fn node_started(&mut self, node: usize, now: TrueTime) {
        let share = Share { percent: self.plan.outage.share, nodes: self.nodes[node].min_nodes };
        let record = &mut self.nodes[node];
        record.starts += 1;
        (record.first_failure, record.lost_entries) = (None, 0);
        self.leases[node] = LeaseUsage::default();
        for ((limit, _), account) in &mut self.accounts {
            account.nodes[node] = NodeAccount::default();
            account.lots[node] = LotBook::default();
            account.stretch.credit(now, share.capacity(self.bounds[*limit]) as f64);
        }
    }

    /// Records the number of nodes that a node was told.
    pub(super) fn told_nodes(&mut self, node: usize, nodes: usize) {
        let record = &mut self.nodes[node];
        record.min_nodes = record.min_nodes.min(nodes);
        record.max_nodes = record.max_nodes.max(nodes);
    }

    /// Records that a shard lost everything.
    pub(super) fn store_emptied(&mut self, shard: usize, now: TrueTime) {
        self.store_crashes += 1;
        self.executed.clear();
        for ((limit, _), account) in self.accounts.iter_mut().filter(|(_, it)| it.shard == shard) {
            account.store.forget_all();
            account.given_back_at = Some(now);
            account.credit(now, self.bounds[*limit].capacity() as f64);
        }
        self.forget_charges(|charge, plan| super::store::shard_of(&charge.account.1, plan.shards) == shard);
    }

    /// Records that a shard lost these calls.
    pub(super) fn store_failed_over(
        &mut self,
        shard: usize,
        forgotten: &[JournalEntry],
        heard: TrueTime,
        now: TrueTime,
    ) {
        self.store_crashes += 1;
        self.executed.clear();
        for entry in forgotten {
            let (Body::Decide(checks), Reply::Decided(answer)) = (&entry.body, &entry.reply) else {
                continue;
            };
            for (check, outcome) in checks.iter().zip(&answer.outcomes).filter(|_| answer.admitted) {
                let Some(&limit) = self.rules.get(&check.rule.id) else { continue };
                let (bounds, account) = self.account(limit, &check.key);
                match check.amount {
                    Amount::Exactly(units) | Amount::UpTo(units) => {
                        account.store.forget(bounds, Charged::Units(units));
                        account.credit(now, units as f64);
                    }
                    Amount::Slot(owner) => account.store.forget(bounds, Charged::Slot(owner.0)),
                    Amount::Lease(_) => {
                        account.store.forget(bounds, Charged::Units(outcome.units()));
                        account.credit(now, outcome.units() as f64);
                    }
                }
            }
        }
        for entry in forgotten {
            let Body::Change { rule, key, adjustment, .. } = &entry.body else { continue };
            let Some(&limit) = self.rules.get(&rule.id) else { continue };
            let (bounds, account) = self.account(limit, key);
            match adjustment {
                // Usage from a ledger was charged, and is forgotten as well.
                Adjustment::Charge { units, .. } => account.store.forget(bounds, Charged::Units(*units)),
                // The lease ends as if it had not been renewed.
                Adjustment::Renew { owner } => account.store.forget(bounds, Charged::Slot(owner.0)),
                _ => {}
            }
        }
        for account in self.accounts.values_mut().filter(|it| it.shard == shard) {
            account.store.is_high_known = false;
            account.store.is_exact = false;
            account.given_back_at = Some(now);
        }
        self.forget_charges(|charge, plan| {
            charge.at > heard && super::store::shard_of(&charge.account.1, plan.shards) == shard
        });
    }

    fn forget_charges(&mut self, is_meant: impl Fn(&Charge, &Plan) -> bool) {
        for record in self.requests.values_mut() {
            for charge in record.charges.iter_mut().filter(|charge| is_meant(charge, &self.plan)) {
                charge.status = ChargeState::Forgotten;
            }
        }
    }

    /// Records that the clock of a shard was set.
    pub(super) fn store_stepped(&mut self, shard: usize, by: i64, now: TrueTime) {
        let forward = u64::try_from(by).unwrap_or(0);
        if forward >= ADJUSTMENT_ID_LIFETIME.as_micros() {
            // The store no longer recognizes the ids of earlier adjustments.
            self.store_crashes += 1;
            self.executed.clear();
        }
        for ((limit, _), account) in self.accounts.iter_mut().filter(|(_, it)| it.shard == shard) {
            let bounds = self.bounds[*limit];
            account.store.gain(bounds, forward);
            account.given_back_at = Some(now);
            let Counting::Bucket { count, .. } = bounds.counting else { continue };
            account.credit(now, (forward as f64 / 1e6 * count as f64).min(bounds.capacity() as f64));
        }
    }

    /// Records that another policy came into force while these requests were being decided.
    pub(super) fn reloaded(&mut self, policy: usize, in_flight: &[RequestId], now: TrueTime) {
        let before = std::mem::replace(&mut self.policy, policy);
        self.leases_changed(before, now);
        if self.plan.has_same_numbers(before, policy) {
            return;
        }
        self.reloads += 1;
        let most: u64 = in_flight.iter().filter_map(|it| self.requests.get(it)).map(|it| it.cost).sum();
        for (bounds, limit) in self.bounds.iter_mut().zip(&self.plan.policies[policy]) {
            *bounds = bounds.or(limit.counting);
        }
        for ((limit, _), account) in &mut self.accounts {
            let bounds = self.bounds[*limit];
            account.store.is_high_known = false;
            account.store.is_exact = false;
            account.store.allow(bounds, most);
            account.credit(now, most as f64);
            account.store.cut(bounds);
            for (node, record) in account.nodes.iter_mut().zip(&self.nodes) {
                node.blur(bounds, Share { percent: self.plan.outage.share, nodes: record.max_nodes });
            }
        }
    }

    /// Checks the whole run. `idle`: for each node, its reading and whether it holds nothing that it owes the store.
    pub(super) fn finish(&mut self, idle: &[(u64, bool)]) -> Checked {
        for (node, (_, is_idle)) in self.nodes.iter_mut().zip(idle) {
            node.has_lost = !is_idle;
        }
        self.check_requests()?;
        for ((limit, _), account) in &mut self.accounts {
            let (bounds, name) = (self.bounds[*limit], self.plan.policies[0][*limit].name);
            for (node, (local, is_idle)) in idle.iter().enumerate() {
                let missing = account.nodes[node].missing(bounds, *local);
                if missing > 0.0 && *is_idle && self.reloads == 0 {
                    let text = format!(
                        "limit {name}, node {node}: {missing:.3} units of an outage were not charged"
                    );
                    return violation("conservation", text);
                }
            }
        }
        self.check_stretches()
    }

    fn check_requests(&self) -> Checked {
        for (id, record) in &self.requests {
            let has_crashed = self.nodes[record.node].starts != record.node_start;
            if !record.is_decided && !record.is_cancelled && !has_crashed {
                return violation("degraded and in time", format!("request {id} was never decided"));
            }
            let standing = record.charges.iter().filter(|it| it.status == ChargeState::Applied).count();
            let is_undone = |it: &&Charge| it.status == ChargeState::Undone && it.is_counted;
            let undone = record.charges.iter().filter(is_undone).count();
            let is_charged = record.is_decided && !record.is_degraded && record.is_allowed;
            // Units that were not charged came from leases, or the decision was a violation.
            if is_charged && undone > 0 {
                let text = format!(
                    "request {id} was admitted with {} charges, {undone} of them undone",
                    record.charges.len()
                );
                return violation("all or nothing", text);
            }
            let is_excused = has_crashed
                || record.lost_answers > 0
                || record.undos[0] > record.undos[1]
                // Only a request that is made in parts is undone when its caller leaves.
                || (record.is_cancelled && !record.is_decided && !self.is_made_in_parts(record));
            if !is_charged && standing > 0 && !is_excused {
                let text = format!("request {id} was not admitted by the store, and has {standing} charges");
                return violation(
                    if standing < self.bounds.len() { "all or nothing" } else { "conservation" },
                    text,
                );
            }
            self.check_settlement(*id, record, has_crashed)?;
        }
        Ok(())
    }

    /// Checks that a refund that was promised has been made. Charges may have decayed.
    fn check_settlement(&self, id: RequestId, record: &RequestRecord, has_crashed: bool) -> Checked {
        let is_refund = record.settled.is_some_and(|cost| cost < record.cost);
        // A node without room for a correction counts it as lost.
        let has_lost = self.nodes[record.node].has_lost;
        let is_due =
            is_refund && record.is_settlement_kept && !record.is_degraded && !has_crashed && !has_lost;
        if !is_due || self.store_crashes > 0 || self.reloads > 0 {
            return Ok(());
        }
        for (limit, plan) in self.limits().iter().enumerate() {
            let times = record.applied.get(&(limit as u64)).copied().unwrap_or(0);
            if !matches!(plan.counting, Counting::Slots { .. }) && times != 1 {
                let text =
                    format!("limit {}: the refund of request {id} was applied {times} times", plan.name);
                return violation("conservation", text);
            }
        }
        Ok(())
    }

    fn check_stretches(&mut self) -> Checked {
        for record in self.requests.values().filter(|it| it.is_decided && it.is_allowed && !it.is_degraded) {
            // The charges of a call that was refused were undone: leases covered the request afterwards.
            for charge in record.charges.iter().filter(|it| it.is_counted) {
                if let (Charged::Units(units), Some(account)) =
                    (charge.amount, self.accounts.get_mut(&charge.account))
                {
                    account.stretch.admit(charge.at, units);
                    account.answered.admit(charge.at, units);
                }
            }
            for LocalSpend { limit, units, at } in &record.spends {
                let key = self.keys.get(&(*limit, record.user)).map(|key| (*limit, key.clone()));
                if let Some(account) = key.and_then(|key| self.accounts.get_mut(&key)) {
                    account.stretch.admit(*at, *units);
                    account.answered.admit(*at, *units);
                }
            }
        }
        self.check_windows()?;
        for ((limit, _), account) in &mut self.accounts {
            let bounds = self.bounds[*limit];
            let Counting::Bucket { count, .. } = bounds.counting else { continue };
            let shares =
                self.nodes.iter().map(|it| Share { percent: self.plan.outage.share, nodes: it.min_nodes });
            let (mut burst, mut rate) = (bounds.capacity() as f64, count as f64 / 1e6);
            let name = self.plan.policies[0][*limit].name;
            // Nothing is added for leases, for shares or for clocks of nodes: only the store's clock may run fast.
            let drift = 1.0 + account.store.max_drift_ppm as f64 / 1e6;
            if let Err((at, level)) = account.answered.check(burst, rate * drift) {
                let text = format!(
                    "limit {name}: the store and leases admitted {level:.3} units until {at} µs, {burst} are allowed"
                );
                return violation("bound", text);
            }
            for share in shares {
                burst += share.capacity(bounds) as f64;
                rate += share.rate(bounds);
            }
            // Clocks run up to 0.1 % fast.
            if let Err((at, level)) = account.stretch.check(burst, rate * 1.001) {
                let text = format!(
                    "limit {name}: {level:.3} units were admitted until {at} µs, {burst} are allowed"
                );
                return violation("bound", text);
            }
        }
        Ok(())
    }
}
