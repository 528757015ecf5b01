//! The path of every decision: match, ask the store, conclude.
//!
//! ```text
//! match once ──► Store::try_decide ─┬─ answer ──► corrections of candidates ──► conclude ──► observer
//!                                   │                                             ▲
//!                                   └─ no answer ──► Pending ──► finish: one call ┘
//! ```
//!
//! A decision that needs no waiting is made in place: it is too large to be moved. Only a decision
//! that waits moves its checks into a [`Pending`], which continues where the attempt stopped: the
//! input is not matched again, and the store does not search its cache again.
//!
//! A decision that its caller abandons while corrections are awaited has been charged. Its charge
//! stays, unless it waits in a queue and leaves it; its slots are released, and the missing corrections
//! are made, all by [`Limiter::reconcile`]. A store takes back the slots and the places in queues of a
//! call that is abandoned before its answer.
//!
//! A request that waits in line for a slot is in `in_line`, requests that wait for the store together in `batch`.
//!
//! Tested by `tests/pending.rs`, which counts matches, attempts and calls.

mod batch;
mod in_line;

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Owner, Timestamp};
use tollgate_policy::{DetachedChecks, Input, Matched, Policy};
use tollgate_store::{Answer, Outcomes, Store, StoreError};

pub use batch::PendingBatch;
pub use in_line::{HoldEnd, SlotWait};

use super::candidates::Compensation;
use super::start::Steps;
use super::{Batch, Limiter, ask, ask_all, ask_denied};
use crate::adaptive::InFlight;
use crate::decision::Decision;
use crate::node_shedder::InFlightGuard;
use crate::outage::{Attempt, ChargeStatus};

/// A decision that has to wait for its store.
///
/// The limits that apply are known. [`finish`](Self::finish) makes the decision. If the value or the
/// future of `finish` is dropped before, no slot stays taken.
#[must_use = "the input is not decided until `finish` is awaited"]
pub struct Pending<'l, S> {
    unfinished: Unfinished<'l, S>,
}

/// A decision that has to wait for its store, without a borrow of its limiter.
///
/// For futures that must be `'static`. It keeps the policy that the input was matched against.
#[must_use = "the input is not decided until `finish` is awaited"]
pub struct DetachedPending<S> {
    limiter: Limiter<S>,
    checks: DetachedChecks,
    owner: Option<Owner>,
    in_flight: Option<Arc<InFlight>>,
    outcomes: Outcomes,
    answer: Option<(StoreAnswer, Compensation)>,
    started_at: Timestamp,
    line: Option<usize>,
    is_patient: bool,
    node_guard: Option<InFlightGuard>,
}

/// A decision that is being made. If dropped with an answer of the store, it is abandoned: its
/// corrections are deferred and its slots are released.
struct Unfinished<'l, S> {
    limiter: &'l Limiter<S>,
    decision: Box<Decision<'l>>,
    waiting: Box<Waiting<'l>>,
}

/// The reason for which a decision waits.
pub(super) struct Waiting<'l> {
    matched: Matched<'l>,
    /// The answer of the store and the missing corrections, if only these are missing.
    answer: Option<(StoreAnswer, Compensation)>,
    started_at: Timestamp,
    /// The index of the check whose line the request joins, if it has to wait for a slot.
    line: Option<usize>,
    /// Whether the request may wait in line, so that its attempts count no refusals.
    is_patient: bool,
    /// Counts a decision that waits for the store as a request in flight of this node.
    node_guard: Option<InFlightGuard>,
}

/// Whether the caller can wait in line for a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// The request is refused if it would have to wait.
    None,
    /// The request waits ([`Pending::finish_waiting`]).
    InLine,
}

/// The answer of the store to a batch, beside the outcomes.
#[derive(Clone, Copy)]
struct StoreAnswer {
    admitted: bool,
    at: Timestamp,
}

/// Error returned when the store was not called or gave no answer.
pub(super) struct NoAnswer {
    pub(super) charge_status: ChargeStatus,
    pub(super) error: StoreError,
}

impl NoAnswer {
    /// The error while the breaker is open.
    fn not_called() -> Self {
        let error = StoreError::Refused(Box::new(BreakerOpen));
        Self { charge_status: ChargeStatus::NotCharged, error }
    }
}

