//! Computes the change that undoes a check.

use tollgate_core::{Adjustment, Amount, Outcome, Timestamp};

/// Returns the change that undoes a check at this time, if the check charged anything. `renewed`:
/// the owner held its slot before and keeps it.
pub(crate) fn undo(
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
