//! The injection of faults.

use tollgate::policy::Key;

use super::super::clock::SimClock;
use super::super::fault::{FaultKind, Ways};
use super::super::oracle::{Checked, Violation};
use super::super::wire::Origin;
use super::{Event, World, user_name};

impl World {
    pub(super) fn begin_fault(&mut self, number: usize) -> Checked {
        let fault = self.plan.faults[number].clone();
        self.trace.note(self.now, format_args!("fault begins: {fault}"));
        self.schedule(fault.until, Event::FaultEnds(number));
        match fault.kind {
            FaultKind::Cut { node, shard, ways, is_held } => {
                self.links[node][shard].cut(number, ways, is_held);
            }
            FaultKind::Flapping { .. } => self.flap(number, true),
            FaultKind::Slow { node, shard, max_delay } => {
                self.links[node][shard].slow_down(number, max_delay);
            }
            FaultKind::AnswersLost { node, shard, per_mille } => {
                self.links[node][shard].lose_answers(number, per_mille);
            }
            FaultKind::Crash { shard } | FaultKind::Failover { shard, .. } => {
                if self.shards[shard].is_up {
                    self.shards[shard].is_up = false;
                    self.break_connections(shard);
                }
            }
            FaultKind::StorePaused { shard } => self.shards[shard].paused_by.push(number),
            FaultKind::StoreStep { shard, by } => {
                self.shards[shard].clock.step(by, self.now);
                self.oracle.store_stepped(shard, by, self.now);
            }
            FaultKind::StoreDrift { shard, ppm } => self.shards[shard].clock.set_rate(ppm, self.now),
            FaultKind::NodeCrash { node } => self.stop_node(node),
            FaultKind::NodePaused { node } => self.pause_node(node, number),
            FaultKind::NodeFrozen { node } => {
                self.oracle.node_frozen(self.moment(node));
                self.pause_node(node, number);
                self.nodes[node].clock.set_frozen(true, self.now);
            }
            FaultKind::NodeRate { node, ppm } => self.nodes[node].clock.set_rate(ppm, self.now),
            FaultKind::SlowReturns { node, max_delay } => self.nodes[node].returns_delay = max_delay,
            FaultKind::NodeWallStep { node, by } => self.nodes[node].clock.step_wall(by),
            FaultKind::Drain { node } => {
                self.nodes[node].is_serving = false;
                self.drain_leases(node);
            }
            FaultKind::WrongNodes { node, nodes } => {
                self.nodes[node].store.set_nodes(nodes);
                self.oracle.note_node_count(node, nodes);
            }
            FaultKind::Reload { policy } => return self.reload(policy),
            FaultKind::Grant { node, user, limit, units } => self.operate(node, user, limit, Some(units)),
            FaultKind::Reset { node, user, limit } => self.operate(node, user, limit, None),
            FaultKind::RegionCut { region, is_held } => {
                for (node, shard) in self.links_between(region) {
                    self.links[node][shard].cut(number, Ways::Both, is_held);
                }
            }
            FaultKind::RegionSlow { region, max_delay } => {
                for (node, shard) in self.links_between(region) {
                    self.links[node][shard].slow_down(number, max_delay);
                }
            }
        }
        Ok(())
    }

    pub(super) fn end_fault(&mut self, number: usize) -> Checked {
        let fault = self.plan.faults[number].clone();
        self.trace.note(self.now, format_args!("fault ends: {fault}"));
        match fault.kind {
            FaultKind::Cut { node, shard, .. }
            | FaultKind::Flapping { node, shard, .. }
            | FaultKind::Slow { node, shard, .. }
            | FaultKind::AnswersLost { node, shard, .. } => {
                let held = self.links[node][shard].mend(number);
                self.release_held(held);
            }
            FaultKind::Crash { shard } => {
                if !self.shards[shard].is_up {
                    self.shards[shard].is_up = true;
                    self.shards[shard].empty();
                    self.oracle.store_emptied(shard, self.now);
                }
            }
            FaultKind::Failover { shard, lag } => {
                if !self.shards[shard].is_up {
                    self.shards[shard].is_up = true;
                    let heard = fault.from.saturating_sub(lag);
                    let forgotten = self.shards[shard].fail_over(heard);
                    self.oracle.store_failed_over(shard, &forgotten, heard, self.now);
                }
            }
            FaultKind::StorePaused { shard } => {
                let paused = &mut self.shards[shard];
                paused.paused_by.retain(|it| *it != number);
                if paused.paused_by.is_empty() {
                    for call in std::mem::take(&mut paused.waiting) {
                        self.schedule(self.now, Event::Arrive(call));
                    }
                }
            }
            FaultKind::StoreDrift { shard, .. } => self.shards[shard].clock.set_rate(0, self.now),
            FaultKind::NodeCrash { node } => return self.start_node(node),
            FaultKind::NodePaused { node } => self.resume_node(node, number),
            FaultKind::NodeFrozen { node } => {
                self.nodes[node].clock.set_frozen(false, self.now);
                self.resume_node(node, number);
            }
            FaultKind::NodeRate { node, .. } => self.nodes[node].clock.set_rate(0, self.now),
            FaultKind::SlowReturns { node, .. } => self.nodes[node].returns_delay = 0,
            FaultKind::Drain { node } => {
                self.check_drained(node)?;
                self.stop_node(node);
                return self.start_node(node);
            }
            FaultKind::WrongNodes { node, .. } => {
                let regions = &self.plan.regions;
                let nodes = regions.nodes_in(regions.of_node(node), self.plan.nodes);
                self.nodes[node].store.set_nodes(nodes);
            }
            FaultKind::RegionCut { region, .. } | FaultKind::RegionSlow { region, .. } => {
                for (node, shard) in self.links_between(region) {
                    let held = self.links[node][shard].mend(number);
                    self.release_held(held);
                }
            }
            FaultKind::StoreStep { .. }
            | FaultKind::NodeWallStep { .. }
            | FaultKind::Reload { .. }
            | FaultKind::Grant { .. }
            | FaultKind::Reset { .. } => {}
        }
        Ok(())
    }

