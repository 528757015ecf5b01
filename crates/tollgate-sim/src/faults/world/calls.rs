//! The calls between nodes and shards: sending, executing, replying, deadlines.

use super::super::clock::TrueTime;
use super::super::defect::Defect;
use super::super::fault::FaultKind;
use super::super::link::{Direction, Transit};
use super::super::oracle::Checked;
use super::super::regions::FAR_DEADLINE;
use super::super::wire::{Body, CallId, Failure, Origin, Reply};
use super::{Call, Event, World};
use crate::executor::Sender;

/// The time that a node takes to learn that a shard is down, in microseconds.
const REFUSAL_DELAY: TrueTime = 300;

impl World {
    pub(super) fn send(
        &mut self,
        node: usize,
        shard: usize,
        origin: Origin,
        body: Body,
        reply: Sender<Result<Reply, Failure>>,
    ) {
        if !self.nodes[node].is_up {
            return;
        }
        self.oracle.sent(origin, &body, self.moment(node));
        self.next_call += 1;
        let (call, starts) = (self.next_call, self.nodes[node].starts);
        let clock = &self.nodes[node].clock;
        let sent_at = clock.read(self.now);
        let is_far = self.plan.is_far(node, shard);
        let due = sent_at + if is_far { FAR_DEADLINE } else { self.plan.deadline };
        let deadline = clock.true_time_of(due, self.now);
        self.trace.note(
            self.now,
            format_args!("node {node} calls shard {shard}: call {call}, {origin:?}, {}", kind(&body)),
        );
        let max_delay = self.nodes[node].returns_delay;
        let late = match &body {
            Body::Change { adjustment: tollgate::Adjustment::ReturnLease { .. }, .. } if max_delay > 0 => {
                self.link_rng.u64(..max_delay)
            }
            _ => 0,
        };
        let reply = Some(reply);
        let state = Call {
            node,
            starts,
            shard,
            origin,
            body,
            reply,
            sent_at,
            due,
            answer: None,
            is_late: false,
            is_executed: false,
        };
        self.calls.insert(call, state);
        if self.defect != Some(Defect::DeadlineIgnored) {
            self.schedule(deadline, Event::Deadline(call));
        }
        let is_silent = self.defect == Some(Defect::SilentAfterOutage) && self.now > self.plan.calm_from;
        let gives_up = self.defect == Some(Defect::CutRegionGivesUp) && !is_far && self.is_region_cut(node);
        match self.links[node][shard].carry(Direction::ToStore, call, &mut self.link_rng) {
            _ if is_silent => {}
            _ if gives_up => {
                self.schedule(self.now + REFUSAL_DELAY, Event::Break(call, Failure::Refused));
            }
            Transit::After(delay) if self.shards[shard].is_up => {
                self.schedule(self.now + delay + late, Event::Arrive(call));
            }
            // A connection to a shard that is down is refused. A cut link is silent.
            Transit::After(_) => {
                self.schedule(self.now + REFUSAL_DELAY, Event::Break(call, Failure::Refused));
            }
            Transit::Held | Transit::Lost | Transit::Broken(_) => {}
        }
    }

    /// Returns whether the region of a node is cut off.
    fn is_region_cut(&self, node: usize) -> bool {
        let here = self.plan.regions.of_node(node);
        self.plan.faults.iter().any(|fault| {
            let is_cut = matches!(fault.kind, FaultKind::RegionCut { region, .. } if region == here);
            is_cut && (fault.from..fault.until).contains(&self.now)
        })
    }

    /// A call arrives at its shard.
    pub(super) fn arrive(&mut self, id: CallId) -> Checked {
        let Some(call) = self.calls.get_mut(&id) else { return Ok(()) };
        let shard = &mut self.shards[call.shard];
        if !shard.is_up {
            // The connection broke before the call was executed, which the node cannot know.
            self.schedule(self.now + REFUSAL_DELAY, Event::Break(id, Failure::Failed));
            return Ok(());
        }
        if !shard.paused_by.is_empty() {
            shard.waiting.push(id);
            return Ok(());
        }
        let is_far = self.plan.is_far(call.node, call.shard);
        let (reply, is_effective) = shard.execute(self.now, &call.body, is_far);
        let shown = shard.clock.read(self.now);
        call.is_executed = true;
        let (origin, body) = (call.origin, call.body.clone());
        let (node, number) = (call.node, call.shard);
        call.answer = Some(reply.clone());
        self.trace.note(self.now, format_args!("shard {number} executes call {id}: {}", result(&reply)));
        self.oracle.executed((self.now, shown), number, origin, &body, (&reply, is_effective))?;
        match self.links[node][number].carry(Direction::ToNode, id, &mut self.link_rng) {
            Transit::After(delay) => self.schedule(self.now + delay, Event::Return(id)),
            Transit::Broken(delay) => {
                self.oracle.lost_answer(origin);
                self.schedule(self.now + delay, Event::Break(id, Failure::Failed));
            }
            Transit::Lost => self.oracle.lost_answer(origin),
            Transit::Held => {}
        }
        Ok(())
    }

