//! What gives back what a check took.

use tollgate_core::{Adjustment, Demand, Outcome, Timestamp};

/// What gives back what one check took at this time, if it took anything. `renewed`: it
/// held its slot before, and keeps it.
pub(crate) fn undo(
    demand: Demand,
    outcome: &Outcome,
    renewed: bool,
    taken_at: Timestamp,
) -> Option<Adjustment> {
    match demand {
        Demand::Slot(owner) if outcome.is_admitted() && !renewed => Some(Adjustment::Release { owner }),
        Demand::Exactly(_) | Demand::UpTo(_) if outcome.units() > 0 => {
            Some(Adjustment::Refund { units: outcome.units(), taken_at })
        }
        Demand::Slot(_) | Demand::Exactly(_) | Demand::UpTo(_) => None,
    }
}
