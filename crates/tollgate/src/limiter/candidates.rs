//! Corrects the counts of candidates, which must count as if they were in force.
//!
//! A candidate is a limit that does not refuse, such as one in shadow mode. A batch charges it with
//! an admitted request if it has room. Three rare cases need a correction by a second call:
//!
//! - A candidate more generous than the limit in force is charged for requests that only that limit
//!   refused.
//! - If one window of a candidate had no room, its other windows refund their charges: in force,
//!   the limit would have charged none of them.
//! - A candidate that counts refusals is charged for those that it would have made.
//!
//! Slots are held by running requests. A refused request holds none, so a candidate with slots
//! never counts requests that it alone would have admitted. Candidates also do not count requests
//! that their limit blocks.
//!
//! Tested by `tests/advisory/candidates.rs`: state and answers equal those of a limit in force.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Outcome, Quota, Timestamp, Verdict};
use tollgate_policy::{Check, Limit};
use tollgate_store::{Outcomes, Store};

use super::{Batch, Limiter, ask};
use crate::decision::Decision;

/// Indexes of checks in a decision.
type Places = SmallVec<[usize; 4]>;

/// The corrections to make after a batch.
#[derive(Default)]
struct Compensation {
    /// Checks that were charged and must be refunded.
    refund: Places,
    /// Checks that were not charged and must be.
    charge: Places,
}

/// Returns whether a correction may be needed. Runs on every request.
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
                compensation.refund.push(at);
            } else if !outcome.is_admitted() && counts_refusals {
                compensation.charge.push(at);
            }
        } else if let Some(live) = check.limit.candidate_of() {
            let holds_slot = matches!(check.rule.quota, Quota::Concurrency(_));
            let mut others = decision.checks.iter().filter(|it| binds(it) && it.limit.place() != live);
            // Limits that count refusals were charged with this one.
            if !counts_refusals
                && !holds_slot
                && !refuses(check.limit)
                && !others.any(|other| refuses(other.limit))
            {
                compensation.charge.push(at);
            }
        }
    }
    compensation
}

/// Builds the batch of checks to charge. A store counts refusals only for checks that refuse, so
/// checks that count refusals must refuse here.
fn batch<'b>(decision: &'b Decision<'_>, compensation: &Compensation) -> Batch<'b> {
    let chosen = compensation.charge.iter().filter_map(|&at| decision.checks.get(at));
    chosen
        .map(|check| {
            let query = ask(check, decision.owner);
            tollgate_store::Check { binding: query.count_denied, ..query }
        })
        .collect()
}

/// Replaces the outcomes of the limits with those after the charge.
fn apply_outcomes(decision: &mut Decision<'_>, compensation: &Compensation, charged: Outcomes) {
    for (&at, outcome) in compensation.charge.iter().zip(charged) {
        if let Some(outcome_slot) = decision.outcomes.get_mut(at) {
            *outcome_slot = outcome;
        }
    }
}

/// Returns the refund of the units that one window was charged.
fn refund(decision: &Decision<'_>, place: usize, taken_at: Timestamp) -> Option<Adjustment> {
    let units = decision.outcomes.get(place)?.units();
    Some(Adjustment::Refund { units, taken_at })
}

fn apply_refund(decision: &mut Decision<'_>, place: usize, refunded: Outcome) {
    if let Some(outcome_slot) = decision.outcomes.get_mut(place) {
        *outcome_slot = Outcome { verdict: Verdict::admitted(0), ..refunded };
    }
}

/// Polls a store in this process, which is always ready.
fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl<S: Store> Limiter<S> {
    /// Corrects the charges of candidates without waiting. Returns `false` if the store would have
    /// to wait; nothing was done then.
    #[inline]
    pub(super) fn try_compensate(&self, decision: &mut Decision<'_>, admitted: bool, at: Timestamp) -> bool {
        if !is_possible(decision, admitted) {
            return true;
        }
        let compensation = compensation(decision, admitted);
        let mut charged = Outcomes::new();
        if !compensation.charge.is_empty() {
            let batch = batch(decision, &compensation);
            if self.store.try_decide(&batch, &mut charged).is_none() {
                // Only refusals are answered without a call: an admitted batch was charged here.
                return admitted;
            }
            drop(batch);
            apply_outcomes(decision, &compensation, charged);
        }
        for &place in &compensation.refund {
            let check = &decision.checks[place];
            let refunded = refund(decision, place, at)
                .and_then(|refund| ready(self.store.adjust(check.rule, check.key.as_bytes(), refund)));
            if let Some(Ok(refunded)) = refunded {
                apply_refund(decision, place, refunded);
            }
        }
        true
    }

    /// Corrects the charges of candidates on a store that waits. If the store gives no answer, the
    /// charges stay as they are, since candidates refuse no request.
    pub(super) async fn compensate(&self, decision: &mut Decision<'_>, admitted: bool, at: Timestamp) {
        if !is_possible(decision, admitted) {
            return;
        }
        let compensation = compensation(decision, admitted);
        if !compensation.charge.is_empty() {
            let batch = batch(decision, &compensation);
            let answer = self.ask_store(&batch).await;
            drop(batch);
            if let Ok(answer) = answer {
                apply_outcomes(decision, &compensation, answer.outcomes);
            }
        }
        for &place in &compensation.refund {
            let Some(refund) = refund(decision, place, at) else { continue };
            let check = &decision.checks[place];
            let refunded = self.store.adjust(check.rule, check.key.as_bytes(), refund).await;
            if let Ok(refunded) = refunded {
                apply_refund(decision, place, refunded);
            }
        }
    }
}
