//! Decisions that need the inner store.
//!
//! The lots cover as many units as they hold, and the store decides the rest. If a key of the rest is hot
//! and no lease of it is under way, the same batch asks for a lease, so that a lease costs no call of
//! its own and a refused batch takes none.

use std::future::poll_fn;
use std::task::Poll;

use smallvec::SmallVec;
use tollgate_core::{Amount, LeaseRequest, Outcome, Quota, Span, Timestamp, Verdict, Window};
use tollgate_store::{Answer, Check, Clock, Outcomes, Store, StoreError};

use crate::far::is_exact;
use crate::leased::Leased;
use crate::lot::{Content, Tick};
use crate::place::{Granted, Place};
use crate::plan::{Plan, leasable_units};
use crate::usage::renewal_threshold;

/// A lease that is being taken. Dropping it ends the attempt.
pub(crate) struct Asking<'l> {
    pub(crate) place: &'l Place,
    tag: u64,
    pub(crate) request: LeaseRequest,
}

impl<'l> Asking<'l> {
    /// Begins the attempt. The caller holds the lock of the place, and has checked that no other lease
    /// is being taken.
    pub(crate) fn new(place: &'l Place, tag: u64, request: LeaseRequest) -> Self {
        Self { place, tag, request }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(state) = &mut *self.place.state()
            && self.place.tag.load(crate::sync::Ordering::Acquire) == self.tag
        {
            state.end_asking();
        }
    }
}

/// A lease that another request or `tend` is taking.
struct Attempt<'l> {
    place: &'l Place,
    tag: u64,
    number: u64,
}

/// The times of a call to the store.
#[derive(Clone, Copy)]
pub(crate) struct CallTimes {
    /// The local time before the call.
    pub(crate) requested_at: Timestamp,
    /// The local time of the answer.
    pub(crate) answered: Timestamp,
    /// The time of the store.
    pub(crate) at: Timestamp,
}

