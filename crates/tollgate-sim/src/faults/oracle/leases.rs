//! Leases: the units that nodes take in advance, spend, return and lose.
//!
//! An admitted request has each of its units in one place: charged in the store for this request, or taken from a
//! lease of its node that the store charged before, and that has not ended by the clock of the node.

use tollgate::{Adjustment, Amount};

use super::super::clock::TrueTime;
use super::super::plan::Counting;
use super::super::wire::{Body, Origin, Reply, RequestId};
use super::lots::LeaseUsage;
use super::{Charged, Checked, NodeMoment, Oracle, violation};

/// The part of a lease after which a node asks the store again about a key that was short.
const SHORT_PART: u64 = 4;

/// The units of an admitted request that came from leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalSpend {
    pub(super) limit: usize,
    pub(super) units: u64,
    /// The time at which they were taken.
    pub(super) at: TrueTime,
}

/// The units of charges of one key that were undone, because their request was not admitted.
///
/// A lease is charged on top of such a charge, and not on top of the refill of two leases, if the charge is larger.
/// When it is undone, the lease is covered by its own units only, and the bucket gains up to the refill of one lease
/// until it ends. All leases that are held together leave no more than that uncovered, and no more than was undone.
#[derive(Debug, Default)]
pub(super) struct UndoneCharges {
    units: f64,
    credited: f64,
}

impl UndoneCharges {
    /// Adds units. Returns the admissions that they allow beyond the earlier ones, if a bucket gains `max_refill` during a lease.
    pub(super) fn credit(&mut self, units: f64, max_refill: f64) -> f64 {
        self.units += units;
        let before = std::mem::replace(&mut self.credited, self.units.min(max_refill));
        self.credited - before
    }
}

impl Oracle {
    /// Returns the units that a bucket gains during the longest lease.
    pub(super) fn refill_in_lease(&self, limit: usize) -> f64 {
        let leases = self.ttls.iter().map(|ttls| ttls[limit]);
        let Counting::Bucket { count, .. } = self.bounds[limit].counting else { return 0.0 };
        leases.max().unwrap_or(0) as f64 * count as f64 / 1e6
    }

    /// Records a call that a node sends.
    pub(in super::super) fn sent(&mut self, origin: Origin, body: &Body, moment: NodeMoment) {
        match (origin, body) {
            (Origin::Undo(request), body) => self.undoing(request, body),
            (Origin::Request(request), Body::Decide(checks)) => {
                let limits: Vec<_> =
                    checks.iter().map(|check| self.rules.get(&check.rule.id).map(|it| it.0)).collect();
                let Some(record) = self.requests.get_mut(&request) else { return };
                if record.sent.is_none_or(|(now, _)| now != moment.now) {
                    record.sent = Some((moment.now, moment.local));
                    record.requested_units.clear();
                    record.parts = 0;
                }
                record.parts += 1;
                for (check, limit) in checks.iter().zip(limits) {
                    if let (Amount::Exactly(units), Some(limit)) = (check.amount, limit) {
                        *record.requested_units.entry(limit).or_default() += units;
                    }
                }
            }
            (Origin::UndoLease, _) => {}
            // The units are out of their lot from here on.
            (_, Body::Change { rule, key, adjustment: Adjustment::ReturnLease { units, .. }, .. }) => {
                let Some(&(limit, _)) = self.rules.get(&rule.id) else { return };
                let missing =
                    self.account(limit, key).1.lots[moment.node].take((*units).into(), moment.local);
                self.over_returned = self.over_returned.max(missing);
            }
            _ => {}
        }
    }

    /// Records a reply that arrived in time. `sent_at`: the time of the call by the clock of the node.
    pub(in super::super) fn delivered(
        &mut self,
        body: &Body,
        reply: &Reply,
        sent_at: u64,
        NodeMoment { node, local, .. }: NodeMoment,
    ) {
        let (Body::Decide(checks), Reply::Decided(answer)) = (body, reply) else { return };
        let here = self.plan.regions.of_node(node);
        for (check, outcome) in checks.iter().zip(&answer.outcomes) {
            let Some(&(limit, region)) = self.rules.get(&check.rule.id) else { continue };
            let Amount::Lease(request) = check.amount else {
                if !outcome.is_admitted() {
                    self.account(limit, &check.key).1.lots[node].note_short(local);
                }
                continue;
            };
            let units = if answer.admitted { outcome.units() } else { 0 };
            self.leases[node].leased += units;
            self.borrowed += if region == here { 0 } else { units };
            let lots = &mut self.account(limit, &check.key).1.lots[node];
            lots.add(units, sent_at + request.ttl.as_micros(), local);
            if units < request.units.into() && outcome.remaining == 0 && region == here {
                lots.note_short(local);
            }
        }
    }

    /// Checks a decision that a node made without a call.
    pub(in super::super) fn decided_locally(
        &mut self,
        request: RequestId,
        is_admitted: bool,
        moment: NodeMoment,
    ) -> Checked {
        let Some(record) = self.requests.get_mut(&request) else { return Ok(()) };
        if record.is_recalled {
            return Ok(());
        }
        record.local = Some(is_admitted);
        let user = record.user;
        // A paused node looks at a reply after it was delivered.
        if is_admitted || self.nodes[moment.node].has_paused {
            return Ok(());
        }
        // The parts of a request on several shards are answered one after the other.
        let wait = if self.plan.shards > 1 { 2 * self.plan.deadline } else { 0 };
        for limit in 0..self.bounds.len() {
            let span = self.max_lease(limit) / SHORT_PART + 1 + wait;
            let Some(key) = self.keys.get(&(limit, user)).cloned() else { continue };
            if self.max_lease(limit) > 0
                && self.account(limit, &key).1.lots[moment.node].is_short(moment.local, span)
            {
                return Ok(());
            }
        }
        violation(
            "no refusal with room",
            format!("node {} refused request {request} without asking", moment.node),
        )
    }