/// The cause of an error if a store answers fewer batches than it was sent.
#[derive(Debug, thiserror::Error)]
#[error("the store has not answered every batch")]
struct MissingAnswer;

/// The cause of an error without a call.
#[derive(Debug, thiserror::Error)]
#[error("earlier calls got no answer, and the next one is not due yet")]
struct BreakerOpen;

impl<S: Store> Limiter<S> {
    /// Makes a decision in place, if no waiting is needed: a separate function, so that the decision
    /// is not copied. The error is boxed to keep the common result small.
    #[inline(never)]
    pub(super) fn decide_into<'l>(
        &'l self,
        input: Option<&dyn Input>,
        matching: impl FnOnce(&mut Decision<'l>) -> Matched<'l>,
        decision: &mut Decision<'l>,
        patience: Patience,
    ) -> Result<(), Box<Waiting<'l>>> {
        let started_at = self.started_at();
        let matched = matching(decision);
        if matched == Matched::Applies
            && let Some(shed) = self.shed_locally(input, decision).or_else(|| self.enter_adaptive(decision))
        {
            decision.shed(shed);
            self.notify_in_place(input, decision, started_at);
            return Ok(());
        }
        let has_line =
            self.policy.has_slot_queues() && matched == Matched::Applies && Self::has_line(decision);
        let is_patient = has_line && patience == Patience::InLine;
        let waiting = |answer, line: Option<usize>| {
            // A request in line is not in flight yet: the length of the line is its bound.
            let node_guard = if line.is_none() { self.track_in_flight() } else { None };
            Box::new(Waiting { matched, answer, started_at, line, is_patient, node_guard })
        };
        if is_patient {
            decision.checks.ignore_refusals();
        }
        if has_line && let Some(at) = self.line_ahead(decision) {
            if is_patient {
                return Err(waiting(None, Some(at)));
            }
            self.refuse_in_line(decision, at);
            self.notify_in_place(input, decision, started_at);
            return Ok(());
        }
        let answer = match matched {
            Matched::Applies if decision.checks.is_empty() => {
                self.notify_in_place(input, decision, started_at);
                return Ok(());
            }
            Matched::Applies => {
                let (owner, outcomes) = (decision.owner, &mut decision.outcomes);
                match &decision.checks[..] {
                    [check] => self.try_store(&[ask(check, owner)], started_at, outcomes),
                    checks => {
                        let mut batch = Batch::new();
                        ask_all(checks, owner, &mut batch);
                        self.try_store(&batch, started_at, outcomes)
                    }
                }
            }
            _ => {
                let denied = ask_denied(&decision.checks);
                if denied.is_empty() {
                    Some((false, Timestamp::EPOCH))
                } else {
                    self.try_store(&denied, started_at, &mut Outcomes::new())
                }
            }
        };
        match answer {
            Some((admitted, at)) => {
                let answer = StoreAnswer { admitted, at };
                if is_patient
                    && !admitted
                    && let Some((at, _)) = Self::line_after_refusal(decision)
                {
                    return Err(waiting(None, Some(at)));
                }
                if matches!(matched, Matched::Applies)
                    && let Err(missing) = self.try_compensate(decision, admitted, at)
                {
                    return Err(waiting(Some((answer, missing)), None));
                }
                self.conclude(matched, decision, Ok(answer));
                if has_line && !admitted {
                    self.pass_slots_on(decision);
                    if is_patient {
                        self.count_refusal(decision);
                    }
                }
            }
            None if !is_patient && self.outage.is_breaker_open() => {
                self.conclude(matched, decision, Err(ChargeStatus::NotCharged));
            }
            None => return Err(waiting(None, None)),
        }
        self.notify_in_place(input, decision, started_at);
        Ok(())
    }

    /// Makes a decision in place and passes it to `then`, if no waiting is needed.
    #[inline]
    pub(super) fn try_decide_matched<'l, T>(
        &'l self,
        input: Option<&dyn Input>,
        matching: impl FnOnce(&mut Decision<'l>) -> Matched<'l>,
        patience: Patience,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        let mut decision = Decision::undecided();
        match self.decide_into(input, matching, &mut decision, patience) {
            Ok(()) => Ok(then(&decision)),
            Err(waiting) => Err(Pending::new(self, decision, waiting)),
        }
    }

    /// Makes a decision, and waits for the store if necessary.
    pub(super) async fn decide_matched<'l>(
        &'l self,
        input: Option<&(dyn Input + Sync)>,
        matching: impl FnOnce(&mut Decision<'l>) -> Matched<'l>,
    ) -> Decision<'l> {
        let pending = {
            let mut decision = Decision::undecided();
            let input = input.map(|it| it as &dyn Input);
            match self.decide_into(input, matching, &mut decision, Patience::None) {
                Ok(()) => return decision,
                Err(waiting) => Pending::new(self, decision, waiting),
            }
        };
        pending.finish(input).await
    }

    /// Makes a decision, and waits for the store and in line if necessary. See
    /// [`Pending::finish_waiting`].
    pub(super) async fn decide_in_line<I, F, E>(
        &self,
        input: &I,
        steps: Steps,
        hold: impl FnOnce(SlotWait) -> Option<F>,
    ) -> Result<Decision<'_>, E>
    where
        I: Input + Sync,
        F: Future<Output = Result<HoldEnd, E>>,
    {
        let pending = {
            let mut decision = Decision::undecided();
            let matching = |it: &mut _| self.match_admission(input, steps, it);
            match self.decide_into(Some(input), matching, &mut decision, Patience::InLine) {
                Ok(()) => return Ok(decision),
                Err(waiting) => Pending::new(self, decision, waiting),
            }
        };
        pending.finish_waiting(Some(input), hold).await
    }

    /// Applies the answer of the store to a decision, or the outage rules if there is none.
    #[inline]
    fn conclude<'l>(
        &'l self,
        matched: Matched<'l>,
        decision: &mut Decision<'l>,
        answer: Result<StoreAnswer, ChargeStatus>,
    ) {
        match (matched, answer) {
            (Matched::Applies, Ok(StoreAnswer { admitted, at })) => {
                decision.count(admitted, at, self.store.wall_ahead(at));
            }
            (Matched::Applies, Err(charge_status)) => self.degrade(decision, charge_status),
            (matched, answer) => {
                if let Err(charge_status) = answer {
                    self.outage.charge_denied(&decision.checks, charge_status, self.store.nodes());
                }
                decision.settle_uncounted(matched);
            }
        }
        if !decision.is_allowed() {
            decision.in_flight = None;
        }
    }

    /// Decides without the store, by the outage rules.
    #[cold]
    fn degrade(&self, decision: &mut Decision<'_>, charge_status: ChargeStatus) {
        let nodes = self.store.nodes();
        let found = self.outage.decide(&decision.checks, decision.owner, charge_status, nodes);
        decision.degrade(found, self.outage.wall_ahead());
    }

    /// Awaits a call to the store, unless the breaker is open, and reports it to the breaker and to
    /// the observer.
    pub(super) async fn observe_call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, NoAnswer> {
        let Some(attempt) = self.outage.attempt() else {
            return Err(NoAnswer::not_called());
        };
        let started_at = self.started_at();
        self.report_call(attempt, started_at, call.await)
    }

    /// Awaits several calls that the store makes together, while the breaker is closed, and reports each.
    pub(super) async fn observe_calls<T>(
        &self,
        count: usize,
        calls: impl Future<Output = Vec<Result<T, StoreError>>>,
    ) -> Vec<Result<T, NoAnswer>> {
        let attempts: Option<Vec<Attempt<'_>>> = (0..count).map(|_| self.outage.attempt()).collect();
        let Some(attempts) = attempts else {
            // It has opened in between.
            return (0..count).map(|_| Err(NoAnswer::not_called())).collect();
        };
        let started_at = self.started_at();
        let mut answers = calls.await;
        answers.resize_with(count, || Err(StoreError::Failed(Box::new(MissingAnswer))));
        let report = |(attempt, answer)| self.report_call(attempt, started_at, answer);
        attempts.into_iter().zip(answers).map(report).collect()
    }

    /// Reports a call to the breaker and to the observer.
    #[inline]
    fn report_call<T>(
        &self,
        attempt: Attempt<'_>,
        started_at: Timestamp,
        answer: Result<T, StoreError>,
    ) -> Result<T, NoAnswer> {
        if let Some(watched) = &self.watched {
            watched.store_called(started_at, answer.is_ok());
        }
        match answer {
            Ok(answer) => {
                attempt.succeeded();
                Ok(answer)
            }
            Err(error) => Err(NoAnswer { charge_status: attempt.failed(&error), error }),
        }
    }
}

