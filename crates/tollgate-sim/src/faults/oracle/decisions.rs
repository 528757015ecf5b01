//! The decisions of the nodes, and the adjustments that they send after an outage.

use tollgate::store::AdjustmentId;
use tollgate::{Adjustment, Rule};

use super::super::clock::TrueTime;
use super::super::fault::FaultKind;
use super::super::plan::{Counting, LimitPlan, OnOutage};
use super::super::wire::{Failure, OwnedCheck, RequestId};
use super::share::Share;
use super::{Checked, NodeMoment, Oracle, REQUEST_BIT, violation};

impl Oracle {
    /// Records that the store answered a request, or failed.
    pub(in super::super) fn answered(
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
    pub(in super::super) fn store_answers(&mut self, node: usize) {
        self.nodes[node].first_failure = None;
    }

    /// Records whether a call of a node was answered.
    pub(in super::super) fn observe_call(&mut self, is_ok: bool, moment: NodeMoment) {
        let node = &mut self.nodes[moment.node];
        if is_ok {
            (node.last_answer, node.first_failure) = (Some(moment.now), None);
        } else {
            node.first_failure = node.first_failure.or(Some(moment.local));
        }
    }

    /// Checks a refusal of the deny cache. `refuses`: the store would refuse as well.
    pub(in super::super) fn recalled(
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
            if let Some(&(limit, _)) = self.rules.get(&check.rule.id) {
                is_excused |= self.account(limit, &check.key).1.given_back_at.is_some_and(is_recent);
            }
        }
        if refuses || is_excused {
            return Ok(());
        }
        violation("no refusal with room", "the deny cache refused a request that the store would admit")
    }

    /// Checks a decision. `lost_entries`: the charges that the node counts as lost so far.
    pub(in super::super) fn decided(
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
        if is_degraded && self.has_own_store(moment) {
            return violation(
                "degraded and in time",
                format!(
                    "request {request} was decided without the store, which no fault keeps from the node"
                ),
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

    /// Returns whether a node has the store of its region: no fault has kept it from the node for two seconds, and the
    /// store has answered since. Faults between regions do not count: a region that is cut off has its share.
    fn has_own_store(&self, NodeMoment { node, now, .. }: NodeMoment) -> bool {
        let faults = self.plan.faults.iter().filter(|it| it.from <= now);
        let ended =
            faults.filter(|it| it.kind.parts_from_own_store(node, &self.plan)).map(|it| it.until).max();
        let last_answer = self.nodes[node].last_answer;
        ended.is_none_or(|at| at + 2_000_000 <= now && last_answer.is_some_and(|answer| answer >= at))
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
            let bounds = self.share_of(limit, node);
            let (_, account) = self.account(limit, &key);
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
    pub(in super::super) fn settling(&mut self, request: RequestId, cost: u64, local: u64) {
        let Some(record) = self.requests.get_mut(&request) else { return };
        record.settled = Some(cost);
        let (node, user, before, is_degraded) = (record.node, record.user, record.cost, record.is_degraded);
        if !is_degraded {
            return;
        }
        for limit in 0..self.bounds.len() {
            let Some(key) = self.keys.get(&(limit, user)).cloned() else { continue };
            let bounds = self.share_of(limit, node);
            let account = &mut self.account(limit, &key).1.nodes[node];
            account.correct(bounds, cost.saturating_sub(before), before.saturating_sub(cost), local);
            account.return_units(before.saturating_sub(cost));
        }
    }

    /// Records that a settlement has ended. `is_kept`: it was made or deferred.
    pub(in super::super) fn settled(&mut self, request: RequestId, is_kept: bool) {
        if let Some(record) = self.requests.get_mut(&request) {
            record.is_settlement_kept = is_kept;
        }
    }

    /// Records that a request releases its slots.
    pub(in super::super) fn releasing(&mut self, request: RequestId) {
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
    pub(in super::super) fn replaying(
        &mut self,
        (rule, key): (&Rule, &[u8]),
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
        moment: NodeMoment,
    ) -> Checked {
        let (Some(&(limit, _)), Some(AdjustmentId(id))) = (self.rules.get(&rule.id), id) else {
            return Ok(());
        };
        let Adjustment::Charge { units, .. } = adjustment else { return Ok(()) };
        if !self.is_ledger(adjustment, id) {
            return Ok(());
        }
        self.replays.insert(id);
        let (name, bounds) = (self.limits()[limit].name, self.share_of(limit, moment.node));
        let (_, account) = self.account(limit, key);
        match account.nodes[moment.node].take(bounds, units, id, moment.local) {
            Ok(()) => Ok(()),
            Err(text) => violation("conservation", format!("limit {name}, node {}: {text}", moment.node)),
        }
    }

    /// Checks the reply to an adjustment after an outage.
    pub(in super::super) fn replayed(
        &mut self,
        (rule, key): (&Rule, &[u8]),
        id: Option<AdjustmentId>,
        failure: Option<Failure>,
        moment: NodeMoment,
    ) -> Checked {
        self.observe_call(failure.is_none(), moment);
        let (Some(&(limit, _)), Some(AdjustmentId(id))) = (self.rules.get(&rule.id), id) else {
            return Ok(());
        };
        match failure {
            None if !self.executed.contains_key(&id) && self.store_crashes == 0 => {
                let name = self.limits()[limit].name;
                return violation(
                    "conservation",
                    format!("limit {name}: an acknowledged adjustment was not applied"),
                );
            }
            Some(Failure::Refused | Failure::TimedOut) => {
                let bounds = self.share_of(limit, moment.node);
                let (_, account) = self.account(limit, key);
                account.nodes[moment.node].put_back(bounds, id, moment.local);
            }
            None | Some(Failure::Failed) => self.account(limit, key).1.nodes[moment.node].conclude(id),
        }
        Ok(())
    }
}
