//! Waiting in line for a slot.
//!
//! ```text
//!                  ┌── others are before it ──────────┐
//! newcomer ────────┤                                  ▼
//!                  └─► attempt ── no slot is free ─► line ── first, and a slot may be free ──┐
//!                         ▲                            ▲                                     │
//!                         └────────────────────────────┴──── no slot is free ◄── attempt ◄──┘
//! ```
//!
//! An attempt decides the whole batch, so while a request waits nothing is charged and no slot is held,
//! and a limit other than that of the line may refuse after the wait. Limits that count refusals count
//! the request once, if it is refused in the end.
//!
//! A request waits in the line of the first limit that refuses it, and moves to the line of another
//! limit if that refuses the next attempt. It keeps the number of its arrival.
//!
//! A request that waits is decided by the policy that it was matched against, with the number of slots of
//! the policy in force: with the former number, the first request of a line could wait for a slot that is
//! free, and all others behind it. If the limit of its line is removed by a new policy, or refuses no
//! more, the request is decided without it.
//!
//! The order of the requests is in `line`.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{Outcome, Quota, Span, Verdict};
use tollgate_policy::{Check, Input, Limit, Mode, Policy};
use tollgate_store::{Outcomes, Store};

use super::super::{Batch, Limiter, ask_denied};
use super::{Pending, StoreAnswer, Unfinished};
use crate::decision::Decision;
use crate::line::{LineKey, LinePlace, Ticket, Turn};
use crate::observer::{InLine, NotHeld};
use crate::outage::ChargeStatus;
use crate::timer::SleepFuture;

/// The longest time between two attempts of the first request in a line. A slot that is released on this
/// node wakes it before; a slot whose lease ends, or that another node releases, does not.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two attempts on a store that other nodes share: 20 to 40 ms, so that a slot that
/// another node releases admits a request within 50 ms.
const MIN_SHARED_INTERVAL_MICROS: u64 = 20_000;
const SHARED_JITTER_MICROS: u64 = 20_000;

/// The shortest time between two attempts of a node on a shared store, over all lines, if none is woken by
/// a release: 40,000 attempts per second. Callers determine the number of lines, and must not determine
/// the load of the store. With more than about 1,000 lines, each asks less often.
const MIN_ATTEMPT_SPACING: Duration = Duration::from_micros(25);

/// The wait that is advised to a refused request if the pace of its line is unknown.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The result of one attempt.
enum Attempt {
    /// The store has answered, and the answer is final.
    Answered(StoreAnswer),
    /// The store gave no answer, and the outage rules have decided.
    Degraded,
    /// The check at this index found no slot. Its next lease ends after this time.
    NoSlot(usize, Duration),
}

/// The wait of a request for a slot, for the surface that holds the request meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotWait {
    /// The longest time for which the request waits.
    pub max_wait: Duration,
    /// The rank of its priority class: 0 is the most important.
    pub rank: u8,
}

/// How a surface stopped holding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The time is over.
    TimeOver,
    /// A more important request took its place among those that the surface holds.
    Displaced,
}

/// The reason why a wait ended.
enum Event<E> {
    /// The longest wait is over, or the caller stops waiting for another reason.
    Over(Result<HoldEnd, E>),
    Attempt,
    Displaced,
    Freed,
}

/// Returns whether requests wait for the slot of this check.
fn has_line(check: &Check<'_>) -> bool {
    check.limit.slot_queue().is_some()
        && check.limit.mode() == Mode::Enforce
        && check.cost > 0
        && matches!(check.rule.quota, Quota::Concurrency(_))
}

fn line_key(check: &Check<'_>) -> LineKey {
    (check.rule.id, check.key.clone())
}

/// Replaces the rules of slots in a batch by those of a newer policy. The state of slots does not depend on
/// their number, so a rule keeps its id.
pub(super) fn renumber<'b>(batch: &mut Batch<'b>, newer: &'b Policy) {
    for check in batch.iter_mut().filter(|it| matches!(it.rule.quota, Quota::Concurrency(_))) {
        let mut rules = newer.matched_limits().iter().flat_map(Limit::every_rule);
        check.rule = rules.find(|rule| rule.id == check.rule.id).unwrap_or(check.rule);
    }
}

/// Returns the index of the first check that found no slot, if only checks with lines have refused, and
/// the time until its next lease ends.
fn line_of_refusal(decision: &Decision<'_>) -> Option<(usize, Duration)> {
    let mut found = None;
    for it in decision.limits().filter(|it| it.is_binding() && !it.is_admitted()) {
        if !has_line(it.check()) {
            return None;
        }
        found = found.or_else(|| {
            let at = decision.checks.iter().position(|check| std::ptr::eq(check, it.check()))?;
            Some((at, it.retry_after().unwrap_or(RETRY_INTERVAL)))
        });
    }
    found
}

