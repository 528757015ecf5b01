//! The store of a node: calls to shards over links, as `tollgate-redis` makes them to Redis.
//!
//! - A call without a reply within the deadline has timed out. If it turns out to have been executed, its charges are
//!   undone (`tollgate-redis/src/{dispatcher,undo}.rs`). Changes cannot be undone: they are in doubt.
//! - A request whose keys are on several shards, or that takes a slot, runs in a task of its own. All parts are
//!   charged or none; if the caller leaves, all are undone (`tollgate-redis/src/reserve.rs`).
//! - A refused batch is refused again without a call until its wait is over (`deny_cache`).
//!
//! Shared calls are not simulated: each request is a call. The world has the deadlines and the links.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::store::{AdjustmentId, Answer, Check, Outcomes, Repeatable};
use tollgate::{
    Adjustment, Amount, Bucket, ChargeTimes, Clock as _, ManualClock, Outcome, Rate, Rule, Store, StoreError,
    Timestamp, Verdict,
};

use super::clock::TrueTime;
use super::defect::Defect;
use super::deny_cache::DenyCache;
use super::node::Report;
use super::wire::{Body, Command, Failure, Origin, OwnedCheck, Reply, ReplyReceiver, Wire};
use crate::executor::{Sender, oneshot};

/// As in `tollgate-redis/src/dispatcher.rs`.
const MAX_UNDO_ATTEMPTS: usize = 20;
const UNDO_RETRY_DELAY: TrueTime = 100_000;

/// The store of a node.
#[derive(Clone)]
pub(super) struct SimStore(Arc<Client>);

/// The part of a store that its tasks share.
struct Client {
    node: usize,
    /// The shards of one region: the first one, and their number.
    first_shard: usize,
    shards: usize,
    deadline: TrueTime,
    wire: Arc<Wire>,
    clock: ManualClock,
    /// The number of nodes as this node knows it.
    nodes: AtomicUsize,
    next_probe: AtomicUsize,
    deny_cache: DenyCache,
    defect: Option<Defect>,
}

/// The settings of a store.
pub(super) struct StoreSettings {
    pub(super) first_shard: usize,
    pub(super) shards: usize,
    pub(super) deadline: TrueTime,
    pub(super) deny_cache: TrueTime,
    pub(super) nodes: usize,
    pub(super) defect: Option<Defect>,
}

impl SimStore {
    pub(super) fn new(node: usize, settings: &StoreSettings, wire: &Arc<Wire>, clock: ManualClock) -> Self {
        let lasting = if settings.defect == Some(Defect::DenyCacheOutlivesWait) { 5_000_000 } else { 0 };
        Self(Arc::new(Client {
            node,
            first_shard: settings.first_shard,
            shards: settings.shards,
            deadline: settings.deadline,
            wire: Arc::clone(wire),
            clock,
            nodes: AtomicUsize::new(settings.nodes),
            next_probe: AtomicUsize::new(0),
            deny_cache: DenyCache::new(settings.deny_cache, lasting),
            defect: settings.defect,
        }))
    }

    /// Tells the node how many nodes there are.
    pub(super) fn set_nodes(&self, nodes: usize) {
        self.0.nodes.store(nodes, Ordering::Relaxed);
    }

    /// Returns the connection of the node to the world.
    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.0.wire
    }

    /// Returns the number of cached refusals.
    pub(super) fn cached_refusals(&self) -> usize {
        self.0.deny_cache.len()
    }

    /// Undoes a call that was executed after its caller was notified of a timeout.
    pub(super) fn undo_late(&self, shard: usize, origin: Origin, checks: Vec<OwnedCheck>, answer: Answer) {
        if self.0.defect == Some(Defect::LateChargeKept) {
            return;
        }
        let client = Arc::clone(&self.0);
        let task = Box::pin(async move { client.undo(shard, origin, &checks, &answer).await });
        self.0.wire.push(Command::Spawn { node: self.0.node, origin: origin.undoing(), task });
    }
}

/// Returns the shard of a key, among those of a region.
pub(super) fn shard_of(key: &[u8], shards: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    usize::try_from(hasher.finish() % shards as u64).unwrap_or(0)
}

/// Returns the change that undoes a check.
fn undo_check(amount: Amount, outcome: &Outcome, taken_at: Timestamp) -> Option<Adjustment> {
    match amount {
        Amount::Slot(owner) if outcome.is_admitted() => Some(Adjustment::Release { owner }),
        Amount::Exactly(_) | Amount::UpTo(_) if outcome.units() > 0 => {
            let charge = ChargeTimes::of(taken_at, outcome);
            Some(Adjustment::Refund { units: outcome.units(), charge })
        }
        Amount::Lease(request) if outcome.units() > 0 => {
            let units = u32::try_from(outcome.units()).unwrap_or(u32::MAX);
            Some(Adjustment::ReturnLease { units, taken_at, ttl: request.ttl })
        }
        _ => None,
    }
}

