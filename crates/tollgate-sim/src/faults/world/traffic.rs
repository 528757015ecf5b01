//! The clients: requests, settlements, slots that are renewed and released, and callers that leave.

use std::sync::Arc;

use tollgate::{Call, DecisionId};

use super::super::node::{Decided, Report};
use super::super::oracle::{Checked, NodeMoment, decision_id};
use super::super::plan::Counting;
use super::super::wire::{Command, Origin, RequestId};
use super::{AfterRequest, Event, LeaseTrialStep, OpenRequest, World, user_name};

/// The most requests that are open at a time, besides those with a steady rate.
const MAX_OPEN_REQUESTS: usize = 1_000;

impl World {
    /// A client sends a request.
    pub(super) fn send_request(&mut self) {
        let (traffic, rng) = (self.plan.traffic, &mut self.traffic_rng);
        let next = self.now + rng.u64(1..2 * traffic.gap);
        let user = rng.u64(..self.plan.users);
        let (cost, chance, pick) = (rng.u64(1..=traffic.max_cost), rng.u64(..100), rng.usize(..64));
        let leave_after = rng.u64(1..self.plan.deadline);
        if next < self.plan.traffic_until {
            self.schedule(next, Event::Request);
        }
        let first = match traffic.stay {
            0 => pick,
            stay => usize::try_from(user + self.now / stay).unwrap_or(0),
        };
        let count = self.nodes.len();
        let mut nodes = (0..count).map(|more| (first + more) % count);
        let Some(node) = nodes.find(|&node| self.nodes[node].is_up && self.nodes[node].is_serving) else {
            return;
        };
        self.send_request_to(node, user, cost);
        if chance < traffic.leaving {
            let request = self.next_request;
            self.schedule(self.now + leave_after, Event::After(request, AfterRequest::Leave));
        }
    }

    /// Clients of one user send many requests, which makes its keys hot. Some time later, within a lease, other nodes
    /// spend all remaining units, and then the first node spends its leased units.
    pub(super) fn begin_lease_trial(&mut self) {
        let Some(lease_trials) = self.plan.lease_trials else { return };
        let rng = &mut self.lease_trial_rng;
        let next = self.now + rng.u64(1..2 * lease_trials.gap);
        let user = rng.u64(..lease_trials.users.min(self.plan.users));
        let [node, other] = [(), ()].map(|()| rng.usize(..self.nodes.len()));
        // A few requests are enough to make a key hot, and a bucket regains few units soon.
        let most = if rng.bool() { lease_trials.max_requests } else { 10 };
        let (left, spacing) = (rng.u64(1..=most), rng.u64(..=lease_trials.max_spacing));
        // Within the lease, or after the bucket has regained it.
        let lease = lease_trials.max_lease;
        let pause = if rng.bool() { rng.u64(..=lease) } else { rng.u64(2 * lease..=6 * lease) };
        let later = rng.u64(..=6 * lease);
        let is_followed = rng.u8(..3) > 0;
        if next < self.plan.traffic_until {
            self.schedule(next, Event::LeaseTrial);
        }
        let hot = LeaseTrialStep { user, node, left, cost: 1, part: 0, spacing };
        self.continue_lease_trial(hot);
        if is_followed {
            let rest = LeaseTrialStep {
                user,
                node: other,
                left: 24,
                cost: lease_trials.capacity,
                part: 3,
                spacing: 0,
            };
            self.schedule(self.now + pause, Event::LeaseTrialRequest(rest));
            let cost = (lease_trials.capacity / 128).max(1);
            let held = LeaseTrialStep { user, node, left: 40, cost, part: 0, spacing: 0 };
            self.schedule(self.now + pause + 2_000, Event::LeaseTrialRequest(held));
            // Units that were returned meanwhile are spent, too.
            self.schedule(self.now + pause + later, Event::LeaseTrialRequest(rest));
        }
    }

    pub(super) fn continue_lease_trial(&mut self, step: LeaseTrialStep) {
        let LeaseTrialStep { user, node, left, cost, part, spacing } = step;
        let its = &self.nodes[node];
        // The requests for a paused node wait for it: as many as its callers would send.
        let is_full = self.open.len() > MAX_OPEN_REQUESTS;
        if left == 0 || !its.is_up || !its.is_serving || is_full || self.now >= self.plan.traffic_until {
            return;
        }
        self.send_request_to(node, user, cost);
        let cost = (cost - cost.checked_div(part).unwrap_or(0)).max(1);
        self.schedule(
            self.now + spacing,
            Event::LeaseTrialRequest(LeaseTrialStep { left: left - 1, cost, ..step }),
        );
    }