impl<S: Store> Limiter<S> {
    /// Returns whether the request needs a slot that others may wait for.
    #[cold]
    pub(super) fn has_line(decision: &Decision<'_>) -> bool {
        decision.owner.is_some() && decision.checks.iter().any(has_line)
    }

    /// Returns the index of the first check with a line that the request has to join.
    pub(super) fn line_ahead(&self, decision: &Decision<'_>) -> Option<usize> {
        let is_behind =
            |check: &Check<'_>| has_line(check) && self.lines.is_behind(|| line_key(check), decision.rank());
        decision.checks.iter().position(is_behind)
    }

    /// Returns the index of the check whose line a refused request joins, and removes the outcomes of the
    /// refusal. `None`: the refusal is final.
    pub(super) fn line_after_refusal(decision: &mut Decision<'_>) -> Option<(usize, Duration)> {
        let line = line_of_refusal(decision)?;
        decision.discard_outcomes();
        Some(line)
    }

    /// Refuses a request because of the line at a check.
    pub(super) fn refuse_in_line(&self, decision: &mut Decision<'_>, at: usize) {
        self.count_refusal(decision);
        self.refuse_uncounted(decision, at);
    }

    /// Refuses as [`refuse_in_line`](Self::refuse_in_line) does, without a charge of the limits that count
    /// refusals.
    fn refuse_uncounted(&self, decision: &mut Decision<'_>, at: usize) {
        let Some(check) = decision.checks.get(at) else { return };
        let retry_after = self.lines.expected_wait(&line_key(check)).unwrap_or(DEFAULT_RETRY_AFTER);
        let outcome = Outcome {
            verdict: Verdict::Refused { retry_after: retry_after.into() },
            limit: check.rule.quota.capacity(),
            remaining: 0,
            reset_after: Span::from(retry_after),
        };
        decision.refuse_at(at, outcome, retry_after, (self.outage.now(), self.outage.wall_ahead()));
    }

    /// Charges the limits that count refusals, after attempts that did not.
    pub(super) fn count_refusal(&self, decision: &Decision<'_>) {
        let denied = ask_denied(&decision.checks);
        if !denied.is_empty() && self.store.try_decide(&denied, &mut Outcomes::new()).is_none() {
            let nodes = self.store.nodes();
            self.outage.charge_denied(&decision.checks, ChargeStatus::NotCharged, nodes);
        }
    }

    /// Wakes requests that wait for slots that a refused batch has taken for a moment.
    pub(super) fn pass_slots_on(&self, decision: &Decision<'_>) {
        for it in decision.limits().filter(|it| it.is_admitted() && has_line(it.check())) {
            self.lines.released(it.rule().id, it.key());
        }
    }

    /// Returns the time until the first request of a line asks the store again.
    fn retry_interval(&self, lease_end: Duration, attempts: u64, decision: &Decision<'_>) -> Duration {
        if !self.store.is_shared() {
            return lease_end.clamp(Duration::from_millis(1), RETRY_INTERVAL);
        }
        // The owner is a random number.
        let random = decision.owner.map_or(0, |owner| owner.0 >> (attempts % 64));
        let jitter = u64::try_from(random % u128::from(SHARED_JITTER_MICROS)).unwrap_or_default();
        let interval = Duration::from_micros(MIN_SHARED_INTERVAL_MICROS + jitter);
        let lines = u32::try_from(self.lines.lines()).unwrap_or(u32::MAX);
        interval.max(MIN_ATTEMPT_SPACING.saturating_mul(lines))
    }
}

