//! The changes that undo charges: of one check, or of a whole call.

use tollgate_core::{Adjustment, Amount, Outcome, Timestamp};

use crate::batch::{Batch, Item};
use crate::reply::{Replay, ScriptReply};

/// Returns the change that undoes a check at this time, if the check charged anything. `renewed`:
/// the owner held its slot before and keeps it.
pub(crate) fn undo_check(
    amount: Amount,
    outcome: &Outcome,
    renewed: bool,
    taken_at: Timestamp,
) -> Option<Adjustment> {
    match amount {
        Amount::Slot(owner) if outcome.is_admitted() && !renewed => Some(Adjustment::Release { owner }),
        Amount::Exactly(_) | Amount::UpTo(_) if outcome.units() > 0 => {
            Some(Adjustment::Refund { units: outcome.units(), taken_at })
        }
        Amount::Slot(_) | Amount::Exactly(_) | Amount::UpTo(_) => None,
    }
}

/// Returns the changes that undo a call whose waiters are gone, each with the index of its key.
pub(crate) fn undo_call(batch: &Batch, reply: ScriptReply) -> Vec<(usize, Adjustment)> {
    let mut undone = Vec::new();
    let taken_at = reply.now;
    let Ok(mut replay) = Replay::new(batch, reply) else { return undone };
    for item in &batch.items {
        match item {
            Item::Change { key, .. } => drop(replay.change(*key)),
            Item::Requests { checks, many } => {
                let Ok(mut requests) = replay.requests(checks, *many) else { continue };
                for _ in 0..requests.admitted {
                    let (decided, _) = requests.admit();
                    for (at, (check, outcome)) in checks.iter().zip(&decided.answer.outcomes).enumerate() {
                        let renewed = decided.renewed.contains(&at);
                        if let Some(change) = undo_check(check.amount, outcome, renewed, taken_at) {
                            add(&mut undone, check.key, change);
                        }
                    }
                }
                if requests.admitted < *many {
                    drop(requests.refuse());
                }
            }
        }
    }
    undone
}

/// Adds a change and merges refunds of the same key.
fn add(undone: &mut Vec<(usize, Adjustment)>, key: usize, change: Adjustment) {
    if let Adjustment::Refund { units: more, .. } = change
        && let Some((_, Adjustment::Refund { units, .. })) = undone
            .iter_mut()
            .rev()
            .find(|(known, it)| *known == key && matches!(it, Adjustment::Refund { .. }))
    {
        *units += more;
    } else {
        undone.push((key, change));
    }
}
