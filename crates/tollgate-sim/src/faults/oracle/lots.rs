//! The leased units of one key that one node may spend, as the replies of the store explain it.
//!
//! The book is an upper bound: a node ends its leases a little earlier, and may lose units. Units are taken from the
//! lease that ends first, which leaves the most for later; a node that spends in another order has no more.

/// The units of a lease.
#[derive(Clone, Copy, Debug)]
struct Lot {
    units: u64,
    /// By the clock of the node.
    end: u64,
}

/// The leased units of one key on one node.
#[derive(Debug, Default)]
pub(super) struct LotBook {
    /// The lease that ends first is the first.
    lots: Vec<Lot>,
    /// The last reply by which the key had too little, by the clock of the node.
    short_at: Option<u64>,
}

/// For how long ended lots are kept: a request may have taken units before it waited for the store.
const KEPT_US: u64 = 1_000_000;

impl LotBook {
    /// Adds a lease.
    pub(super) fn add(&mut self, units: u64, end: u64, local: u64) {
        self.lots.retain(|lot| lot.units > 0 && lot.end + KEPT_US > local);
        if units > 0 {
            let at = self.lots.partition_point(|lot| lot.end <= end);
            self.lots.insert(at, Lot { units, end });
        }
    }

    /// Takes units at a time. Returns the units that are missing.
    pub(super) fn take(&mut self, units: u64, local: u64) -> u64 {
        let mut missing = units;
        for lot in self.lots.iter_mut().filter(|lot| lot.end > local) {
            let taken = lot.units.min(missing);
            lot.units -= taken;
            missing -= taken;
        }
        missing
    }

    /// Returns the units that may be spent at a time.
    pub(super) fn held(&self, local: u64) -> u64 {
        self.lots.iter().filter(|lot| lot.end > local).map(|lot| lot.units).sum()
    }

    /// Records that the store had too little.
    pub(super) fn note_short(&mut self, local: u64) {
        self.short_at = Some(local);
    }

    /// Returns whether the node may refuse without asking: the store had too little within this span.
    pub(super) fn is_short(&self, local: u64, span: u64) -> bool {
        self.short_at.is_some_and(|at| local <= at + span)
    }
}

/// The usage of the leased units of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct LeaseUsage {
    /// The units of leases whose reply arrived.
    pub(in super::super) leased: u64,
    /// The units that admitted requests spent.
    pub(in super::super) spent: u64,
    /// The units that were taken by requests that were then not admitted. Those of leases that ended meanwhile could
    /// not be put back.
    pub(in super::super) taken_in_vain: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_from_the_lease_that_ends_first_and_not_after_its_end() {
        let mut book = LotBook::default();
        book.add(5, 200, 0);
        book.add(3, 100, 0);
        assert_eq!((book.held(0), book.held(100), book.held(200)), (8, 5, 0));
        assert_eq!(book.take(4, 50), 0);
        assert_eq!((book.held(50), book.held(100)), (4, 4));
        assert_eq!(book.take(6, 100), 2);
        assert!(!book.is_short(0, 10));
        book.note_short(100);
        assert!(book.is_short(110, 10) && !book.is_short(111, 10));
    }
}
