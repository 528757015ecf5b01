//! The change that undoes the charge of one check, for stores that learn late that it was made.

use tollgate_core::{Adjustment, Amount, ChargeTimes, LeaseRequest, Outcome, Timestamp};

/// Returns the change that undoes a check at this time, if the check charged anything. `renewed`:
/// the owner held its slot before and keeps it.
pub fn undo_check(
    amount: Amount,
    outcome: &Outcome,
    renewed: bool,
    taken_at: Timestamp,
) -> Option<Adjustment> {
    match amount {
        Amount::Slot(owner) if outcome.is_admitted() && !renewed => Some(Adjustment::Release { owner }),
        Amount::Exactly(_) | Amount::UpTo(_) if outcome.units() > 0 => {
            let charge = ChargeTimes::of(taken_at, outcome);
            Some(Adjustment::Refund { units: outcome.units(), charge })
        }
        Amount::Lease(LeaseRequest { ttl, .. }) if outcome.units() > 0 => {
            // At most the requested units, which fit.
            let units = u32::try_from(outcome.units()).unwrap_or(u32::MAX);
            Some(Adjustment::ReturnLease { units, taken_at, ttl })
        }
        Amount::Slot(_) | Amount::Exactly(_) | Amount::UpTo(_) | Amount::Lease(_) => None,
    }
}
