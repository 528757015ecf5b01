//! A lot: the unspent units of one lease, in one atomic word.
//!
//! The word has the end of the lease in its upper 40 bits, in ticks of 64 µs since the store was
//! created, and the units in its lower 24 bits. A request spends by one compare-and-swap, which
//! checks the end and the units together.
//!
//! Units go back only into a lot with the same end: in a lot with a later end they would live longer
//! than their lease.

use crate::sync::{AtomicU64, Ordering};

/// The number of bits of the units.
const UNIT_BITS: u32 = 24;

/// The largest number of units in a lot.
pub(crate) const MAX_LOT_UNITS: u32 = (1 << UNIT_BITS) - 1;

/// The last tick that a word can hold: after more than two years. Nothing is leased from then on.
const MAX_TICK: u64 = (1 << (64 - UNIT_BITS)) - 1;

/// A time in ticks of 64 µs since the store was created, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u64);

impl Tick {
    #[cfg(all(loom, test))]
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) fn from_micros(micros: u64) -> Self {
        Self((micros >> 6).min(MAX_TICK))
    }

    pub(crate) const fn as_micros(self) -> u64 {
        self.0 << 6
    }
}

/// The units of a lot and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) units: u32,
    pub(crate) end: Tick,
}

impl Content {
    const fn unpack(word: u64) -> Self {
        // The mask keeps 24 bits.
        #[allow(clippy::cast_possible_truncation)]
        let units = (word & MAX_LOT_UNITS as u64) as u32;
        Self { units, end: Tick(word >> UNIT_BITS) }
    }

    const fn pack(self) -> u64 {
        self.end.0 << UNIT_BITS | self.units as u64
    }

    /// Returns whether the lot has units that may be spent at `now`.
    pub(crate) fn is_live(self, now: Tick) -> bool {
        self.units > 0 && now < self.end
    }
}

/// The unspent units of one lease.
#[derive(Debug)]
pub(crate) struct Lot(AtomicU64);

impl Lot {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn content(&self) -> Content {
        Content::unpack(self.0.load(Ordering::Acquire))
    }

    /// Takes up to `most` units, and at least `least`. Returns the taken units, with the end of the
    /// lot, and the number of units that are left.
    #[inline]
    pub(crate) fn take(&self, least: u32, most: u32, now: Tick) -> Option<(Content, u32)> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let content = Content::unpack(word);
            let units = most.min(content.units);
            if units < least.max(1) || now >= content.end {
                return None;
            }
            // The lot and the lease are published together, so there is nothing else to order.
            match self.0.compare_exchange_weak(
                word,
                word - u64::from(units),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some((Content { units, end: content.end }, content.units - units)),
                Err(current) => word = current,
            }
        }
    }

    /// Spends units of a lot with this content, which has enough. Returns false if the content has
    /// changed.
    #[inline]
    pub(crate) fn spend(&self, content: Content, units: u32) -> bool {
        let word = content.pack();
        let spent = word - u64::from(units);
        self.0.compare_exchange(word, spent, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts back units that were taken, if the lot is still that of the same lease. Returns whether it
    /// was.
    pub(crate) fn put_back(&self, taken: Content) -> bool {
        self.update(|content| {
            let units = content.units + taken.units;
            (content.end == taken.end && units <= MAX_LOT_UNITS).then_some(Content { units, ..content })
        })
    }

    /// Fills an empty or ended lot. Returns whether it was one.
    pub(crate) fn fill(&self, new: Content, now: Tick) -> bool {
        self.update(|content| (!content.is_live(now)).then_some(new))
    }

    /// Empties the lot, and returns its content.
    pub(crate) fn clear(&self) -> Content {
        Content::unpack(self.0.swap(0, Ordering::AcqRel))
    }

    /// Empties a lot that has ended, and returns the units that were not spent.
    pub(crate) fn clear_ended(&self, now: Tick) -> u32 {
        let mut ended = 0;
        let has_ended = self.update(|content| {
            ended = content.units;
            (now >= content.end && content.units > 0).then_some(Content { units: 0, ..content })
        });
        if has_ended { ended } else { 0 }
    }

    fn update(&self, mut change: impl FnMut(Content) -> Option<Content>) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let Some(new) = change(Content::unpack(word)) else { return false };
            match self.0.compare_exchange_weak(word, new.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Tick = Tick(100);

    fn filled(units: u32, end: u64) -> Lot {
        let lot = Lot::new();
        assert!(lot.fill(Content { units, end: Tick(end) }, NOW));
        lot
    }

    #[test]
    fn units_are_taken_until_the_end_and_not_after_it() {
        let lot = filled(5, 102);
        assert_eq!(lot.take(2, 2, Tick(101)), Some((Content { units: 2, end: Tick(102) }, 3)));
        assert_eq!(lot.take(4, 4, Tick(101)), None);
        assert_eq!(lot.take(1, 4, Tick(101)).map(|(taken, left)| (taken.units, left)), Some((3, 0)));
        assert_eq!(filled(5, 102).take(1, 1, Tick(102)), None);
    }

    #[test]
    fn units_go_back_only_into_their_own_lease() {
        let lot = filled(5, 102);
        let (taken, _) = lot.take(5, 5, NOW).unwrap();
        assert!(lot.put_back(taken));
        let (taken, _) = lot.take(5, 5, NOW).unwrap();
        assert!(lot.fill(Content { units: 3, end: Tick(110) }, NOW));
        assert!(!lot.put_back(taken));
        assert_eq!(lot.content(), Content { units: 3, end: Tick(110) });
    }

    #[test]
    fn a_live_lot_is_not_overwritten() {
        let lot = filled(5, 102);
        assert!(!lot.fill(Content { units: 3, end: Tick(110) }, NOW));
        assert_eq!(lot.clear_ended(NOW), 0);
        assert_eq!(lot.clear_ended(Tick(102)), 5);
        assert!(lot.fill(Content { units: MAX_LOT_UNITS, end: Tick(MAX_TICK) }, NOW));
        assert_eq!(lot.clear(), Content { units: MAX_LOT_UNITS, end: Tick(MAX_TICK) });
    }

    #[test]
    fn nothing_is_alive_beyond_the_last_tick() {
        let late = Tick::from_micros(u64::MAX);
        assert!(!filled(5, MAX_TICK).content().is_live(late));
    }
}