    /// A message that a cut link held travels again.
    pub(super) fn release_held(&mut self, held: Vec<(Direction, CallId)>) {
        for (direction, call) in held {
            let at = self.now + self.link_rng.u64(100..2_000);
            match direction {
                Direction::ToStore => self.schedule(at, Event::Arrive(call)),
                Direction::ToNode => self.schedule(at, Event::Return(call)),
            }
        }
    }

    /// A reply arrives at its node.
    pub(super) fn deliver(&mut self, id: CallId) {
        let Some(mut call) = self.calls.remove(&id) else { return };
        let node = &self.nodes[call.node];
        if node.starts != call.starts || !node.is_up {
            return;
        }
        let Some(answer) = call.answer.take() else { return };
        if let Some(reply) = call.reply.take() {
            let moment = self.moment(call.node);
            if reply.send(Ok(answer.clone())) {
                self.oracle.delivered(&call.body, &answer, call.sent_at, moment);
            }
            return;
        }
        self.trace.note(self.now, format_args!("node {}: call {id} was late", call.node));
        if let (Reply::Decided(answer), Body::Decide(checks)) = (answer, call.body)
            && answer.admitted
        {
            node.store.undo_late(call.shard, call.origin, checks, answer);
        }
    }

    /// A connection breaks, or is refused.
    pub(super) fn fail(&mut self, id: CallId, failure: Failure) {
        let Some(mut call) = self.calls.remove(&id) else { return };
        let node = &self.nodes[call.node];
        if let Some(reply) = call.reply.take().filter(|_| node.starts == call.starts && node.is_up) {
            self.trace.note(self.now, format_args!("node {}: call {id} failed: {failure:?}", call.node));
            reply.send(Err(failure));
        }
    }

    /// The deadline of a call passes. The call itself goes on.
    pub(super) fn pass_deadline(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let node = &self.nodes[call.node];
        if node.starts != call.starts {
            return;
        }
        let local = node.clock.read(self.now);
        if local < call.due || !node.is_running() {
            // The clock of the node was disturbed, or the node cannot look at it.
            let at = node.clock.true_time_of(call.due, self.now).max(self.now + 1_000);
            self.schedule(at, Event::Deadline(id));
            return;
        }
        if let Some(reply) = call.reply.take() {
            call.is_late = true;
            let failure =
                if matches!(call.body, Body::Change { .. }) { Failure::Failed } else { Failure::TimedOut };
            self.trace.note(self.now, format_args!("node {}: call {id} timed out", call.node));
            reply.send(Err(failure));
        }
    }

    /// A shard stops: the connections of all calls to it break.
    pub(super) fn break_connections(&mut self, shard: usize) {
        let broken: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.shard == shard).map(|(id, _)| *id).collect();
        self.shards[shard].waiting.clear();
        for id in broken {
            let Some(call) = self.calls.get(&id) else { continue };
            if call.is_executed {
                self.oracle.lost_answer(call.origin);
            }
            if self.links[call.node][shard].is_cut(Direction::ToNode) {
                // The node hears nothing, and the deadline passes.
                self.forget_message(id);
            } else {
                self.schedule(self.now + REFUSAL_DELAY, Event::Break(id, Failure::Failed));
            }
        }
    }

    /// Keeps a call without its messages.
    fn forget_message(&mut self, id: CallId) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.answer = None;
        }
    }
}

fn kind(body: &Body) -> String {
    match body {
        Body::Decide(checks) => format!("decide {:?}", checks.iter().map(|it| it.amount).collect::<Vec<_>>()),
        Body::Change { adjustment, .. } => format!("{adjustment:?}"),
    }
}

fn result(reply: &Reply) -> String {
    match reply {
        Reply::Decided(answer) if answer.admitted => "admitted".to_owned(),
        Reply::Decided(_) => "refused".to_owned(),
        Reply::Changed(outcome) => format!("{} left", outcome.remaining),
    }
}