    /// Returns the links between a region and the others.
    fn links_between(&self, region: usize) -> Vec<(usize, usize)> {
        let plan = &self.plan;
        let pairs = (0..plan.nodes).flat_map(|node| (0..plan.all_shards()).map(move |shard| (node, shard)));
        let is_meant = |&(node, shard): &(usize, usize)| {
            plan.is_far(node, shard)
                && (plan.regions.of_node(node) == region || plan.region_of_shard(shard) == region)
        };
        pairs.filter(is_meant).collect()
    }

    /// Cuts or mends a flapping link.
    pub(super) fn flap(&mut self, number: usize, is_cut: bool) {
        let fault = &self.plan.faults[number];
        let FaultKind::Flapping { node, shard, period } = fault.kind else { return };
        if self.now >= fault.until {
            return;
        }
        if is_cut {
            self.links[node][shard].cut(number, Ways::Both, true);
        } else {
            let held = self.links[node][shard].mend(number);
            self.release_held(held);
        }
        self.schedule(self.now + period, Event::Flap(number, !is_cut));
    }

    fn pause_node(&mut self, node: usize, fault: usize) {
        self.nodes[node].paused_by.push(fault);
        self.nodes[node].pauses += 1;
        self.oracle.node_paused(node);
    }

    fn resume_node(&mut self, node: usize, fault: usize) {
        let its = &mut self.nodes[node];
        its.paused_by.retain(|it| *it != fault);
        its.pauses += 1;
        if its.is_running() {
            for task in std::mem::take(&mut its.waiting) {
                self.ready.push(task);
            }
        }
    }

    /// A node dies: its tasks and its memory are gone.
    fn stop_node(&mut self, node: usize) {
        if !self.nodes[node].is_up {
            return;
        }
        self.nodes[node].is_up = false;
        self.nodes[node].starts += 1;
        let mut gone: Vec<_> =
            self.tasks.iter().filter(|(_, task)| task.node == node).map(|(id, _)| *id).collect();
        gone.sort_unstable();
        for task in gone {
            drop(self.tasks.remove(&task));
        }
        // A dead process sends nothing.
        drop(self.wire.take());
        self.open.retain(|_, open| open.node != node);
    }

    fn start_node(&mut self, node: usize) -> Checked {
        if self.nodes[node].is_up {
            return Ok(());
        }
        let (starts, paused_by) = (self.nodes[node].starts, std::mem::take(&mut self.nodes[node].paused_by));
        let started = self.create_node(node, SimClock::new(self.now), starts)?;
        self.nodes[node] = started;
        self.nodes[node].paused_by = paused_by;
        self.oracle.node_started(node, self.now);
        self.begin_background_work(node);
        Ok(())
    }

    fn reload(&mut self, policy: usize) -> Checked {
        for node in 0..self.nodes.len() {
            let text = self.plan.policy_text(policy, self.plan.regions.of_node(node));
            let parsed = tollgate::Policy::parse(&text);
            let parsed = parsed.map_err(|it| Violation { invariant: "plan", text: it.to_string() })?;
            self.nodes[node].limiter = self.nodes[node].limiter.with_policy(parsed);
        }
        self.policies.push(policy);
        // Requests that have begun are decided by the policy of that time.
        let in_flight = self.open.iter().filter(|(_, open)| open.task.is_some());
        let in_flight: Vec<_> = in_flight.map(|(request, _)| *request).collect();
        self.oracle.reloaded(policy, &in_flight, self.now);
        Ok(())
    }

    /// An operator grants units to a user, or resets it.
    fn operate(&mut self, node: usize, user: u64, limit: usize, units: Option<u64>) {
        if !self.nodes[node].is_up {
            return;
        }
        let plan = self.plan.policies[0][limit].clone();
        let limiter = self.nodes[node].limiter.clone();
        let operating = async move {
            let name = user_name(user);
            let Some(found) = limiter.policy().limit(plan.name) else { return };
            let values: &[&str] = if plan.is_global { &[] } else { &[&name] };
            let key: Option<Key> = limiter.policy().key(found, values);
            let (Some(key), Some(rule)) = (key, found.rules().first()) else { return };
            match units {
                // A grant ends leases of slots whose requests still run, by the decision of an operator.
                Some(_) if matches!(rule.quota, tollgate::Quota::Concurrency(_)) => {}
                Some(units) => drop(limiter.grant(plan.name, rule, &key, units).await),
                None => drop(limiter.reset(rule, &key).await),
            }
        };
        self.spawn(node, Origin::Operator, Box::pin(operating));
    }
}
