//! Limits that refuse nobody count as they would if they did.
//!
//! A batch comes close by itself: what binds nobody is charged with an admitted request
//! if it has room. Three things are missing, all of them rare, and put right here by a
//! second question:
//!
//! - A candidate that is more generous than the limit beside it is charged for what that
//!   one refused, where nobody else refused it.
//! - Of several windows, those that had room give back what they were charged where
//!   another of the same limit had none: in force, it would have charged none of them.
//! - One that counts refusals is charged for those that it would have made.
//!
//! Slots are held by requests that run: one that was refused holds none, so a candidate
//! that has slots never counts those that it alone would have let pass. Nor does any
//! candidate count what its limit blocks outright.
//!
//! Held by `tests/beside/candidates.rs`: state and answers are those of a limit in force.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Outcome, Quota, Timestamp, Verdict};
use tollgate_policy::{Check, Limit};
use tollgate_store::{Outcomes, Store};

use super::{Batch, Limiter, ask};
use crate::decision::Decision;

/// Some checks of a decision, by their places.
type Places = SmallVec<[usize; 4]>;

/// What is to be put right after a batch.
#[derive(Default)]
struct Compensation {
    /// Charged, and would not have been.
    give_back: Places,
    /// Not charged, and would have been.
    ask: Places,
}

/// Whether there may be anything to put right: asked about every request.
#[inline]
fn is_possible(decision: &Decision<'_>, admitted: bool) -> bool {
    if admitted {
        decision.outcomes.iter().any(|outcome| !outcome.is_admitted())
    } else {
        decision.checks.iter().any(|check| check.limit.candidate_of().is_some())
    }
}

#[cold]
fn compensation(decision: &Decision<'_>, admitted: bool) -> Compensation {
    let mut compensation = Compensation::default();
    let refuses = |limit: &Limit| {
        let counted = decision.checks.iter().zip(&decision.outcomes);
        counted
            .into_iter()
            .any(|(check, outcome)| check.limit.place() == limit.place() && !outcome.is_admitted())
    };
    let binds = |check: &Check<'_>| ask(check, None).binding;
    let counted = decision.checks.iter().zip(&decision.outcomes).enumerate();
    for (at, (check, outcome)) in counted.filter(|(_, (check, _))| !binds(check)) {
        let counts_refusals = check.limit.count_denied();
        if admitted {
            if outcome.is_admitted() && outcome.units() > 0 && !counts_refusals && refuses(check.limit) {
                compensation.give_back.push(at);
            } else if !outcome.is_admitted() && counts_refusals {
                compensation.ask.push(at);
            }
        } else if let Some(live) = check.limit.candidate_of() {
            let holds_slot = matches!(check.rule.quota, Quota::Concurrency(_));
            let mut others = decision.checks.iter().filter(|it| binds(it) && it.limit.place() != live);
            // What counts refusals was charged with this one.
            if !counts_refusals
                && !holds_slot
                && !refuses(check.limit)
                && !others.any(|other| refuses(other.limit))
            {
                compensation.ask.push(at);
            }
        }
    }
    compensation
}

/// The batch of those that are to be charged. Refusals are counted where they are made:
/// so what counts them has to refuse.
fn batch<'b>(decision: &'b Decision<'_>, compensation: &Compensation) -> Batch<'b> {
    let chosen = compensation.ask.iter().filter_map(|&at| decision.checks.get(at));
    chosen
        .map(|check| {
            let asked = ask(check, decision.owner);
            tollgate_store::Check { binding: asked.count_denied, ..asked }
        })
        .collect()
}

/// The limits stand as they do after they were charged.
fn apply_outcomes(decision: &mut Decision<'_>, compensation: &Compensation, charged: Outcomes) {
    for (&at, outcome) in compensation.ask.iter().zip(charged) {
        if let Some(told) = decision.outcomes.get_mut(at) {
            *told = outcome;
        }
    }
}

/// What one window gives back, and how it stands then: it would have had room.
fn refund(decision: &Decision<'_>, place: usize, taken_at: Timestamp) -> Option<Adjustment> {
    let units = decision.outcomes.get(place)?.units();
    Some(Adjustment::Refund { units, taken_at })
}

fn apply_refund(decision: &mut Decision<'_>, place: usize, refunded: Outcome) {
    if let Some(told) = decision.outcomes.get_mut(place) {
        *told = Outcome { verdict: Verdict::admitted(0), ..refunded };
    }
}

/// The answer of a store in this process.
fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl<S: Store> Limiter<S> {
    /// Puts right what limits that refuse nobody were charged. `false`: the store has to
    /// be waited for, and nothing has happened.
    #[inline]
    pub(super) fn try_compensate(&self, decision: &mut Decision<'_>, admitted: bool, at: Timestamp) -> bool {
        if !is_possible(decision, admitted) {
            return true;
        }
        let compensation = compensation(decision, admitted);
        let mut charged = Outcomes::new();
        if !compensation.ask.is_empty() {
            let batch = batch(decision, &compensation);
            if self.store.try_decide(&batch, &mut charged).is_none() {
                // Only refusals are known without asking: an admitted batch was charged here.
                return admitted;
            }
            drop(batch);
            apply_outcomes(decision, &compensation, charged);
        }
        for &place in &compensation.give_back {
            let check = &decision.checks[place];
            let refunded = refund(decision, place, at)
                .and_then(|refund| ready(self.store.adjust(check.rule, check.key.as_bytes(), refund)));
            if let Some(Ok(refunded)) = refunded {
                apply_refund(decision, place, refunded);
            }
        }
        true
    }

    /// The same, where the store has to be waited for. One that gives no answer leaves
    /// things as they are: nobody is refused for it.
    pub(super) async fn compensate(&self, decision: &mut Decision<'_>, admitted: bool, at: Timestamp) {
        if !is_possible(decision, admitted) {
            return;
        }
        let compensation = compensation(decision, admitted);
        if !compensation.ask.is_empty() {
            let batch = batch(decision, &compensation);
            let answer = self.ask_store(&batch).await;
            drop(batch);
            if let Ok(answer) = answer {
                apply_outcomes(decision, &compensation, answer.outcomes);
            }
        }
        for &place in &compensation.give_back {
            let Some(refund) = refund(decision, place, at) else { continue };
            let check = &decision.checks[place];
            let refunded = self.store.adjust(check.rule, check.key.as_bytes(), refund).await;
            if let Ok(refunded) = refunded {
                apply_refund(decision, place, refunded);
            }
        }
    }
}
