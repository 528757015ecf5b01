//! Decisions that wait for their store together.
//!
//! A caller with many requests at the same time, such as a pipeline, would otherwise keep a future with a
//! whole [`Decision`] for each, and a store in other processes a message, a timer and a wake-up for each.
//! Here a waiting request keeps only its checks, and the store gets the checks of all requests in one call
//! ([`Store::decide_all`]).
//!
//! A request whose caller could leave a slot or a place in a queue behind, or that needs more than its
//! checks, waits on its own as a [`Pending`].

use std::fmt;

use tollgate_core::{Quota, Timestamp};
use tollgate_policy::{Check, Key, Limit, Matched, PriorityClass};
use tollgate_store::{Answer, Store};

use super::super::{Limiter, ask};
use super::{Patience, Pending, StoreAnswer, Unfinished, Waiting};
use crate::decision::Decision;
use crate::node_shedder::InFlightGuard;

/// Decisions that wait for their store together.
///
/// ```
/// # use tollgate::{Limiter, PendingBatch};
/// # pollster::block_on(async {
/// let limiter = Limiter::from_policy("limits: [{name: api, by: user, bucket: 5/minute}]").unwrap();
/// let limit = limiter.policy().limit("api").unwrap();
/// let key = limiter.policy().key(limit, &["ann"]).unwrap();
/// let mut waiting = PendingBatch::new(&limiter);
/// // A store in this process decides immediately.
/// let allowed = waiting.try_decide_named(limit, key, None, |decision| decision.is_allowed());
/// assert!(allowed.is_ok_and(|it| it) && waiting.is_empty());
/// waiting.finish(|number, decision| println!("{number}: {decision:?}")).await;
/// # });
/// ```
#[must_use = "the requests are not decided until `finish` is awaited"]
pub struct PendingBatch<'l, S> {
    limiter: &'l Limiter<S>,
    /// The checks of all requests.
    checks: Vec<Check<'l>>,
    requests: Vec<WaitingRequest<'l>>,
}

/// A request that waits.
struct WaitingRequest<'l> {
    /// The number of its checks.
    count: usize,
    priority: Option<&'l PriorityClass>,
    started_at: Timestamp,
    /// Counts it as a request in flight of this node.
    _node_guard: Option<InFlightGuard>,
}

impl<'l, S> PendingBatch<'l, S> {
    /// Creates an empty batch.
    pub const fn new(limiter: &'l Limiter<S>) -> Self {
        Self { limiter, checks: Vec::new(), requests: Vec::new() }
    }

    /// Whether no request waits.
    pub const fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the number of requests that wait.
    pub const fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request, unless it has to wait on its own.
    fn push(
        &mut self,
        decision: &mut Decision<'l>,
        waiting: Box<Waiting<'l>>,
    ) -> Result<(), Box<Waiting<'l>>> {
        let is_plain = waiting.matched == Matched::Applies
            && waiting.answer.is_none()
            && waiting.line.is_none()
            && !waiting.is_patient
            && !decision.is_start
            && decision.owner.is_none()
            && decision.in_flight.is_none()
            && !decision.checks.iter().any(has_queue);
        let (before, priority) = (self.checks.len(), decision.checks.priority());
        if !is_plain || !decision.checks.move_to(&mut self.checks) {
            return Err(waiting);
        }
        let Waiting { started_at, node_guard, .. } = *waiting;
        let count = self.checks.len() - before;
        self.requests.push(WaitingRequest { count, priority, started_at, _node_guard: node_guard });
        Ok(())
    }
}

/// Whether an admitted request may have to wait for its turn.
fn has_queue(check: &Check<'_>) -> bool {
    matches!(&check.rule.quota, Quota::Bucket(it) if it.queue().is_some())
}

impl<'l, S: Store> PendingBatch<'l, S> {
    /// Decides about a key by one limit, as [`Limiter::try_decide_named`] does. If the store does not answer
    /// immediately, the request is added to the batch and the error is `None`, or it waits on its own.
    pub fn try_decide_named<T>(
        &mut self,
        limit: &'l Limit,
        key: Key,
        cost: Option<u64>,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Option<Pending<'l, S>>> {
        let (limiter, mut decision) = (self.limiter, Decision::undecided());
        let matching = |it: &mut Decision<'l>| limiter.match_named(limit, key, None, cost, it);
        match limiter.decide_into(None, matching, &mut decision, Patience::None) {
            Ok(()) => Ok(then(&decision)),
            Err(waiting) => match self.push(&mut decision, waiting) {
                Ok(()) => Err(None),
                Err(waiting) => Err(Some(Pending::new(limiter, decision, waiting))),
            },
        }
    }

    /// Makes all decisions: asks the store once for all, or applies the outage rules. Each is passed to `then`
    /// with the number of its request, in the order in which they are made.
    ///
    /// If the future is dropped, charges that the store has made stay.
    pub async fn finish(self, mut then: impl FnMut(usize, &Decision<'l>)) {
        let Self { limiter, checks, requests } = self;
        if requests.is_empty() {
            return;
        }
        let answers = {
            let all: Vec<tollgate_store::Check<'_>> = checks.iter().map(|check| ask(check, None)).collect();
            let mut rest = &all[..];
            let batch = |request: &WaitingRequest<'_>| {
                let (batch, others) = rest.split_at(request.count);
                rest = others;
                batch
            };
            let batches: Vec<&[tollgate_store::Check<'_>]> = requests.iter().map(batch).collect();
            limiter.call_together(&batches).await
        };
        let (mut checks, mut unfinished) = (checks.into_iter(), Vec::new());
        for (number, (request, answer)) in requests.into_iter().zip(answers).enumerate() {
            let WaitingRequest { count, priority, started_at, .. } = request;
            let mut decision = Decision::undecided();
            decision.checks = tollgate_policy::Checks::of_class(priority);
            decision.checks.move_back(checks.by_ref().take(count));
            let answer = match answer {
                Ok(Answer { admitted, at, outcomes }) => {
                    decision.outcomes = outcomes;
                    if let Err(missing) = limiter.try_compensate(&mut decision, admitted, at) {
                        let answer = Some((StoreAnswer { admitted, at }, missing));
                        unfinished
                            .push((number, Unfinished::answered(limiter, decision, answer, started_at)));
                        continue;
                    }
                    Ok(StoreAnswer { admitted, at })
                }
                Err(no_answer) => Err(no_answer.charge_status),
            };
            limiter.conclude(Matched::Applies, &mut decision, answer);
            limiter.notify(None, &mut decision, started_at);
            then(number, &decision);
        }
        // Corrections of candidates, which are rare. They are made even if this future is dropped.
        for (number, unfinished) in unfinished {
            then(number, &Pending { unfinished }.finish(None).await);
        }
    }
}

impl<S> fmt::Debug for PendingBatch<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingBatch").field("checks", &self.checks).finish_non_exhaustive()
    }
}
