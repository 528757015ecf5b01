//! The faults and reloads that change the permitted behavior of the fleet.

use tollgate::store::ADJUSTMENT_ID_LIFETIME;
use tollgate::{Adjustment, Amount};

use super::super::clock::TrueTime;
use super::super::plan::Counting;
use super::super::shard::JournalEntry;
use super::super::wire::{Body, Reply, RequestId};
use super::account::Charged;
use super::lots::{LeaseUsage, LotBook};
use super::share::{NodeAccount, Share};
use super::{Charge, ChargeState, Oracle};

impl Oracle {
    /// Records the start of a node: its memory is empty.
    pub(in super::super) fn node_started(&mut self, node: usize, now: TrueTime) {
        let share = Share { percent: self.plan.outage.share, nodes: self.nodes[node].min_nodes };
        let record = &mut self.nodes[node];
        record.starts += 1;
        (record.first_failure, record.lost_entries) = (None, 0);
        self.leases[node] = LeaseUsage::default();
        for ((limit, _), account) in &mut self.accounts {
            account.nodes[node] = NodeAccount::default();
            account.lots[node] = LotBook::default();
            let bounds = self.shares[*limit][self.plan.regions.of_node(node)];
            account.stretch.credit(now, share.capacity(bounds) as f64);
        }
    }

    /// Records the number of nodes that a node has learned.
    pub(in super::super) fn note_node_count(&mut self, node: usize, nodes: usize) {
        let record = &mut self.nodes[node];
        record.min_nodes = record.min_nodes.min(nodes);
        record.max_nodes = record.max_nodes.max(nodes);
    }

    /// Records that a shard lost everything.
    pub(in super::super) fn store_emptied(&mut self, shard: usize, now: TrueTime) {
        self.store_crashes += 1;
        self.executed.clear();
        let (region, place) = self.place(shard);
        for ((limit, _), account) in self.accounts.iter_mut().filter(|(_, it)| it.shard == place) {
            account.stores[region].forget_all();
            account.given_back_at = Some(now);
            account.credit(now, self.shares[*limit][region].capacity() as f64);
        }
        self.forget_charges(|charge| charge.shard == shard);
    }

    /// Records that a shard lost these calls.
    pub(in super::super) fn store_failed_over(
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
                let Some((_, region, bounds, account)) = self.account_of(check.rule.id, &check.key) else {
                    continue;
                };
                let amount = match check.amount {
                    Amount::Exactly(units) | Amount::UpTo(units) => Charged::Units(units),
                    Amount::Slot(owner) => Charged::Slot(owner.0),
                    Amount::Lease(_) => Charged::Units(outcome.units()),
                };
                account.stores[region].forget(bounds, amount);
                if let Charged::Units(units) = amount {
                    account.credit(now, units as f64);
                }
            }
        }
        for entry in forgotten {
            let Body::Change { rule, key, adjustment, .. } = &entry.body else { continue };
            let Some((_, region, bounds, account)) = self.account_of(rule.id, key) else { continue };
            let store = &mut account.stores[region];
            match adjustment {
                // Usage from a ledger was charged, and is forgotten as well.
                Adjustment::Charge { units, .. } => store.forget(bounds, Charged::Units(*units)),
                // The lease ends as if it had not been renewed.
                Adjustment::Renew { owner } => store.forget(bounds, Charged::Slot(owner.0)),
                _ => {}
            }
        }
        let (region, place) = self.place(shard);
        for account in self.accounts.values_mut().filter(|it| it.shard == place) {
            account.stores[region].is_high_known = false;
            account.stores[region].is_exact = false;
            account.given_back_at = Some(now);
        }
        self.forget_charges(|charge| charge.at > heard && charge.shard == shard);
    }

    /// Returns the region of a shard, and its place among the shards there.
    const fn place(&self, shard: usize) -> (usize, usize) {
        (self.plan.region_of_shard(shard), shard % self.plan.shards)
    }

    fn forget_charges(&mut self, is_meant: impl Fn(&Charge) -> bool) {
        for record in self.requests.values_mut() {
            for charge in record.charges.iter_mut().filter(|charge| is_meant(charge)) {
                charge.status = ChargeState::Forgotten;
            }
        }
    }

    /// Records that the clock of a shard was set.
    pub(in super::super) fn store_stepped(&mut self, shard: usize, by: i64, now: TrueTime) {
        let forward = u64::try_from(by).unwrap_or(0);
        if forward >= ADJUSTMENT_ID_LIFETIME.as_micros() {
            // The store no longer recognizes the ids of earlier adjustments.
            self.store_crashes += 1;
            self.executed.clear();
        }
        let (region, place) = self.place(shard);
        for ((limit, _), account) in self.accounts.iter_mut().filter(|(_, it)| it.shard == place) {
            let bounds = self.shares[*limit][region];
            account.stores[region].gain(bounds, forward);
            account.given_back_at = Some(now);
            let Counting::Bucket { count, .. } = bounds.counting else { continue };
            account.credit(now, (forward as f64 / 1e6 * count as f64).min(bounds.capacity() as f64));
        }
    }

    /// Records that another policy came into force while these requests were being decided.
    pub(in super::super) fn reloaded(&mut self, policy: usize, in_flight: &[RequestId], now: TrueTime) {
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
        for (bounds, limit) in self.shares.iter_mut().zip(&self.plan.policies[policy]) {
            for (bounds, share) in bounds.iter_mut().zip(super::shares(limit, &self.plan)) {
                *bounds = bounds.or(share);
            }
        }
        for ((limit, _), account) in &mut self.accounts {
            let shares = &self.shares[*limit];
            account.credit(now, most as f64);
            for (store, bounds) in account.stores.iter_mut().zip(shares) {
                store.is_high_known = false;
                store.is_exact = false;
                store.allow(*bounds, most);
                store.cut(*bounds);
            }
            for (number, (node, record)) in account.nodes.iter_mut().zip(&self.nodes).enumerate() {
                let bounds = shares[self.plan.regions.of_node(number)];
                node.blur(bounds, Share { percent: self.plan.outage.share, nodes: record.max_nodes });
            }
        }
    }
}
