//! Remembers the caller of a charge whose final cost is reported later.
//!
//! The sums of an explanation use final costs. A settlement has the id of a decision but not its
//! request, so the caller of each charge that may be settled is stored in a table of fixed size, in
//! which a newer charge replaces an older one. If a charge was replaced, its sum keeps the reserved
//! amount.
//!
//! The sums are in `spenders`.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::DecisionId;

/// The number of charges that are remembered.
const SLOTS: usize = 16_384;

/// The callers of charges that may be settled.
pub(crate) struct Reservations(Box<[Slot]>);

#[derive(Default)]
struct Slot {
    /// The hash of an allowance and a decision. Zero marks a free slot.
    charge: AtomicU64,
    caller: AtomicU64,
}

impl Reservations {
    pub(crate) fn new() -> Self {
        Self((0..SLOTS).map(|_| Slot::default()).collect())
    }

    /// Stores the caller of a charge.
    pub(crate) fn put(&self, key_hash: u64, id: DecisionId, caller: u64) {
        let charge = charge(key_hash, id);
        let Some(slot) = self.slot(charge) else { return };
        // A reader that races with this store may correct the sum of another caller. The sums are
        // lower bounds, so this is acceptable.
        slot.caller.store(caller, Ordering::Relaxed);
        slot.charge.store(charge, Ordering::Release);
    }

    /// Removes and returns the caller of a charge.
    pub(crate) fn take(&self, key_hash: u64, id: DecisionId) -> Option<u64> {
        let charge = charge(key_hash, id);
        let slot = self.slot(charge)?;
        let taken = slot.charge.compare_exchange(charge, 0, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| slot.caller.load(Ordering::Relaxed))
    }

    fn slot(&self, charge: u64) -> Option<&Slot> {
        // The remainder is smaller than the table.
        self.0.get(usize::try_from(charge % SLOTS as u64).unwrap_or(0))
    }
}

/// Combines two values that are uniformly distributed.
fn charge(key_hash: u64, id: DecisionId) -> u64 {
    (key_hash ^ id.0.rotate_left(32)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_found_once_by_its_allowance_and_decision() {
        let reservations = Reservations::new();
        reservations.put(7, DecisionId(1), 70);
        reservations.put(8, DecisionId(1), 80);
        assert_eq!(reservations.take(7, DecisionId(2)), None);
        assert_eq!(reservations.take(7, DecisionId(1)), Some(70));
        assert_eq!(reservations.take(7, DecisionId(1)), None);
        assert_eq!(reservations.take(8, DecisionId(1)), Some(80));
    }
}