impl<'l, S> Pending<'l, S> {
    #[cold]
    pub(super) fn new(limiter: &'l Limiter<S>, decision: Decision<'l>, waiting: Box<Waiting<'l>>) -> Self {
        Self { unfinished: Unfinished { limiter, decision: Box::new(decision), waiting } }
    }

    /// Removes the borrow of the limiter.
    pub fn detach(self) -> DetachedPending<S> {
        let Self { mut unfinished } = self;
        let Unfinished { limiter, decision, waiting } = &mut unfinished;
        let checks = std::mem::take(&mut decision.checks);
        DetachedPending {
            limiter: limiter.clone(),
            checks: limiter.policy.detach(waiting.matched, checks),
            owner: decision.owner,
            in_flight: decision.in_flight.take(),
            outcomes: std::mem::take(&mut decision.outcomes),
            answer: waiting.answer.take(),
            started_at: waiting.started_at,
            line: waiting.line,
            is_patient: waiting.is_patient,
            node_guard: waiting.node_guard.take(),
        }
    }
}

impl<S> DetachedPending<S> {
    /// Moves the decision out, with a borrow of the limiter.
    fn attach(&mut self) -> Pending<'_, S> {
        let Self {
            limiter,
            checks,
            owner,
            in_flight,
            outcomes,
            answer,
            started_at,
            line,
            is_patient,
            node_guard,
        } = self;
        let mut decision = Box::new(Decision::undecided());
        let matched = limiter.policy.attach(checks, &mut decision.checks);
        (decision.owner, decision.outcomes) = (*owner, std::mem::take(outcomes));
        decision.in_flight = in_flight.take();
        let waiting = Waiting {
            matched,
            answer: answer.take(),
            started_at: *started_at,
            line: line.take(),
            is_patient: *is_patient,
            node_guard: node_guard.take(),
        };
        let waiting = Box::new(waiting);
        Pending { unfinished: Unfinished { limiter, decision, waiting } }
    }
}