/// The checks of a request on one shard, with their places in the request.
struct Part {
    shard: usize,
    places: Vec<usize>,
    checks: Vec<OwnedCheck>,
}

impl Client {
    fn send(&self, shard: usize, origin: Origin, body: Body) -> ReplyReceiver {
        self.wire.send(self.node, shard, origin, body)
    }

    fn change(&self, origin: Origin, (rule, key): (&Rule, &[u8]), adjustment: Adjustment) -> ReplyReceiver {
        let body = Body::Change { rule: rule.clone(), key: key.to_vec(), adjustment, id: None };
        self.send(self.shard(key), origin, body)
    }

    /// Returns the shard of a key.
    fn shard(&self, key: &[u8]) -> usize {
        self.first_shard + shard_of(key, self.shards)
    }

    /// Undoes the charges of a call, one check after the other.
    async fn undo(&self, shard: usize, origin: Origin, checks: &[OwnedCheck], answer: &Answer) {
        for (owned, outcome) in checks.iter().zip(&answer.outcomes) {
            let Some(adjustment) = undo_check(owned.amount, outcome, answer.at) else { continue };
            for _ in 0..MAX_UNDO_ATTEMPTS {
                let (rule, key) = (owned.rule.clone(), owned.key.clone());
                let body = Body::Change { rule, key, adjustment, id: None };
                if !matches!(self.send(shard, origin.undoing(), body).await, Err(Failure::Refused)) {
                    break;
                }
                self.wire.sleep(self.node, UNDO_RETRY_DELAY).await;
            }
        }
    }

    /// Makes a request in parts.
    async fn reserve(
        self: Arc<Self>,
        origin: Origin,
        parts: Vec<Part>,
        reply: Sender<Result<Answer, Failure>>,
    ) {
        let replies: Vec<_> = parts
            .iter()
            .map(|part| self.send(part.shard, origin, Body::Decide(part.checks.clone())))
            .collect();
        let mut answers = Vec::new();
        for reply in replies {
            answers.push(reply.await.map(|reply| match reply {
                Reply::Decided(answer) => answer,
                Reply::Changed(_) => {
                    Answer { admitted: false, at: Timestamp::EPOCH, outcomes: Outcomes::new() }
                }
            }));
        }
        let all = answers.iter().all(|it| it.as_ref().is_ok_and(|it| it.admitted));
        let concluded = if all {
            merge(&parts, &answers, true)
        } else {
            let has_failed = self.undo_reserved(origin, &parts, &answers).await;
            merge(&parts, &answers, false)
                .map_err(|it| if has_failed { it.or_worse(Failure::Failed) } else { it })
        };
        if !reply.send(concluded) && all {
            self.undo_reserved(origin, &parts, &answers).await;
        }
    }

    /// Undoes the parts that were admitted. Returns whether that failed for one of them.
    async fn undo_reserved(
        &self,
        origin: Origin,
        parts: &[Part],
        answers: &[Result<Answer, Failure>],
    ) -> bool {
        if self.defect == Some(Defect::PartKept) {
            return false;
        }
        let mut changes = Vec::new();
        for (part, answer) in parts.iter().zip(answers) {
            let Some(answer) = answer.as_ref().ok().filter(|it| it.admitted) else { continue };
            for (owned, outcome) in part.checks.iter().zip(&answer.outcomes).rev() {
                if let Some(undo) =
                    undo_check(owned.amount, outcome, answer.at).filter(|_| !owned.count_denied)
                {
                    changes.push(self.change(origin.undoing(), (&owned.rule, &owned.key), undo));
                }
            }
        }
        let mut has_failed = false;
        for change in changes {
            has_failed |= change.await.is_err();
        }
        has_failed
    }