    /// Returns the longest lease of a limit under the policies so far, in microseconds.
    fn max_lease(&self, limit: usize) -> TrueTime {
        self.ttls[..=self.policy].iter().map(|ttls| ttls[limit]).max().unwrap_or(0)
    }

    /// Checks that each unit of an admitted request was charged for it, or comes from a lease of its node.
    pub(super) fn spend(&mut self, request: RequestId, moment: NodeMoment) -> Checked {
        let Some(record) = self.requests.get_mut(&request) else { return Ok(()) };
        let (user, cost, sent) = (record.user, record.cost, record.sent);
        // A request that one shard refuses gives up its charges on the others, and may then be admitted from leases that
        // arrived meanwhile. It does not wait longer than the deadline for the undo calls, so one may be executed later:
        // a charge is given up from the moment at which the undo call is sent, and leases cover its units.
        record.charges.iter_mut().for_each(|it| it.is_counted = !it.is_undo_sent);
        let may_be_leased: Vec<_> = self.ttls[record.policy].iter().map(|ttl| *ttl > 0).collect();
        let missing: Vec<u64> = (0..self.bounds.len())
            .map(|limit| {
                let charges = record.charges.iter().filter(|it| it.account.0 == limit && it.is_counted);
                let charged: u64 = charges.map(|it| it.amount.units(cost)).sum();
                cost.saturating_sub(charged)
            })
            .collect();
        // Without a call, or after one that was refused, all units were taken at the moment of the decision.
        let is_local = missing.iter().all(|&units| units == cost);
        let (at, local) = sent.filter(|_| !is_local).unwrap_or((moment.now, moment.local));
        for (limit, units) in missing.into_iter().enumerate().filter(|(_, units)| *units > 0) {
            let name = self.limits()[limit].name;
            if !may_be_leased[limit] {
                return violation(
                    "all or nothing",
                    format!(
                        "request {request} was admitted, and limit {name} was not charged for {units} units"
                    ),
                );
            }
            let Some(key) = self.keys.get(&(limit, user)).cloned() else { continue };
            let lots = &mut self.account(limit, &key).1.lots[moment.node];
            let (held, missing) = (lots.held(local), lots.take(units, local));
            if missing > 0 {
                return violation(
                    "conservation",
                    format!(
                        "limit {name}, node {}: request {request} spent {units} leased units of {held}",
                        moment.node
                    ),
                );
            }
            self.leases[moment.node].spent += units;
            self.spent_from_leases += units;
            if let Some(record) = self.requests.get_mut(&request) {
                record.spends.push(LocalSpend { limit, units, at });
            }
        }
        Ok(())
    }

    /// Records a request whose units went back into their lots.
    pub(super) fn taken_in_vain(&mut self, request: RequestId) {
        let Some(record) = self.requests.get(&request) else { return };
        if record.sent.is_none() {
            return;
        }
        let taken: u64 = (0..self.bounds.len())
            .map(|limit| record.cost.saturating_sub(record.requested_units.get(&limit).copied().unwrap_or(0)))
            .sum();
        // A batch may be planned twice.
        self.leases[record.node].taken_in_vain += 2 * taken;
    }

    /// Returns the usage of the leased units of a node since it started.
    pub(in super::super) fn lease_usage(&self, node: usize) -> LeaseUsage {
        self.leases[node]
    }

    /// Records that the clock of a node stands still: it may spend its leased units once.
    pub(in super::super) fn node_frozen(&mut self, NodeMoment { node, local, now }: NodeMoment) {
        self.nodes[node].has_paused = true;
        for account in self.accounts.values_mut() {
            account.credit(now, account.lots[node].held(local) as f64);
        }
    }

    /// Records that a node was paused.
    pub(in super::super) fn node_paused(&mut self, node: usize) {
        self.nodes[node].has_paused = true;
    }

    /// Records that the leases changed, and nothing else: leases that are shorter than those held leave a part of them
    /// uncovered.
    pub(super) fn leases_changed(&mut self, before: usize, now: TrueTime) {
        for ((limit, _), account) in &mut self.accounts {
            let [old, new] = [before, self.policy].map(|policy| self.ttls[policy][*limit]);
            if let (Counting::Bucket { count, .. }, true) = (self.bounds[*limit].counting, new > 0) {
                account.credit(now, old.saturating_sub(new) as f64 * count as f64 / 1e6);
            }
        }
    }

    /// Checks that no window admitted more than its limit.
    pub(super) fn check_windows(&self) -> Checked {
        for ((limit, _), account) in &self.accounts {
            let bounds = self.bounds[*limit];
            let Counting::Window { period, .. } = bounds.counting else { continue };
            // The windows of a clock that was set are not those of true time.
            if !account.stores.iter().all(|store| store.is_window_known) {
                continue;
            }
            if let Err((window, units)) = account.answered.check_windows(period, bounds.capacity() as f64) {
                let name = self.limits()[*limit].name;
                return violation(
                    "bound",
                    format!("limit {name}: {units} units were admitted in window {window}"),
                );
            }
        }
        Ok(())
    }
}

impl Charged {
    /// Returns the units of a request of this cost that are charged.
    const fn units(self, cost: u64) -> u64 {
        match self {
            Self::Units(units) => units,
            Self::Slot(_) => cost,
        }
    }
}
