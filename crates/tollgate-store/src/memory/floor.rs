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
//! A floor is in the time of its states: those of windows that are aligned to the clock on the wall
//! end when that clock says so, also after it was set ([`ClockFloors`]).
//!
//! The tables (`table`, `wide_table`) choose the evicted key.
//!
//! Invariant: an evicted state never admits less than the floor does, at any later instant. Tested
//! by `tests/floods.rs`, against states that are never evicted.

use tollgate_core::{Span, Timestamp};

use super::instant::ClockKind;

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

/// The floors of one part of a table, by the clock of their states. Allocates at the first
/// eviction.
#[derive(Debug, Default)]
pub(super) struct ClockFloors(Option<Box<FloorsByClock>>);

#[derive(Debug, Default)]
struct FloorsByClock {
    monotonic: Floors,
    wall: Floors,
    /// The windows that had closed before their memory was reused. They are open again if the wall
    /// clock steps back.
    closed_windows: Floors,
}

/// The floors of one clock.
#[derive(Debug, Default)]
struct Floors(Option<Box<KindFloors>>);

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

/// The floors of one list, for a snapshot.
#[derive(Debug)]
pub(super) struct SavedFloors {
    /// The monotonic clock, the wall clock, or closed windows.
    pub(super) list: u8,
    /// In microseconds.
    pub(super) closed_until: u64,
    /// Kind, units and end in microseconds.
    pub(super) kinds: Vec<(u16, u32, u64)>,
}

impl Floor {
    /// A bound of no state.
    pub(super) const NONE: Self = Self { kind: 0, units: 0, until: Timestamp::EPOCH };

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

impl ClockFloors {
    /// Raises the floor to cover a state whose memory is reused at `time` of its clock.
    pub(super) fn raise(&mut self, state: Floor, clock: ClockKind, time: Timestamp) {
        let is_live = state.is_live(time);
        if clock == ClockKind::Monotonic && !is_live {
            return;
        }
        let floors = self.0.get_or_insert_default();
        match clock {
            ClockKind::Monotonic => floors.monotonic.raise(state, time),
            ClockKind::Wall if is_live => {
                for ended in floors.wall.take_ended(time) {
                    floors.closed_windows.raise(ended, Timestamp::EPOCH);
                }
                floors.wall.raise(state, time);
            }
            ClockKind::Wall => floors.closed_windows.raise(state, Timestamp::EPOCH),
        }
    }

    /// Returns the start of a key of this kind that is not in the table, at `time` of its clock.
    pub(super) fn start(&self, kind: u16, clock: ClockKind, time: Timestamp) -> Start {
        match (&self.0, clock) {
            (None, _) => Start::Fresh,
            (Some(floors), ClockKind::Monotonic) => floors.monotonic.start(kind, time),
            (Some(floors), ClockKind::Wall) => {
                floors.wall.start(kind, time).or(floors.closed_windows.start(kind, time), time)
            }
        }
    }

    /// Returns the lists with a floor.
    pub(super) fn saved(&self) -> Vec<SavedFloors> {
        let lists = self.0.iter().flat_map(|it| [&it.monotonic, &it.wall, &it.closed_windows]);
        let of = |(list, floors): (u8, &Floors)| {
            let raised = floors.0.as_deref()?;
            let known = raised.kinds.iter().filter(|it| **it != Floor::NONE);
            let kinds = known.map(|it| (it.kind, it.units, it.until.as_micros())).collect();
            Some(SavedFloors { list, closed_until: raised.closed_until.as_micros(), kinds })
        };
        (0..).zip(lists).filter_map(of).collect()
    }

    /// Sets a list from a snapshot. Returns the clock of the list and the last end of its floors, or `None`
    /// for a list that does not exist or has too many floors.
    pub(super) fn restore(&mut self, saved: &SavedFloors) -> Option<(ClockKind, Timestamp)> {
        let mut kinds = [Floor::NONE; KINDS];
        for (at, &(kind, units, until)) in saved.kinds.iter().enumerate() {
            *kinds.get_mut(at)? = Floor { kind, units, until: Timestamp::from_micros(until) };
        }
        let closed_until = Timestamp::from_micros(saved.closed_until);
        let all = self.0.get_or_insert_default();
        let (floors, clock) = match saved.list {
            0 => (&mut all.monotonic, ClockKind::Monotonic),
            1 => (&mut all.wall, ClockKind::Wall),
            2 => (&mut all.closed_windows, ClockKind::Wall),
            _ => return None,
        };
        floors.0 = Some(Box::new(KindFloors { kinds, closed_until }));
        Some((clock, kinds.iter().map(|it| it.until).fold(closed_until, Timestamp::max)))
    }

    /// Returns the heap memory in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.as_deref().map_or(0, |floors| {
            let by_clock = [&floors.monotonic, &floors.wall, &floors.closed_windows];
            size_of_val(floors) + by_clock.map(Floors::heap_bytes).iter().sum::<usize>()
        })
    }
}

impl Floors {
    /// Raises the floor of a kind. Floors that have ended at `now` make room for it.
    fn raise(&mut self, evicted: Floor, now: Timestamp) {
        if !evicted.is_live(now) {
            return;
        }
        let raised = self.0.get_or_insert_with(|| {
            Box::new(KindFloors { kinds: [Floor::NONE; KINDS], closed_until: Timestamp::EPOCH })
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

    /// Removes the floors that have ended at `now`, and returns them.
    fn take_ended(&mut self, now: Timestamp) -> impl Iterator<Item = Floor> {
        let kinds = self.0.iter_mut().flat_map(|raised| &mut raised.kinds);
        kinds.filter(move |it| !it.is_live(now)).map(|it| std::mem::replace(it, Floor::NONE))
    }

    /// Returns the start of a key of this kind that is not in the table.
    fn start(&self, kind: u16, now: Timestamp) -> Start {
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
    fn heap_bytes(&self) -> usize {
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

    #[test]
    fn a_step_back_of_the_wall_clock_restores_floors_that_had_ended() {
        let mut floors = ClockFloors::default();
        let at = |secs| NOW + Span::from_secs(secs);
        floors.raise(floor(1, 7, 10), ClockKind::Wall, at(5));
        floors.raise(floor(2, 3, 30), ClockKind::Wall, at(20));
        floors.raise(floor(3, 9, 15), ClockKind::Wall, at(20));
        let starts = |at| [1, 2, 3].map(|kind| floors.start(kind, ClockKind::Wall, at));
        assert_eq!(starts(at(20)), [Start::Fresh, Start::At(floor(2, 3, 30)), Start::Fresh]);
        assert_eq!(starts(at(9)), [floor(1, 7, 10), floor(2, 3, 30), floor(3, 9, 15)].map(Start::At));
        assert_eq!(floors.start(1, ClockKind::Monotonic, at(9)), Start::Fresh);
    }
}
