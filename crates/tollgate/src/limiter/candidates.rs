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

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Outcome, Quota, Timestamp, Verdict};
use tollgate_policy::{Check, Limit};
use tollgate_store::{Outcomes, Store};

use super::{Limiter, ask};
use crate::decision::Decision;

/// Indexes of checks in a decision.
type Places = SmallVec<[usize; 4]>;

/// The corrections to make after a batch.
pub(super) struct Compensation {
    /// Checks that were charged and must be refunded.
    refund: Places,
    /// Checks that were not charged and must be.
    charge: Places,
    /// The time of the batch.
    taken_at: Timestamp,
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

fn compensation(decision: &Decision<'_>, admitted: bool, taken_at: Timestamp) -> Compensation {
    let mut compensation = Compensation { refund: Places::new(), charge: Places::new(), taken_at };
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

/// The next correction to make.
enum Correction<'d> {
    /// Charges checks that were not charged.
    Charge(Vec<tollgate_store::Check<'d>>),
    /// Refunds the units that one window was charged.
    Refund(&'d Check<'d>, Adjustment),
}

impl Compensation {
    /// Returns the next correction: first all charges as one batch, then one refund after the other.
    fn next<'d>(&self, decision: &'d Decision<'_>) -> Option<Correction<'d>> {
        if !self.charge.is_empty() {
            return Some(Correction::Charge(self.charges(decision)));
        }
        let place = *self.refund.first()?;
        let (check, outcome) = (decision.checks.get(place)?, decision.outcomes.get(place)?);
        let refund = Adjustment::Refund { units: outcome.units(), taken_at: self.taken_at };
        Some(Correction::Refund(check, refund))
    }

    /// Builds the batch of checks to charge. A store counts refusals only for checks that refuse, so
    /// checks that count refusals must refuse here.
    fn charges<'d>(&self, decision: &'d Decision<'_>) -> Vec<tollgate_store::Check<'d>> {
        let chosen = self.charge.iter().filter_map(|&at| decision.checks.get(at));
        chosen
            .map(|check| {
                let query = ask(check, decision.owner);
                tollgate_store::Check { binding: query.count_denied, ..query }
            })
            .collect()
    }

    /// Removes the correction that [`next`](Self::next) returned last, and replaces the outcomes of its
    /// limits. Without an answer, they stay as they are.
    fn apply(&mut self, decision: &mut Decision<'_>, outcomes: Outcomes) {
        if self.charge.is_empty() {
            let refunded = decision.outcomes.get_mut(self.refund.remove(0));
            if let (Some(slot), Some(&outcome)) = (refunded, outcomes.first()) {
                *slot = Outcome { verdict: Verdict::admitted(0), ..outcome };
            }
            return;
        }
        for (at, outcome) in std::mem::take(&mut self.charge).into_iter().zip(outcomes) {
            if let Some(slot) = decision.outcomes.get_mut(at) {
                *slot = outcome;
            }
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Corrects the charges of candidates without waiting. The error holds the corrections that the
    /// store has to be awaited for.
    #[inline]
    pub(super) fn try_compensate(
        &self,
        decision: &mut Decision<'_>,
        admitted: bool,
        at: Timestamp,
    ) -> Result<(), Compensation> {
        if is_possible(decision, admitted) { self.try_correct(decision, admitted, at) } else { Ok(()) }
    }

    #[cold]
    fn try_correct(
        &self,
        decision: &mut Decision<'_>,
        admitted: bool,
        at: Timestamp,
    ) -> Result<(), Compensation> {
        let mut missing = compensation(decision, admitted, at);
        loop {
            let answer = match missing.next(decision) {
                None => return Ok(()),
                Some(Correction::Charge(batch)) => {
                    let mut outcomes = Outcomes::new();
                    self.store.try_decide(&batch, &mut outcomes).map(|_| outcomes)
                }
                Some(Correction::Refund(check, refund)) => {
                    let refunded = self.store.try_adjust(check.rule, check.key.as_bytes(), refund);
                    refunded.map(|outcome| Outcomes::from_iter([outcome]))
                }
            };
            let Some(outcomes) = answer else { return Err(missing) };
            missing.apply(decision, outcomes);
        }
    }

    /// Corrects the charges of candidates on a store that waits. If the store gives no answer, the
    /// charges stay as they are, since candidates refuse no request.
    pub(super) async fn compensate(&self, decision: &mut Decision<'_>, mut missing: Compensation) {
        loop {
            let answer = match missing.next(decision) {
                None => return,
                Some(Correction::Charge(batch)) => {
                    self.call_store(&batch).await.map(|answer| answer.outcomes)
                }
                Some(Correction::Refund(check, refund)) => {
                    let refunding = self.store.adjust(check.rule, check.key.as_bytes(), refund);
                    self.observe_call(refunding).await.map(|outcome| Outcomes::from_iter([outcome]))
                }
            };
            missing.apply(decision, answer.unwrap_or_default());
        }
    }
}