impl<S> Drop for DetachedPending<S> {
    fn drop(&mut self) {
        if self.answer.is_some() {
            drop(self.attach());
        }
    }
}

impl<S> Drop for Unfinished<'_, S> {
    fn drop(&mut self) {
        if let Some((StoreAnswer { admitted, at }, missing)) = self.waiting.answer.take() {
            let Self { limiter, decision, .. } = self;
            missing.defer(&limiter.outage, decision);
            decision.count(admitted, at, 0);
            let is_queued = !decision.wait().is_zero();
            if let Some(receipt) = decision.receipt() {
                limiter.abandon_later(&receipt, is_queued);
            }
        }
    }
}

impl<S> fmt::Debug for Pending<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("checks", &self.unfinished.decision.checks).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for DetachedPending<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedPending").field("checks", &self.checks).finish_non_exhaustive()
    }
}

impl<'l, S: Store> Pending<'l, S> {
    /// Makes the decision: asks the store once, or applies the outage rules. The observer sees
    /// `input`, the one that was matched.
    pub async fn finish(self, input: Option<&(dyn Input + Sync)>) -> Decision<'l> {
        let Self { mut unfinished } = self;
        if let Some(at) = unfinished.waiting.line.take() {
            // The caller does not wait in line.
            let Unfinished { limiter, decision, waiting } = &mut unfinished;
            limiter.refuse_in_line(decision, at);
            limiter.notify(input.map(|it| it as &dyn Input), decision, waiting.started_at);
            return std::mem::replace(&mut **decision, Decision::undecided());
        }
        let answer = unfinished.finish().await;
        let (limiter, matched, started_at) =
            (unfinished.limiter, unfinished.waiting.matched, unfinished.waiting.started_at);
        let mut decision = std::mem::replace(&mut *unfinished.decision, Decision::undecided());
        limiter.conclude(matched, &mut decision, answer);
        limiter.notify(input.map(|it| it as &dyn Input), &mut decision, started_at);
        decision
    }
}