/// Returns how long units that are leased at `at` may be spent: to the end of the window, and shorter
/// by a thousandth, because clocks run at different rates.
pub(crate) fn life(quota: &Quota, ttl: Span, outcome: &Outcome, at: Timestamp) -> Span {
    let closes_in = match quota {
        Quota::FixedWindow(_) => outcome.reset_after,
        Quota::SlidingWindow(it) => Window::Epoch(it.rate().period).closes(at).since(at),
        _ => ttl,
    };
    let life = ttl.min(closes_in).as_micros();
    Span::from_micros((life - life / 1_000).saturating_sub(1))
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Decides a batch of which the store is asked for a part.
    pub(crate) async fn decide_leased(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let mut outcomes = Outcomes::new();
        let (mut now, mut tick) = self.now();
        let mut plan = Plan::of(self, checks, (now, tick));
        if plan.is_covered() {
            plan.admit(checks, std::iter::empty(), tick, &mut outcomes);
            return Ok(Answer { admitted: true, at: self.store_time(now), outcomes });
        }
        // A lease that is being taken brings the answer, at the latest with its own call.
        let claimed = self.claim(checks, &plan);
        let has_waited = claimed.is_some();
        if let Some(attempts) = claimed {
            drop(plan);
            self.leases_taken(&attempts).await?;
            (now, tick) = self.now();
            plan = Plan::of(self, checks, (now, tick));
            if plan.is_covered() {
                plan.admit(checks, std::iter::empty(), tick, &mut outcomes);
                return Ok(Answer { admitted: true, at: self.store_time(now), outcomes });
            }
            if let Some(refused) = self.dry_outcomes(checks, &plan, now) {
                plan.refuse(checks, refused.into_iter(), (now, tick), &mut outcomes);
                return Ok(Answer { admitted: false, at: self.store_time(now), outcomes });
            }
        }
        let mut batch = plan.rest(checks);
        let check_count = batch.len();
        let asking = self.begin_leases(&batch, (now, tick));
        for (at, asking) in &asking {
            batch.push(Check { amount: Amount::Lease(asking.request), ..batch[*at] });
        }
        if !asking.is_empty() {
            self.counts.calls.add(1);
        }
        let answer = self.inner.decide_uncached(&batch).await;
        let Answer { admitted, at, outcomes: answered } = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.put_off(&asking, &error);
                for check in &batch[..check_count] {
                    if let Some(place) = check.rule.far.as_ref().and_then(|_| self.find(check)) {
                        self.note_refused_need(check, place, now);
                    }
                }
                return Err(error);
            }
        };
        let (answered_at, tick) = self.now();
        let times = CallTimes { requested_at: now, answered: answered_at, at };
        self.note_store_time(at, answered_at);
        self.note_answers(&batch[..check_count], &answered, times);
        for ((_, asking), outcome) in asking.iter().zip(answered.iter().skip(check_count)) {
            self.install(asking, outcome, times);
        }
        drop(asking);
        let rest = answered.into_iter().take(check_count);
        if admitted {
            plan.admit(checks, rest, tick, &mut outcomes);
            return Ok(Answer { admitted, at, outcomes });
        }
        // A lease may have arrived while the store refused. The store is not asked again: a request
        // waits for one call, and for one that another request has made.
        if self.may_be_covered(checks, &plan, !has_waited).await {
            plan.put_back();
            let (now, tick) = self.now();
            let covered = Plan::of(self, checks, (now, tick));
            if covered.is_covered() {
                covered.admit(checks, std::iter::empty(), tick, &mut outcomes);
                return Ok(Answer { admitted: true, at: self.store_time(now), outcomes });
            }
        }
        plan.refuse(checks, rest, self.now(), &mut outcomes);
        Ok(Answer { admitted, at, outcomes })
    }

    /// Counts the units that the store decides, and begins to lease keys that are hot.
    fn begin_leases<'l>(
        &'l self,
        batch: &[Check<'_>],
        now: (Timestamp, Tick),
    ) -> SmallVec<[(usize, Asking<'l>); 2]> {
        let mut asking = SmallVec::new();
        for (at, check) in batch.iter().enumerate() {
            let Some(units) = leasable_units(check) else { continue };
            let Some(place) = self.table.claim((check.rule, check.key), now, &self.counts) else { continue };
            let tag = self.table.tag(check.rule.id, check.key);
            let mut guard = place.state();
            let Some(state) = guard.as_mut() else { continue };
            if place.tag.load(crate::sync::Ordering::Acquire) != tag {
                continue;
            }
            state.ask(units, now.0);
            if check.rule.far.is_some() {
                state.update_rule(check.rule);
            }
            let Some(ttl) = check.rule.lease else { continue };
            let size = state.lease_size(place, check.rule, ttl, now, self.inner.nodes());
            let is_draining = self.is_draining.load(std::sync::atomic::Ordering::Relaxed);
            if let Some(units) = size.filter(|_| !is_draining && check.binding) {
                state.begin_asking(units);
                state.update_rule(check.rule);
                asking.push((at, Asking::new(place, tag, LeaseRequest { units, ttl })));
            }
        }
        asking
    }

    /// Postpones leases after a failure.
    pub(crate) fn put_off(&self, asking: &[(usize, Asking<'_>)], error: &StoreError) {
        let (now, _) = self.now();
        for (_, asking) in asking {
            if let Some(state) = &mut *asking.place.state() {
                state.not_before = now + quarter(asking.request.ttl);
                if let StoreError::TimedOut(deadline) = error {
                    state.note_silence(*deadline);
                }
            }
        }
    }

    /// Records the outcomes of the store for the keys of a batch.
    fn note_answers(&self, batch: &[Check<'_>], answered: &[Outcome], times: CallTimes) {
        for (check, outcome) in batch.iter().zip(answered) {
            let Some(place) = self.find(check).filter(|_| !is_exact(check.rule)) else { continue };
            place.note(outcome, times.answered);
            self.note_need(check, place, outcome, times.answered);
            let Some(ttl) = check.rule.lease else { continue };
            let Verdict::Refused { .. } = outcome.verdict else {
                place.forget_refusal();
                continue;
            };
            // The store is not asked about a hot key at every request: that could be thousands of
            // times before the next unit comes back.
            let mut state = place.state();
            let is_hot = state.as_mut().is_some_and(|state| {
                state.usage(place, ttl, times.answered) >= crate::MIN_LEASE_UNITS.into()
            });
            if let (true, Some(units)) = (is_hot, leasable_units(check)) {
                place.note_refusal(units, times.answered + quarter(ttl));
            }
        }
    }

    /// Fills a lot with the units that the store has leased. Returns whether there were any.
    pub(crate) fn install(&self, asking: &Asking<'_>, outcome: &Outcome, times: CallTimes) -> bool {
        let Asking { place, tag, request } = asking;
        let (_, tick) = self.now();
        let mut guard = place.state();
        let Some(state) = guard.as_mut() else { return false };
        if place.tag.load(crate::sync::Ordering::Acquire) != *tag {
            return false;
        }
        place.note(outcome, times.answered);
        let units = u32::try_from(outcome.units()).unwrap_or(0);
        if units < request.units {
            state.not_before = times.answered + quarter(request.ttl);
        }
        // The store has no unit left: the requests that the lease does not cover need not ask.
        if units < request.units && outcome.remaining == 0 {
            place.note_refusal(1, state.not_before);
        } else {
            place.forget_refusal();
        }
        if units == 0 {
            return false;
        }
        let life = life(&state.rule.quota, request.ttl, outcome, times.at);
        let content = Content { units, end: self.tick(times.requested_at + life) };
        let granted = Granted { content, taken_at: times.at, ttl: request.ttl, far: None };
        if tick >= content.end || !state.fill(place, granted, tick, &self.counts) {
            self.counts.expired.add(units.into());
            self.counts.leased.add(units.into());
            return false;
        }
        let usage = state.usage(place, request.ttl, times.answered);
        place.low.store(renewal_threshold(usage), crate::sync::Ordering::Release);
        let is_new = !std::mem::replace(&mut state.is_listed, true);
        drop(guard);
        if is_new {
            self.table.list(place);
            // A caller that waits has to visit the key from now on.
            self.set_due();
        }
        // Last, so that no unit counts as spent before it is in a lot that is counted.
        self.counts.leased.add(units.into());
        true
    }

    /// Counts on the leases that are being taken for all that the lots do not cover. Returns the
    /// attempts; `None` if any check needs the store.
    fn claim<'l>(&self, checks: &[Check<'_>], plan: &Plan<'l>) -> Option<SmallVec<[Attempt<'l>; 2]>> {
        let parts = checks.iter().zip(&plan.parts).filter(|(_, part)| part.amount.is_some());
        let claimed = parts.map(|(check, part)| {
            let (place, Some(Amount::Exactly(missing))) = (part.place?, part.amount) else { return None };
            let tag = self.table.tag(check.rule.id, check.key);
            let mut guard = place.state();
            let is_key = place.tag.load(crate::sync::Ordering::Acquire) == tag;
            let number = guard.as_mut().filter(|_| is_key && check.binding)?.claim(missing)?;
            Some(Attempt { place, tag, number })
        });
        claimed.collect()
    }

    /// Waits for leases that are being taken. A store that is silent is not asked again: the request
    /// has waited for its deadline.
    async fn leases_taken(&self, attempts: &[Attempt<'_>]) -> Result<(), StoreError> {
        for Attempt { place, tag, number } in attempts {
            self.lease_taken(place, *tag).await;
            let silence = place.state().as_ref().and_then(|state| state.silence_since(*number));
            if let Some(deadline) = silence {
                return Err(StoreError::TimedOut(deadline));
            }
        }
        Ok(())
    }

    /// Returns whether the lots of all checks that were asked for have enough units now. Waits for
    /// leases that are being taken, if `waits` says so.
    async fn may_be_covered(&self, checks: &[Check<'_>], plan: &Plan<'_>, waits: bool) -> bool {
        for (check, part) in checks.iter().zip(&plan.parts) {
            let Some(Amount::Exactly(missing)) = part.amount else { continue };
            if missing == 0 || !check.binding {
                continue;
            }
            let Some(place) = leasable_units(check).and_then(|_| self.find(check)) else { return false };
            if waits {
                self.lease_taken(place, self.table.tag(check.rule.id, check.key)).await;
            }
            if place.held(self.now().1) < missing {
                return false;
            }
        }
        true
    }

    /// Waits for the lease of this key that is being taken, if there is one.
    pub(crate) async fn lease_taken(&self, place: &Place, tag: u64) {
        let mut awaited = None;
        poll_fn(|context| match &mut *place.state() {
            Some(state) if place.tag.load(crate::sync::Ordering::Acquire) == tag => {
                let attempt = state.attempt();
                // A later attempt is not waited for.
                if attempt.is_none() || attempt != *awaited.get_or_insert(attempt) {
                    return Poll::Ready(());
                }
                state.wake_later(context.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
    }
}

pub(crate) fn quarter(ttl: Span) -> Span {
    Span::from_micros(ttl.as_micros() / 4)
}
