//! All or nothing across the partitions of a cluster.
//!
//! No script reaches across slots, so a request whose keys lie in several partitions
//! is asked of all of them at once, each part all-or-nothing by itself. If one part
//! refuses, or gives no answer, what the others had reserved is given back.
//!
//! What others can see meanwhile: units that were reserved and will be given back,
//! for about a round trip. Somebody may be refused for them; nobody is ever admitted
//! wrongly. Who dies in that moment leaves the units charged.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Demand, Outcome, Verdict};
use tollgate_store::{Answer, Check, Outcomes, StoreError};

use crate::draft::Decided;
use crate::lane::Hub;
use crate::store::ended;

/// A part of a request: which of its checks, and what they were told.
struct Part {
    lane: usize,
    checks: SmallVec<[usize; 4]>,
}

pub(crate) async fn reserve(
    hub: &Arc<Hub>,
    checks: &[Check<'_>],
    lane_of: impl Fn(&[u8]) -> usize,
) -> Result<Answer, StoreError> {
    let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
    for (at, check) in checks.iter().enumerate() {
        let lane = lane_of(check.key);
        match parts.iter_mut().find(|part| part.lane == lane) {
            Some(part) => part.checks.push(at),
            None => parts.push(Part { lane, checks: SmallVec::from_elem(at, 1) }),
        }
    }
    let asked: SmallVec<[_; 4]> = parts
        .iter()
        .map(|part| {
            let checks: SmallVec<[Check<'_>; 4]> = part.checks.iter().map(|&at| checks[at]).collect();
            hub.ask(part.lane, &checks)
        })
        .collect();
    let mut answers: SmallVec<[Result<Decided, StoreError>; 4]> = SmallVec::new();
    for answer in asked {
        answers.push(match answer.await {
            Ok(decided) => decided.map_err(StoreError::from),
            Err(_) => Err(ended()),
        });
    }
    let all = answers.iter().all(|it| it.as_ref().is_ok_and(|it| it.answer.admitted));
    let mut outcomes: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, checks.len());
    let (mut at, mut failure) = (None, None);
    for (part, answer) in parts.iter().zip(answers) {
        match answer {
            Err(error) => failure = Some(error),
            Ok(decided) => {
                at = Some(
                    at.map_or(decided.answer.at, |at: tollgate_core::Timestamp| at.min(decided.answer.at)),
                );
                let told = if all || !decided.answer.admitted {
                    decided.answer.outcomes
                } else {
                    give_back(hub, part, checks, &decided).await
                };
                for (&at, outcome) in part.checks.iter().zip(told) {
                    outcomes[at] = Some(outcome);
                }
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let outcomes: Option<Outcomes> = outcomes.into_iter().collect();
    match (outcomes, at) {
        (Some(outcomes), Some(at)) => Ok(Answer { admitted: all, at, outcomes }),
        _ => Err(StoreError::Failed("a partition told too little".into())),
    }
}

/// Gives back what one part reserved, but for limits that count refusals, and says how
/// its keys stand then.
async fn give_back(hub: &Arc<Hub>, part: &Part, checks: &[Check<'_>], decided: &Decided) -> Outcomes {
    let taken_at = decided.answer.at;
    let mut changes: SmallVec<[_; 4]> = SmallVec::new();
    for (place, (&at, outcome)) in part.checks.iter().zip(&decided.answer.outcomes).enumerate() {
        let check = &checks[at];
        let undo = match check.demand {
            _ if !outcome.is_admitted() || check.count_denied => None,
            // It held that slot before.
            Demand::Slot(_) if decided.renewed.contains(&place) => None,
            Demand::Slot(owner) => Some(Adjustment::Release { owner }),
            Demand::Exactly(_) | Demand::UpTo(_) if outcome.units() == 0 => None,
            Demand::Exactly(_) | Demand::UpTo(_) => {
                Some(Adjustment::Refund { units: outcome.units(), taken_at })
            }
        };
        changes.push(undo.map(|undo| hub.change(part.lane, (check.rule, check.key), undo)));
    }
    let mut told = Outcomes::new();
    for (change, outcome) in changes.into_iter().zip(&decided.answer.outcomes) {
        let mut outcome = *outcome;
        if let Verdict::Admitted { .. } = outcome.verdict {
            outcome.verdict = Verdict::admitted(0);
        }
        // If giving back fails, the key stays charged: too strict, not too generous.
        if let Some(change) = change
            && let Ok(Ok(after)) = change.await
        {
            outcome = after;
        }
        told.push(outcome);
    }
    told
}