impl<'l, S> Unfinished<'l, S> {
    /// Creates a decision that the store has answered, and that corrections are missing from.
    #[cold]
    fn answered(
        limiter: &'l Limiter<S>,
        decision: Decision<'l>,
        answer: Option<(StoreAnswer, Compensation)>,
        started_at: Timestamp,
    ) -> Self {
        let matched = Matched::Applies;
        let waiting =
            Waiting { matched, answer, started_at, line: None, is_patient: false, node_guard: None };
        Self { limiter, decision: Box::new(decision), waiting: Box::new(waiting) }
    }
}

impl<S: Store> Unfinished<'_, S> {
    /// Sends the checks to the store, unless it has answered, and the corrections that its answer
    /// requires.
    async fn finish(&mut self) -> Result<StoreAnswer, ChargeStatus> {
        let store_answer = match &self.waiting.answer {
            Some((answer, _)) => *answer,
            None => self.limiter.ask_store(self.waiting.matched, &mut self.decision, None).await?,
        };
        if self.waiting.matched == Matched::Applies {
            self.compensate(store_answer).await;
        }
        Ok(store_answer)
    }

    /// Makes the corrections that an answer of the store requires.
    async fn compensate(&mut self, store_answer: StoreAnswer) {
        let Self { limiter, decision, waiting } = self;
        let StoreAnswer { admitted, at } = store_answer;
        let missing = match &mut waiting.answer {
            Some((_, missing)) => missing,
            answer => match limiter.try_compensate(decision, admitted, at) {
                Ok(()) => return,
                Err(missing) => &mut answer.insert((store_answer, missing)).1,
            },
        };
        limiter.compensate(decision, missing).await;
        waiting.answer = None;
    }
}

impl<S: Store> Limiter<S> {
    /// Sends the checks of a decision to the store. `newer`: a policy whose numbers of slots replace those
    /// of the checks.
    async fn ask_store(
        &self,
        matched: Matched<'_>,
        decision: &mut Decision<'_>,
        newer: Option<&Policy>,
    ) -> Result<StoreAnswer, ChargeStatus> {
        let applies = matched == Matched::Applies;
        let mut batch = Batch::new();
        if applies {
            ask_all(&decision.checks, decision.owner, &mut batch);
            if let Some(newer) = newer {
                in_line::renumber(&mut batch, newer);
            }
        } else {
            batch = ask_denied(&decision.checks);
        }
        let answer = self.call_store(&batch).await;
        drop(batch);
        let Answer { admitted, at, outcomes } = answer.map_err(|it| it.charge_status)?;
        if applies {
            decision.outcomes = outcomes;
        }
        Ok(StoreAnswer { admitted, at })
    }
}

impl<S: Store> DetachedPending<S> {
    /// Makes the decision as [`Pending::finish`] does, and passes it to `then`, as
    /// [`Limiter::try_decide`] does: the decision borrows from the policy that this value keeps.
    ///
    /// A decision is made once:
    ///
    /// ```compile_fail,E0382
    /// # async fn twice(pending: tollgate::DetachedPending<tollgate::MemoryStore>) {
    /// pending.finish(None, |decision| decision.is_allowed()).await;
    /// pending.finish(None, |decision| decision.is_allowed()).await;      // would charge again
    /// # }
    /// ```
    pub async fn finish<T>(
        mut self,
        input: Option<&(dyn Input + Sync)>,
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> T {
        then(&self.attach().finish(input).await)
    }

    /// Makes the decision as [`Pending::finish_waiting`] does, and passes it to `then`.
    pub async fn finish_waiting<F, E, T>(
        mut self,
        input: Option<&(dyn Input + Sync)>,
        hold: impl FnOnce(SlotWait) -> Option<F>,
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<HoldEnd, E>>,
    {
        Ok(then(&self.attach().finish_waiting(input, hold).await?))
    }
}
