//! The floor under new keys: an upper bound of every state that was evicted.
//!
//! A table that is full evicts a live key for a new one. The evicted key may come back while
//! what it had spent still counts, and the table can no longer tell it from a key never seen.
//! So whoever is not found starts as if it had spent as much as any evicted key of its kind,
//! until the last of those would have been forgotten. A flood then gives nothing away: it
//! only makes the table stricter to new keys, which may be refused although they have spent
//! nothing.
//!
//! A *kind* is the rule that a state belongs to. A flood under one limit thus raises the floor of
//! that limit, and that of another one only where it evicts its keys. Rules whose ids agree in
//! the bits that a table keeps share a floor, which is stricter, never looser.
//!
//! The bound does not fade: units and time are each the largest that was evicted, until the
//! time has come. When more kinds are evicted than there is room for, the one that ends first
//! closes the floor: all new keys are refused until then.
//!
//! Not here: which key is evicted (`table`, `wide_table`).
//!
//! Invariant: an evicted state never admits less than the floor does, at any later instant.
//! Tested by `tests/floods.rs`, against states that are never evicted.

use tollgate_core::{Span, Timestamp};

/// Kinds with a floor of their own.
const KINDS: usize = 8;

/// As many units as this, or more.
const ALL: u32 = u32::MAX;

/// An upper bound of evicted states of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    kind: u16,
    /// Units spent, rounded up.
    units: u32,
    /// When the last of them has come back.
    until: Timestamp,
}

/// The floors of one part of a table. Takes memory from the first eviction on.
#[derive(Debug, Default)]
pub(super) struct Floors(Option<Box<Raised>>);

#[derive(Debug)]
struct Raised {
    kinds: [Floor; KINDS],
    closed_until: Timestamp,
}

/// Where a key starts that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// As one never seen.
    Fresh,
    /// From the floor of its kind.
    At(Floor),
    /// With everything spent.
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

    /// The smallest floor above both.
    fn above(self, other: Self) -> Self {
        Self { kind: self.kind, units: self.units.max(other.units), until: self.until.max(other.until) }
    }

    fn is_live(self, now: Timestamp) -> bool {
        self.until > now
    }
}

impl Start {
    /// The stricter start of a key that this one may have been, too.
    pub(super) fn above(self, other: Floor, now: Timestamp) -> Self {
        match self {
            _ if !other.is_live(now) => self,
            Self::Fresh => Self::At(other),
            Self::At(floor) => Self::At(floor.above(other)),
            Self::Closed => Self::Closed,
        }
    }

    /// The stricter of two starts of one key.
    pub(super) fn or(self, other: Self, now: Timestamp) -> Self {
        match other {
            Self::Fresh => self,
            Self::At(floor) => self.above(floor, now),
            Self::Closed => Self::Closed,
        }
    }

    /// How many units of this capacity are spent here, and when the last of them has come back.
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
    /// Remembers a state that is evicted.
    pub(super) fn raise(&mut self, evicted: Floor, now: Timestamp) {
        if !evicted.is_live(now) {
            return;
        }
        let none = Floor { kind: 0, units: 0, until: Timestamp::EPOCH };
        let raised = self
            .0
            .get_or_insert_with(|| Box::new(Raised { kinds: [none; KINDS], closed_until: Timestamp::EPOCH }));
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

    /// Where a key of this kind starts that is not in the table.
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

    /// What it takes on the heap, in bytes.
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
    fn a_floor_is_the_largest_of_what_was_evicted_of_its_kind_and_ends_at_once() {
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
    fn kinds_beyond_those_that_have_room_close_the_floor_until_the_first_ends() {
        let mut floors = Floors::default();
        for kind in 0..10 {
            floors.raise(floor(kind, 1, 100 - u64::from(kind)), NOW);
        }
        assert_eq!(floors.start(77, NOW + Span::from_secs(91)), Start::Closed);
        assert_eq!(floors.start(77, NOW + Span::from_secs(92)), Start::Fresh);
        assert_eq!(floors.start(3, NOW + Span::from_secs(92)), Start::At(floor(3, 1, 97)));
    }

    #[test]
    fn counts_beyond_32_bits_are_everything() {
        let (units, _) = Start::At(floor(1, 1 << 39, 10)).spent(1 << 40, Span::from_secs(60), NOW);
        assert!(units >= 1 << 40);
    }
}
