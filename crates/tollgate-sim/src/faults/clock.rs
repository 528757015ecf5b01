//! A clock of one machine: it starts somewhere, runs at its own rate, steps and stands still.

use tollgate::{ManualClock, Timestamp};

/// True time of the simulated world, in microseconds since its start.
pub(super) type TrueTime = u64;

/// The time that every clock shows at the start, in microseconds.
const START_US: u64 = 1_800_000_000_000_000;

/// Stores are created on a clock that is earlier by this much, so that a step back stays within their range.
const RANGE_US: u64 = 3 * 86_400_000_000;

/// The clock of a node or of a shard.
pub(super) struct SimClock {
    shown: ManualClock,
    /// The wall clock of the same machine, which can be set.
    wall: ManualClock,
    wall_ahead: i64,
    /// The reading at `since`.
    reading: u64,
    since: TrueTime,
    /// How much faster than true time it runs, in parts per million.
    ppm: i64,
    is_frozen: bool,
}

impl SimClock {
    pub(super) fn new(now: TrueTime) -> Self {
        let [shown, wall] = [(), ()].map(|()| ManualClock::at(Timestamp::from_micros(START_US - RANGE_US)));
        Self { shown, wall, wall_ahead: 0, reading: START_US + now, since: now, ppm: 0, is_frozen: false }
    }

    /// Returns the clock for the code under test. It shows the time of the last [`sync`](Self::sync).
    pub(super) fn shown(&self) -> ManualClock {
        self.shown.clone()
    }

    /// Returns the wall clock of the machine.
    pub(super) fn wall(&self) -> ManualClock {
        self.wall.clone()
    }

    /// Returns the time that the code under test sees.
    pub(super) fn shown_now(&self) -> Timestamp {
        use tollgate::Clock as _;
        self.shown.now()
    }

    /// Returns the reading at a true time.
    pub(super) fn read(&self, now: TrueTime) -> u64 {
        if self.is_frozen {
            return self.reading;
        }
        let passed = i64::try_from(now.saturating_sub(self.since)).unwrap_or(i64::MAX);
        self.reading.saturating_add_signed(
            passed + passed / 1_000_000 * self.ppm + passed % 1_000_000 * self.ppm / 1_000_000,
        )
    }

    /// Shows the time to the code under test.
    pub(super) fn sync(&self, now: TrueTime) -> u64 {
        let reading = self.read(now);
        self.shown.set(Timestamp::from_micros(reading));
        self.wall.set(Timestamp::from_micros(reading.saturating_add_signed(self.wall_ahead)));
        reading
    }

    /// Returns the true time at which the clock will show `reading`, if it is not disturbed until then.
    pub(super) fn true_time_of(&self, reading: u64, now: TrueTime) -> TrueTime {
        let left = i64::try_from(reading.saturating_sub(self.read(now))).unwrap_or(i64::MAX);
        // A clock that runs fast gets there earlier. Rounded up, so that a timer never fires early.
        now.saturating_add_signed(left - left / 1_000 * self.ppm / 1_000 + i64::from(left > 0))
    }

    fn rebase(&mut self, now: TrueTime) {
        self.reading = self.read(now);
        self.since = now;
    }

    pub(super) fn step(&mut self, by: i64, now: TrueTime) {
        self.rebase(now);
        self.reading = self.reading.saturating_add_signed(by);
    }

    /// Sets the wall clock.
    pub(super) fn step_wall(&mut self, by: i64) {
        self.wall_ahead += by;
    }

    pub(super) fn set_rate(&mut self, ppm: i64, now: TrueTime) {
        self.rebase(now);
        self.ppm = ppm;
    }

    pub(super) fn set_frozen(&mut self, is_frozen: bool, now: TrueTime) {
        self.rebase(now);
        self.is_frozen = is_frozen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_steps_drifts_and_stands_still() {
        let mut clock = SimClock::new(0);
        clock.set_rate(1_000, 0);
        assert_eq!(clock.read(2_000_000), START_US + 2_002_000);
        clock.step(-5_000, 2_000_000);
        assert_eq!(clock.read(2_000_000), START_US + 1_997_000);
        clock.set_frozen(true, 2_000_000);
        assert_eq!(clock.read(9_000_000), START_US + 1_997_000);
        clock.set_frozen(false, 9_000_000);
        clock.set_rate(0, 9_000_000);
        assert_eq!(clock.read(9_000_010), START_US + 1_997_010);
        assert!(clock.read(clock.true_time_of(START_US + 3_000_000, 9_000_000)) >= START_US + 3_000_000);
    }
}
