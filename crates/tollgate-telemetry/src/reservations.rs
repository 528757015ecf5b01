//! Remembers the callers of decisions whose final cost is reported later.
//!
//! The sums of an explanation use final costs. A settlement has the id of a decision but not its
//! request, so the caller of each decision that may be settled is stored in a table of fixed size, in
//! which a newer decision replaces an older one. If a decision was replaced, its sums keep the reserved
//! amounts. Most decisions are never settled, so each of them is one entry, however many limits it charges.
//!
//! A settlement may be repeated. A second table has the charges that were settled last.
//!
//! The sums are in `spenders`.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::DecisionId;

/// The number of decisions, and of settled charges, that are remembered.
const SLOTS: usize = 16_384;

/// The callers of decisions that may be settled.
pub(crate) struct Reservations {
    decisions: Box<[Slot]>,
    /// The charges that were settled: hashes of an allowance and a decision.
    settled: Box<[AtomicU64]>,
}

#[derive(Default)]
struct Slot {
    /// The id of a decision. Zero marks a free slot.
    id: AtomicU64,
    caller: AtomicU64,
}

impl Reservations {
    pub(crate) fn new() -> Self {
        Self {
            decisions: (0..SLOTS).map(|_| Slot::default()).collect(),
            settled: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Stores the caller of a decision.
    #[inline]
    pub(crate) fn put(&self, id: DecisionId, caller: u64) {
        let Some(slot) = self.decisions.get(place(id.0)) else { return };
        // A reader that races with this store may correct the sum of another caller. The sums are
        // lower bounds, so this is acceptable.
        slot.caller.store(caller, Ordering::Relaxed);
        slot.id.store(id.0, Ordering::Release);
    }

    /// Returns the caller of a charge that is settled for the first time.
    pub(crate) fn settle(&self, key_hash: u64, id: DecisionId) -> Option<u64> {
        let slot = self.decisions.get(place(id.0))?;
        if slot.id.load(Ordering::Acquire) != id.0 {
            return None;
        }
        let caller = slot.caller.load(Ordering::Relaxed);
        // Two values that are uniformly distributed. Zero marks a free place.
        let charge = (key_hash ^ id.0.rotate_left(32)).max(1);
        let before = self.settled.get(place(charge))?.swap(charge, Ordering::Relaxed);
        (before != charge).then_some(caller)
    }
}

/// Returns the place of a number in a table.
#[inline]
fn place(number: u64) -> usize {
    // The remainder is smaller than the table.
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_found_once_by_its_allowance_and_decision() {
        let reservations = Reservations::new();
        reservations.put(DecisionId(1), 70);
        reservations.put(DecisionId(3), 80);
        assert_eq!(reservations.settle(7, DecisionId(2)), None);
        assert_eq!(reservations.settle(7, DecisionId(1)), Some(70));
        assert_eq!(reservations.settle(7, DecisionId(1)), None);
        assert_eq!(reservations.settle(8, DecisionId(1)), Some(70));
        assert_eq!(reservations.settle(8, DecisionId(1)), None);
        assert_eq!(reservations.settle(8, DecisionId(3)), Some(80));
    }
}
