//! The invariants that are checked at the end of a run.

use super::super::plan::Counting;
use super::super::wire::RequestId;
use super::account::Charged;
use super::leases::LocalSpend;
use super::share::Share;
use super::{Charge, ChargeState, Checked, Oracle, RequestRecord, violation};

impl Oracle {
    /// Checks the whole run. `idle`: for each node, its reading and whether it holds nothing that it owes the store.
    pub(in super::super) fn finish(&mut self, idle: &[(u64, bool)]) -> Checked {
        for (node, (_, is_idle)) in self.nodes.iter_mut().zip(idle) {
            node.has_lost = !is_idle;
        }
        self.check_requests()?;
        for ((limit, _), account) in &mut self.accounts {
            let name = self.plan.policies[0][*limit].name;
            for (node, (local, is_idle)) in idle.iter().enumerate() {
                let bounds = self.shares[*limit][self.plan.regions.of_node(node)];
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
            // The charges of a request that was admitted from leases are undone as well, if it was charged at first.
            let is_surplus = |it: &&Charge| it.status == ChargeState::Applied && !it.is_counted;
            let surplus = record.charges.iter().filter(is_surplus).count();
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
            if surplus > 0 && !is_excused {
                let text = format!("request {id} was not admitted by the store, and has {surplus} charges");
                return violation(
                    if surplus < self.bounds.len() { "all or nothing" } else { "conservation" },
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
            let shares = self.nodes.iter().enumerate().map(|(node, it)| {
                let bounds = self.shares[*limit][self.plan.regions.of_node(node)];
                (Share { percent: self.plan.outage.share, nodes: it.min_nodes }, bounds)
            });
            let (mut burst, mut rate) = (bounds.capacity() as f64, count as f64 / 1e6);
            let name = self.plan.policies[0][*limit].name;
            // Nothing is added for leases, for shares or for clocks of nodes: only the store's clock may run fast.
            let drift = account.stores.iter().map(|it| it.max_drift_ppm).max().unwrap_or(0);
            let drift = 1.0 + drift as f64 / 1e6;
            if let Err((at, level)) = account.answered.check(burst, rate * drift) {
                let text = format!(
                    "limit {name}: the store and leases admitted {level:.3} units until {at} µs, {burst} are allowed"
                );
                return violation("bound", text);
            }
            for (share, bounds) in shares {
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
