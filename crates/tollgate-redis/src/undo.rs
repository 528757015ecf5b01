//! The changes that undo the charges of a whole call.

use tollgate_core::Adjustment;
use tollgate_store::parts::undo_check;

use crate::batch::{Batch, Item};
use crate::reply::{Replay, ScriptReply};

/// Returns the changes that undo a call whose waiters are gone, each with the index of its key.
pub(crate) fn undo_call(batch: &Batch, reply: ScriptReply) -> Vec<(usize, Adjustment)> {
    let mut undone = Vec::new();
    let taken_at = reply.now;
    let Ok(mut replay) = Replay::new(batch, reply) else { return undone };
    for item in &batch.items {
        match item {
            Item::Change { key, adjustment, .. } => drop(replay.change(*key, *adjustment)),
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

/// Adds a change and merges refunds of the same key. The charges of a call follow each other, so they
/// are one charge that ends with the last of them.
fn add(undone: &mut Vec<(usize, Adjustment)>, key: usize, change: Adjustment) {
    if let Adjustment::Refund { units: more, charge: last } = change
        && let Some((_, Adjustment::Refund { units, charge })) = undone
            .iter_mut()
            .rev()
            .find(|(known, it)| *known == key && matches!(it, Adjustment::Refund { .. }))
    {
        *units += more;
        charge.until = charge.until.max(last.until);
    } else {
        undone.push((key, change));
    }
}
