//! The floors of the table of words, one for each region of lines.

use tollgate_core::Timestamp;

use super::floor::{ClockFloors, SavedFloors, Start};
use super::instant::{ClockKind, Instant};
use super::sync::{AtomicU64, Mutex, Ordering, lock};
use super::table::LINES_PER_KEY;
use super::word::KeyUsage;

/// The number of lines per floor: few enough that a floor affects few keys, enough that floors take
/// less than a byte per key.
const LINES_PER_FLOOR: usize = 64;

/// The floors of all lines.
pub(super) struct FloorMap {
    regions: Box<[Mutex<ClockFloors>]>,
    /// The times in microseconds from which no floor counts, on the monotonic and on the wall clock.
    until: [AtomicU64; 2],
}

impl FloorMap {
    pub(super) fn new(lines: usize) -> Self {
        let regions = lines.div_ceil(LINES_PER_FLOOR);
        Self {
            regions: (0..regions).map(|_| Mutex::default()).collect(),
            until: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Raises the floor of a line to cover a state whose slot is reused.
    pub(super) fn raise(&self, line: usize, usage: KeyUsage, at: Instant) {
        lock(&self.regions[line / LINES_PER_FLOOR]).raise(usage.floor, usage.clock, at.on(usage.clock));
        self.until(usage.clock).fetch_max(usage.floor.until().as_micros(), Ordering::AcqRel);
    }

    /// Returns the start of a key of this kind that is in none of these lines, at `time` of its
    /// clock.
    pub(super) fn start(
        &self,
        lines: [usize; LINES_PER_KEY],
        kind: u16,
        clock: ClockKind,
        time: Timestamp,
    ) -> Start {
        // Acquire: as for the slot that the key was not found in.
        if self.until(clock).load(Ordering::Acquire) <= time.as_micros() {
            return Start::Fresh;
        }
        lines.into_iter().fold(Start::Fresh, |start, line| {
            start.or(lock(&self.regions[line / LINES_PER_FLOOR]).start(kind, clock, time), time)
        })
    }

    /// Iterates over the floors of all regions, for a snapshot.
    pub(super) fn saved(&self) -> impl Iterator<Item = (usize, SavedFloors)> {
        let regions = self.regions.iter().enumerate();
        regions.flat_map(|(at, region)| lock(region).saved().into_iter().map(move |it| (at, it)))
    }

    /// Sets floors of a region from a snapshot. Returns `None` if there is no such region or list.
    pub(super) fn restore(&self, region: usize, saved: &SavedFloors) -> Option<()> {
        let (clock, until) = lock(self.regions.get(region)?).restore(saved)?;
        self.until(clock).fetch_max(until.as_micros(), Ordering::AcqRel);
        Some(())
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let heap: usize = self.regions.iter().map(|it| lock(it).heap_bytes()).sum();
        size_of_val(&*self.regions) + heap
    }

    const fn until(&self, clock: ClockKind) -> &AtomicU64 {
        match clock {
            ClockKind::Monotonic => &self.until[0],
            ClockKind::Wall => &self.until[1],
        }
    }
}