    fn send_request_to(&mut self, node: usize, user: u64, cost: u64) {
        self.next_request += 1;
        let request = self.next_request;
        let (its, wire) = (&self.nodes[node], Arc::clone(&self.wire));
        let (limiter, starts, pauses) = (its.limiter.clone(), its.starts, its.pauses);
        self.trace.note(self.now, format_args!("node {node}: request {request} of user {user} costs {cost}"));
        let moment = self.moment(node);
        self.oracle.start(request, user, cost, moment, pauses);
        let deciding = async move {
            let name = user_name(user);
            let call = Call::new("GET", "/").user(&name).cost(cost);
            let decision = limiter.decide(&call).await;
            let receipt = decision.receipt().map(|it| Arc::new(it.with_id(DecisionId(decision_id(request)))));
            let (is_allowed, is_degraded) = (decision.is_allowed(), decision.is_degraded());
            let decided = Decided { request, is_allowed, is_degraded, receipt };
            wire.push(Command::Report { node, report: Report::Decided(Box::new(decided)) });
        };
        let task = Some(self.spawn(node, Origin::Request(request), Box::pin(deciding)));
        self.open.insert(request, OpenRequest { node, starts, receipt: None, task, ends: 0 });
    }

    pub(super) fn observe_decision(&mut self, node: usize, decided: Decided, moment: NodeMoment) -> Checked {
        let Decided { request, is_allowed, is_degraded, receipt } = decided;
        let verdict = if is_allowed { "admitted" } else { "refused" };
        let how = if is_degraded { " without the store" } else { "" };
        self.trace.note(self.now, format_args!("node {node}: request {request} {verdict}{how}"));
        let its = &self.nodes[node];
        let has_calls = self.calls.values().any(|call| call.node == node && call.reply.is_some());
        let facts = (its.pauses, has_calls, its.limiter.health().lost_entries);
        self.oracle.decided(request, (is_allowed, is_degraded), moment, facts)?;
        let rng = &mut self.traffic_rng;
        let (hold, chance) = (rng.u64(1..=self.plan.traffic.hold), rng.u64(..100));
        let settle_after = rng.u64(1..=self.plan.traffic.settle_delay);
        let Some(open) = self.open.get_mut(&request) else { return Ok(()) };
        open.task = None;
        if receipt.is_none() {
            self.open.remove(&request);
            return Ok(());
        }
        let has_slots =
            self.plan.policies[0].iter().any(|limit| matches!(limit.counting, Counting::Slots { .. }));
        (open.receipt, open.ends) = (receipt, self.now + if has_slots { hold } else { 0 });
        let is_settled = chance < self.plan.traffic.settled;
        if is_settled {
            self.schedule(self.now + settle_after, Event::After(request, AfterRequest::Settle));
        }
        if has_slots {
            self.schedule(self.now + hold, Event::After(request, AfterRequest::Release));
            self.schedule_renewal(request);
        } else if !is_settled {
            self.open.remove(&request);
        }
        Ok(())
    }

    /// Renews a slot after a third of its lease, if the request runs for longer.
    fn schedule_renewal(&mut self, request: RequestId) {
        let ttl = self.plan.policies[0].iter().find_map(|limit| match limit.counting {
            Counting::Slots { ttl, .. } => Some(ttl * 1_000_000),
            _ => None,
        });
        let at = self.now + ttl.unwrap_or(1_000_000) / 3;
        if self.open.get(&request).is_some_and(|open| at < open.ends) {
            self.schedule(at, Event::After(request, AfterRequest::Renew));
        }
    }

    /// A client acts after its request.
    pub(super) fn follow_up(&mut self, request: RequestId, what: AfterRequest) {
        let Some(open) = self.open.get(&request) else { return };
        let (node, task) = (open.node, open.task);
        if self.nodes[node].starts != open.starts || !self.nodes[node].is_up {
            self.open.remove(&request);
            return;
        }
        if what == AfterRequest::Leave {
            if let Some(task) = task.filter(|_| self.nodes[node].is_running()) {
                self.trace
                    .note(self.now, format_args!("node {node}: the client of request {request} leaves"));
                self.oracle.cancelled(request);
                self.nodes[node].clock.sync(self.now);
                self.wire.set_current(Some(Origin::Request(request)));
                drop(self.tasks.remove(&task));
                self.wire.set_current(None);
                self.open.remove(&request);
            }
            return;
        }
        let Some(receipt) = open.receipt.clone() else { return };
        let (limiter, wire) = (self.nodes[node].limiter.clone(), Arc::clone(&self.wire));
        match what {
            AfterRequest::Leave => {}
            AfterRequest::Settle => {
                let cost = self.traffic_rng.u64(..=2 * self.plan.traffic.max_cost);
                self.trace
                    .note(self.now, format_args!("node {node}: request {request} is settled at {cost}"));
                let settling = async move {
                    wire.push(Command::Report { node, report: Report::Settling { request, cost } });
                    let is_kept = limiter.settle_receipt(&receipt, cost).await.is_ok();
                    wire.push(Command::Report { node, report: Report::Settled { request, is_kept } });
                };
                self.spawn(node, Origin::After(request), Box::pin(settling));
            }
            AfterRequest::Renew => {
                let renewing = async move { drop(limiter.renew_receipt(&receipt).await) };
                self.spawn(node, Origin::After(request), Box::pin(renewing));
                self.schedule_renewal(request);
            }
            AfterRequest::Release => {
                self.oracle.releasing(request);
                let releasing = async move { drop(limiter.release_receipt(&receipt).await) };
                self.spawn(node, Origin::After(request), Box::pin(releasing));
            }
        }
    }
}
