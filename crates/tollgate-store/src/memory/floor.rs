//! The floor of new keys: an upper bound of every evicted state.
//!
//! A full table evicts a live key for a new one. The evicted key may come back while its usage
//! still counts, and the table can no longer distinguish it from a new key. So an absent key starts
//! with the highest usage of any evicted key of its kind, until the last of those would have
//! expired. A flood of keys therefore gains nothing: it only makes the table stricter to new keys,
//! which may be refused although they have spent nothing.
//!
//! A *kind* is the rule that a state belongs to. A flood under one limit thus raises the floor of
//! that limit, and that of another one only where it evicts its keys. Rules whose ids agree in
//! the bits that a table keeps share a floor, which is stricter, never looser.
//!
//! The bound does not decay: units and time are each the maximum over evicted states until the time
//! has come. When more kinds are evicted than there is room for, the kind that ends first closes
//! the floor: all new keys are refused until then.
//!
//! The tables (`table`, `wide_table`) choose the evicted key.
//!
//! Invariant: an evicted state never admits less than the floor does, at any later instant. Tested
//! by `tests/floods.rs`, against states that are never evicted.

use tollgate_core::{Span, Timestamp};

/// The number of kinds with their own floor.
const KINDS: usize = 8;

/// This many units or more.
const ALL: u32 = u32::MAX;

/// An upper bound of evicted states of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    kind: u16,
    /// Units spent, rounded up.
    units: u32,
    /// The time at which the last of them has come back.
    until: Timestamp,
}

/// The floors of one part of a table. Allocates at the first eviction.
#[derive(Debug, Default)]
pub(super) struct Floors(Option<Box<KindFloors>>);

#[derive(Debug)]
struct KindFloors {
    kinds: [Floor; KINDS],
    closed_until: Timestamp,
}

/// The starting point of a key that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A fresh state.
    Fresh,
    /// The floor of its kind.
    At(Floor),
    /// Everything is spent.
    Closed,
}

impl Floor {
    pub(super) fn new(kind: u16, units: u64, until: Timestamp) -> Self {
        Self { kind, units: u32::try_from(units).unwrap_or(ALL), until }
    }

    pub(super) const fn kind(self) -> u16 {
        self.kind
    }

    pub(super) const fn until(self) -> Timestamp {
        self.until
    }

    /// Returns the smallest floor above both.
    fn above(self, other: Self) -> Self {
        Self { kind: self.kind, units: self.units.max(other.units), until: self.until.max(other.until) }
    }

    fn is_live(self, now: Timestamp) -> bool {
        self.until > now
    }
}

impl Start {
    /// Returns the stricter of this start and a floor.
    pub(super) fn above(self, other: Floor, now: Timestamp) -> Self {
        match self {
            _ if !other.is_live(now) => self,
            Self::Fresh => Self::At(other),
            Self::At(floor) => Self::At(floor.above(other)),
            Self::Closed => Self::Closed,
        }
    }

    /// Returns the stricter of two starts.
    pub(super) fn or(self, other: Self, now: Timestamp) -> Self {
        match other {
            Self::Fresh => self,
            Self::At(floor) => self.above(floor, now),
            Self::Closed => Self::Closed,
        }
    }

    /// Returns the spent units for this capacity, and the time at which the last of them has come
    /// back.
    pub(super) fn spent(self, capacity: u64, period: Span, now: Timestamp) -> (u64, Timestamp) {
        let all = capacity.saturating_mul(2).max(1);
        match self {
            Self::Fresh => (0, now),
            Self::At(Floor { units: ALL, until, .. }) => (all, until),
            Self::At(floor) => (floor.units.into(), floor.until),
            Self::Closed => (all, now + period),
        }
    }
}

impl Floors {
    /// Raises the floor to cover an evicted state.
    pub(super) fn raise(&mut self, evicted: Floor, now: Timestamp) {
        if !evicted.is_live(now) {
            return;
        }
        let none = Floor { kind: 0, units: 0, until: Timestamp::EPOCH };
        let raised = self.0.get_or_insert_with(|| {
            Box::new(KindFloors { kinds: [none; KINDS], closed_until: Timestamp::EPOCH })
        });
        let mut live = raised.kinds.iter_mut().filter(|it| it.is_live(now));
        if let Some(floor) = live.find(|it| it.kind == evicted.kind) {
            *floor = floor.above(evicted);
            return;
        }
        let Some(first) = raised.kinds.iter_mut().min_by_key(|it| it.until) else { return };
        let ends_first = match *first {
            known if known.until < evicted.until => std::mem::replace(first, evicted),
            _ => evicted,
        };
        if ends_first.is_live(now) {
            raised.closed_until = raised.closed_until.max(ends_first.until);
        }
    }

    /// Returns the start of a key of this kind that is not in the table.
    pub(super) fn start(&self, kind: u16, now: Timestamp) -> Start {
        match &self.0 {
            None => Start::Fresh,
            Some(raised) if raised.closed_until > now => Start::Closed,
            Some(raised) => {
                let mut live = raised.kinds.iter().filter(|it| it.is_live(now));
                live.find(|it| it.kind == kind).map_or(Start::Fresh, |floor| Start::At(*floor))
            }
        }
    }

    /// Returns the heap memory in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.as_deref().map_or(0, size_of_val)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn floor(kind: u16, units: u64, secs: u64) -> Floor {
        Floor::new(kind, units, NOW + Span::from_secs(secs))
    }

    #[test]
    fn a_floor_is_the_maximum_of_its_evicted_states_until_it_ends() {
        let mut floors = Floors::default();
        floors.raise(floor(1, 3, 20), NOW);
        floors.raise(floor(1, 7, 10), NOW);
        floors.raise(floor(2, 9, 5), NOW);
        let later = |secs| NOW + Span::from_secs(secs);
        assert_eq!(floors.start(1, NOW), Start::At(floor(1, 7, 20)));
        assert_eq!(floors.start(1, later(19)), Start::At(floor(1, 7, 20)), "it does not fade");
        assert_eq!(floors.start(1, later(20)), Start::Fresh);
        assert_eq!(floors.start(2, later(5)), Start::Fresh);
        assert_eq!(floors.start(3, NOW), Start::Fresh);
    }

    #[test]
    fn too_many_kinds_close_the_floor_until_the_first_ends() {
        let mut floors = Floors::default();
        for kind in 0..10 {
            floors.raise(floor(kind, 1, 100 - u64::from(kind)), NOW);
        }
        assert_eq!(floors.start(77, NOW + Span::from_secs(91)), Start::Closed);
        assert_eq!(floors.start(77, NOW + Span::from_secs(92)), Start::Fresh);
        assert_eq!(floors.start(3, NOW + Span::from_secs(92)), Start::At(floor(3, 1, 97)));
    }

    #[test]
    fn counts_beyond_32_bits_saturate() {
        let (units, _) = Start::At(floor(1, 1 << 39, 10)).spent(1 << 40, Span::from_secs(60), NOW);
        assert!(units >= 1 << 40);
    }
}
