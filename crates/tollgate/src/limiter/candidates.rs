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
//! A caller that stops waiting for its decision does not stop the corrections: those that were not sent
//! are deferred to `Limiter::reconcile`.
//!
//! Tested by `tests/advisory/candidates.rs`: state and answers equal those of a limit in force.

use smallvec::SmallVec;
use tollgate_core::{Adjustment, ChargeTimes, Outcome, Overdraft, Quota, Timestamp, Verdict};
use tollgate_policy::{Check, Limit};
use tollgate_store::{Outcomes, Store};

use super::settle::nth;
use super::{Limiter, ask};
use crate::decision::Decision;
use crate::outage::{Change, Outage};

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

/// One correction, which one call makes. Checks are named by their indexes in the decision.
enum Correction {
    /// Charges checks that were not charged.
    Charge(Places),
    /// Refunds the units that one window was charged.
    Refund(usize),
}

impl Compensation {
    /// Removes the next correction: first all charges as one batch, then one refund after the other.
    fn pop(&mut self) -> Option<Correction> {
        if !self.charge.is_empty() {
            return Some(Correction::Charge(std::mem::take(&mut self.charge)));
        }
        (!self.refund.is_empty()).then(|| Correction::Refund(self.refund.remove(0)))
    }

    /// Puts back the correction that [`pop`](Self::pop) returned last.
    fn put_back(&mut self, correction: Correction) {
        match correction {
            Correction::Charge(places) => self.charge = places,
            Correction::Refund(place) => self.refund.insert(0, place),
        }
    }

    /// Returns the refund of one window, if the decision charged it.
    fn refund<'d>(&self, decision: &'d Decision<'_>, place: usize) -> Option<(&'d Check<'d>, Adjustment)> {
        let (check, outcome) = (decision.checks.get(place)?, decision.outcomes.get(place)?);
        let charge = ChargeTimes::of(self.taken_at, outcome);
        Some((check, Adjustment::Refund { units: outcome.units(), charge }))
    }

    /// Defers the corrections that are left, because the caller no longer waits for the decision.
    pub(super) fn defer(&self, outage: &Outage, decision: &Decision<'_>) {
        let charges = self.charge.iter().filter_map(|&at| {
            let check = decision.checks.get(at)?;
            let holds_slot = matches!(check.rule.quota, Quota::Concurrency(_));
            let charge = Adjustment::Charge { units: check.cost, overdraft: Overdraft::None };
            (!holds_slot).then_some((at, check, charge))
        });
        let refunds = self.refund.iter().filter_map(|&at| {
            let (check, refund) = self.refund(decision, at)?;
            Some((at, check, refund))
        });
        let base = outage.next_id();
        for (at, check, adjustment) in charges.chain(refunds) {
            let (limit, rule, key, id) = (check.limit.name(), check.rule, &check.key, nth(base, at));
            let taken_at = self.taken_at;
            outage.defer_or_lose(&Change { limit, rule, key, adjustment, id, reserve: 0, taken_at });
        }
    }
}

impl Correction {
    /// Replaces the outcomes of the corrected limits. Without an answer, they stay as they are.
    fn apply(self, decision: &mut Decision<'_>, outcomes: Outcomes) {
        match self {
            Self::Charge(places) => {
                for (at, outcome) in places.into_iter().zip(outcomes) {
                    if let Some(slot) = decision.outcomes.get_mut(at) {
                        *slot = outcome;
                    }
                }
            }
            Self::Refund(place) => {
                if let (Some(slot), Some(&outcome)) = (decision.outcomes.get_mut(place), outcomes.first()) {
                    *slot = Outcome { verdict: Verdict::admitted(0), ..outcome };
                }
            }
        }
    }
}

/// Builds the batch of checks to charge. A store counts refusals only for checks that refuse, so
/// checks that count refusals must refuse here.
fn charges<'d>(places: &Places, decision: &'d Decision<'_>) -> Vec<tollgate_store::Check<'d>> {
    let chosen = places.iter().filter_map(|&at| decision.checks.get(at));
    chosen
        .map(|check| {
            let query = ask(check, decision.owner);
            tollgate_store::Check { binding: query.count_denied, ..query }
        })
        .collect()
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
        while let Some(correction) = missing.pop() {
            let answer = match &correction {
                Correction::Charge(places) => {
                    let mut outcomes = Outcomes::new();
                    self.store.try_decide(&charges(places, decision), &mut outcomes).map(|_| outcomes)
                }
                Correction::Refund(place) => match missing.refund(decision, *place) {
                    Some((check, refund)) => {
                        let refunded = self.store.try_adjust(check.rule, check.key.as_bytes(), refund);
                        refunded.map(|outcome| Outcomes::from_iter([outcome]))
                    }
                    None => Some(Outcomes::new()),
                },
            };
            let Some(outcomes) = answer else {
                missing.put_back(correction);
                return Err(missing);
            };
            correction.apply(decision, outcomes);
        }
        Ok(())
    }

    /// Corrects the charges of candidates on a store that waits. If the store gives no answer, the
    /// charges stay as they are, since candidates refuse no request.
    ///
    /// If the caller stops waiting, `missing` has the corrections that were not sent.
    pub(super) async fn compensate(&self, decision: &mut Decision<'_>, missing: &mut Compensation) {
        while let Some(correction) = missing.pop() {
            let answer = match &correction {
                Correction::Charge(places) => {
                    let batch = charges(places, decision);
                    self.call_store(&batch).await.map(|answer| answer.outcomes)
                }
                Correction::Refund(place) => {
                    let Some((check, refund)) = missing.refund(decision, *place) else { continue };
                    let refunding = self.store.adjust(check.rule, check.key.as_bytes(), refund);
                    self.observe_call(refunding).await.map(|outcome| Outcomes::from_iter([outcome]))
                }
            };
            correction.apply(decision, answer.unwrap_or_default());
        }
    }
}