    async fn ask(self: &Arc<Self>, checks: &[Check<'_>]) -> Result<Answer, Failure> {
        let origin = self.wire.current();
        let Some(first) = checks.first() else {
            return Ok(Answer { admitted: true, at: self.clock.now(), outcomes: Outcomes::new() });
        };
        let mut parts: Vec<Part> = Vec::new();
        for (at, check) in checks.iter().enumerate() {
            let shard = self.shard(check.key);
            if !parts.iter().any(|part| part.shard == shard) {
                parts.push(Part { shard, places: Vec::new(), checks: Vec::new() });
            }
            if let Some(part) = parts.iter_mut().find(|part| part.shard == shard) {
                part.places.push(at);
                part.checks.push(OwnedCheck::of(check));
            }
        }
        let takes_place = checks.iter().any(|check| matches!(check.amount, Amount::Slot(_)));
        let sent_at = self.clock.now();
        let answer = if takes_place || parts.len() > 1 {
            let (reply, answer) = oneshot();
            let task = Box::pin(Arc::clone(self).reserve(origin, parts, reply));
            self.wire.push(Command::Spawn { node: self.node, origin, task });
            answer.await?
        } else {
            let checks = checks.iter().map(OwnedCheck::of).collect();
            match self.send(self.shard(first.key), origin, Body::Decide(checks)).await? {
                Reply::Decided(answer) => answer,
                Reply::Changed(_) => return Err(Failure::Failed),
            }
        };
        self.deny_cache.learn(checks, &answer, sent_at);
        Ok(answer)
    }

    fn report(&self, report: Report) {
        self.wire.push(Command::Report { node: self.node, report });
    }

    async fn adjust(
        &self,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
    ) -> Result<Outcome, StoreError> {
        self.deny_cache.forget(rule.id, key, self.clock.now());
        let origin = self.wire.current();
        let body = Body::Change { rule: rule.clone(), key: key.to_vec(), adjustment, id };
        if origin == Origin::Reconcile {
            self.report(Report::Replaying { rule: rule.clone(), key: key.to_vec(), adjustment, id });
        }
        let is_dropped = self.defect == Some(Defect::LedgerDropped)
            && origin == Origin::Reconcile
            && matches!(adjustment, Adjustment::Charge { .. });
        let reply = if is_dropped {
            let mut outcome = Outcome { verdict: Verdict::admitted(0), ..EMPTY };
            outcome.limit = rule.quota.capacity();
            Ok(Reply::Changed(outcome))
        } else {
            self.send(self.shard(key), origin, body).await
        };
        if origin == Origin::Reconcile {
            let failure = reply.as_ref().err().copied();
            self.report(Report::Replayed { rule: rule.clone(), key: key.to_vec(), adjustment, id, failure });
        }
        match reply {
            Ok(Reply::Changed(outcome)) => Ok(outcome),
            Ok(Reply::Decided(_)) => Err(Failure::Failed.into_error(self.deadline)),
            Err(failure) => Err(failure.into_error(self.deadline)),
        }
    }
}

const EMPTY: Outcome =
    Outcome { verdict: Verdict::Never, limit: 0, remaining: 0, reset_after: tollgate::Span::ZERO };

/// Merges the answers of all parts. In a refusal, the limits that would have admitted report no charge.
fn merge(parts: &[Part], answers: &[Result<Answer, Failure>], all: bool) -> Result<Answer, Failure> {
    let count = parts.iter().map(|part| part.checks.len()).sum();
    let mut outcomes: Vec<Outcome> = vec![EMPTY; count];
    let (mut at, mut failure): (Option<Timestamp>, Option<Failure>) = (None, None);
    for (part, answer) in parts.iter().zip(answers) {
        match answer {
            Err(why) => failure = Some(failure.map_or(*why, |worst| worst.or_worse(*why))),
            Ok(answer) => {
                at = Some(at.map_or(answer.at, |earlier| earlier.min(answer.at)));
                for (&place, outcome) in part.places.iter().zip(&answer.outcomes) {
                    outcomes[place] = *outcome;
                    if let (false, Verdict::Admitted { .. }) = (all, outcome.verdict) {
                        outcomes[place].verdict = Verdict::admitted(0);
                    }
                }
            }
        }
    }
    match (failure, at) {
        (Some(failure), _) => Err(failure),
        (None, Some(at)) => Ok(Answer { admitted: all, at, outcomes: outcomes.into_iter().collect() }),
        (None, None) => Err(Failure::Failed),
    }
}

impl Store for SimStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let mut outcomes = Outcomes::new();
        if let Some((admitted, at)) = self.try_decide(checks, &mut outcomes) {
            return Ok(Answer { admitted, at, outcomes });
        }
        self.decide_uncached(checks).await
    }

    async fn decide_uncached(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let answer = self.0.ask(checks).await;
        answer.map_err(|it| it.into_error(self.0.deadline))
    }

    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let at = self.0.deny_cache.recall(checks, self.0.clock.now(), outcomes)?;
        if let Origin::Request(request) = self.0.wire.current() {
            let checks = checks.iter().map(OwnedCheck::of).collect();
            self.0.report(Report::Recalled { request, checks });
        }
        Some((false, at))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.0.adjust(rule, key, adjustment, None).await
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        self.0.adjust(rule, key, once.adjustment, Some(once.id)).await
    }

    fn recognizes_adjustments(&self) -> bool {
        true
    }

    /// Resets an unused key. Each probe uses another shard.
    async fn probe(&self) -> Result<(), StoreError> {
        let Ok(quota) = Bucket::new(Rate::per_minute(1)) else { return Ok(()) };
        let shard = self.0.first_shard + self.0.next_probe.fetch_add(1, Ordering::Relaxed) % self.0.shards;
        let body = Body::Change {
            rule: Rule::new("probe", quota),
            key: b"probe".to_vec(),
            adjustment: Adjustment::Reset,
            id: None,
        };
        let reply = self.0.send(shard, Origin::Probe, body).await;
        reply.map(drop).map_err(|it| it.into_error(self.0.deadline))
    }

    fn nodes(&self) -> usize {
        if self.0.defect == Some(Defect::ShareForOneNode) { 1 } else { self.0.nodes.load(Ordering::Relaxed) }
    }
}