impl<S: Store> Unfinished<'_, S> {
    /// Decides the batch once.
    async fn attempt(&mut self) -> Attempt {
        let Self { limiter, decision, waiting } = self;
        waiting.started_at = limiter.started_at();
        let newer = limiter.lines.newer_policy(limiter.version);
        match limiter.ask_store(waiting.matched, decision, newer.as_deref()).await {
            Ok(answer) if answer.admitted => Attempt::Answered(answer),
            Ok(answer) => match Limiter::<S>::line_after_refusal(decision) {
                Some((at, lease_end)) => Attempt::NoSlot(at, lease_end),
                None => Attempt::Answered(answer),
            },
            Err(charge_status) => {
                limiter.degrade(decision, charge_status);
                match Limiter::<S>::line_after_refusal(decision) {
                    Some((at, lease_end)) => Attempt::NoSlot(at, lease_end),
                    None => Attempt::Degraded,
                }
            }
        }
    }

    /// Returns the ticket for the line at a check, its key and its length.
    fn ticket(&self, at: usize, number: u64) -> Option<(LineKey, Ticket, usize)> {
        let check = self.decision.checks.get(at)?;
        let fair = self.decision.checks.fair_number(check.limit);
        let ticket = Ticket { rank: self.decision.rank(), fair, number };
        Some((line_key(check), ticket, check.limit.slot_queue()?.length()))
    }

    /// Returns the shortest of the longest waits of the limits with lines.
    fn max_wait(&self) -> Duration {
        let queued = self.decision.checks.iter().filter(|check| has_line(check));
        let waits = queued.filter_map(|check| Some(check.limit.slot_queue()?.wait()));
        waits.min().unwrap_or_default().into()
    }

    fn refuse(&mut self, at: usize) {
        self.waiting.started_at = self.limiter.started_at();
        self.limiter.refuse_in_line(&mut self.decision, at);
    }

    /// Refuses a request that its caller does not hold, or no longer.
    fn refuse_unheld(&mut self, at: usize, reason: NotHeld) {
        self.refuse(at);
        self.decision.not_held = Some(reason);
    }

    /// Refuses a request whose wait is over. An error means that its caller stops waiting, such as a server
    /// that shuts down: the request is not charged then.
    fn end<E>(&mut self, at: usize, end: Result<HoldEnd, E>) -> Result<(), E> {
        match end {
            Ok(HoldEnd::TimeOver) => self.refuse(at),
            Ok(HoldEnd::Displaced) => self.refuse_unheld(at, NotHeld::Displaced),
            Err(error) => {
                self.waiting.started_at = self.limiter.started_at();
                self.limiter.refuse_uncounted(&mut self.decision, at);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl<'l, S: Store> Pending<'l, S> {
    /// Makes the decision as [`finish`](Self::finish) does, and waits in line for slots of limits with a
    /// `queue`.
    ///
    /// If the request has to wait, `hold` is called once. It returns a future that completes after the longest wait, or
    /// before if the request loses its place, or `None` if there is no place for the request, which refuses it
    /// ([`Decision::not_held`]). If the future fails, the request leaves the line, and this function returns the error; the observer sees a
    /// refusal. A request that is refused after its wait has charged nothing.
    pub async fn finish_waiting<F, E>(
        self,
        input: Option<&(dyn Input + Sync)>,
        hold: impl FnOnce(SlotWait) -> Option<F>,
    ) -> Result<Decision<'l>, E>
    where
        F: Future<Output = Result<HoldEnd, E>>,
    {
        let Self { mut unfinished } = self;
        if !unfinished.waiting.is_patient || unfinished.waiting.answer.is_some() {
            return Ok(Self { unfinished }.finish(input).await);
        }
        let waited = unfinished.wait_in_line(hold).await;
        let (limiter, started_at) = (unfinished.limiter, unfinished.waiting.started_at);
        let mut decision = std::mem::replace(&mut *unfinished.decision, Decision::undecided());
        limiter.notify(input.map(|it| it as &dyn Input), &mut decision, started_at);
        waited.map(|()| decision)
    }
}

impl<S: Store> Unfinished<'_, S> {
    /// Attempts and waits until the decision is final.
    async fn wait_in_line<F, E>(&mut self, hold: impl FnOnce(SlotWait) -> Option<F>) -> Result<(), E>
    where
        F: Future<Output = Result<HoldEnd, E>>,
    {
        let mut lease_end = RETRY_INTERVAL;
        let first = match self.waiting.line.take() {
            Some(at) => at,
            None => match self.attempt().await {
                Attempt::NoSlot(at, wait) => {
                    lease_end = wait;
                    at
                }
                attempt => {
                    self.conclude(attempt).await;
                    return Ok(());
                }
            },
        };
        // A request in line is not in flight yet: the length of the line is its bound.
        self.waiting.node_guard = None;
        let wait = SlotWait { max_wait: self.max_wait(), rank: self.decision.rank() };
        let Some(held) = hold(wait) else {
            self.refuse_unheld(first, NotHeld::NoPlace);
            return Ok(());
        };
        let mut held = pin!(held);
        let (mut at, number) = (first, self.limiter.lines.number());
        let observer = self.limiter.watched.as_ref().map(|it| (it, it.now()));
        loop {
            let Some((key, ticket, length)) = self.ticket(at, number) else { return Ok(()) };
            let Ok(place) = self.limiter.lines.join(key, ticket, length) else {
                self.refuse(at);
                return Ok(());
            };
            let limit = self.decision.checks.get(at).map(|check| check.limit);
            let mut in_line =
                observer.zip(limit).map(|((observer, since), limit)| observer.track_in_line(limit, since));
            let mut attempts = 0;
            let attempt = loop {
                match self.await_turn(&place, held.as_mut(), lease_end, attempts).await {
                    Event::Over(end) => return self.end(at, end),
                    Event::Displaced => {
                        self.refuse(at);
                        return Ok(());
                    }
                    Event::Freed => {
                        let rule = self.decision.checks.get(at).map(|check| check.rule.id);
                        self.decision.checks.retain(|check| Some(check.rule.id) != rule);
                        drop(place);
                        if self.decision.checks.is_empty() {
                            return Ok(());
                        }
                        break self.attempt_within(held.as_mut()).await;
                    }
                    Event::Attempt => {}
                }
                attempts += 1;
                match self.attempt_within(held.as_mut()).await {
                    Ok(Attempt::NoSlot(next, wait)) => {
                        lease_end = wait;
                        let is_here = self.ticket(next, number).is_some_and(|(key, ..)| place.is_for(&key));
                        if !is_here {
                            break Ok(Attempt::NoSlot(next, wait));
                        }
                        place.refused();
                    }
                    Ok(attempt) => {
                        let is_served = match &attempt {
                            Attempt::Answered(answer) => answer.admitted,
                            _ => self.decision.is_allowed(),
                        };
                        if is_served {
                            place.served(self.limiter.outage.now());
                            in_line.iter_mut().for_each(InLine::serve);
                        }
                        break Ok(attempt);
                    }
                    Err(end) => break Err(end),
                }
            };
            match attempt {
                Ok(Attempt::NoSlot(next, _)) => at = next,
                Ok(attempt) => {
                    self.conclude(attempt).await;
                    return Ok(());
                }
                Err(end) => {
                    self.decision.discard_outcomes();
                    return self.end(at, end);
                }
            }
        }
    }

    /// Waits until the request asks the store, or has to stop waiting.
    async fn await_turn<E>(
        &self,
        place: &LinePlace,
        mut held: std::pin::Pin<&mut impl Future<Output = Result<HoldEnd, E>>>,
        lease_end: Duration,
        attempts: u64,
    ) -> Event<E> {
        let mut retry: Option<SleepFuture> = None;
        poll_fn(|context| {
            if let Poll::Ready(end) = held.as_mut().poll(context) {
                return Poll::Ready(Event::Over(end));
            }
            loop {
                match place.poll(context.waker()) {
                    Turn::Attempt => return Poll::Ready(Event::Attempt),
                    Turn::Displaced => return Poll::Ready(Event::Displaced),
                    Turn::Freed => return Poll::Ready(Event::Freed),
                    Turn::Behind => {
                        retry = None;
                        return Poll::Pending;
                    }
                    Turn::First => {
                        let sleep = retry.get_or_insert_with(|| {
                            let interval = self.limiter.retry_interval(lease_end, attempts, &self.decision);
                            self.limiter.sleep(interval)
                        });
                        if sleep.as_mut().poll(context).is_pending() {
                            return Poll::Pending;
                        }
                        retry = None;
                        place.signal();
                    }
                }
            }
        })
        .await
    }

    /// Attempts, unless the request has to stop waiting before the store has answered. The store takes
    /// back a slot of an attempt that is dropped.
    async fn attempt_within<E>(
        &mut self,
        mut held: std::pin::Pin<&mut impl Future<Output = Result<HoldEnd, E>>>,
    ) -> Result<Attempt, Result<HoldEnd, E>> {
        let mut attempt = pin!(self.attempt());
        poll_fn(|context| match attempt.as_mut().poll(context) {
            Poll::Ready(attempt) => Poll::Ready(Ok(attempt)),
            Poll::Pending => held.as_mut().poll(context).map(Err),
        })
        .await
    }

    /// Applies a final attempt to the decision.
    async fn conclude(&mut self, attempt: Attempt) {
        if let Attempt::Answered(answer) = attempt {
            self.compensate(answer).await;
            let (limiter, matched) = (self.limiter, self.waiting.matched);
            limiter.conclude(matched, &mut self.decision, Ok(answer));
            if !answer.admitted {
                limiter.pass_slots_on(&self.decision);
            }
        }
        if !self.decision.is_allowed() {
            self.limiter.count_refusal(&self.decision);
        }
    }
}
