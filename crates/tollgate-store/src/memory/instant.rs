//! An instant on both clocks: windows that are aligned to the calendar or to 1970 follow the wall
//! clock, all other states the monotonic one.

use tollgate_core::{Quota, Timestamp};

/// The clock that the times of a state belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockKind {
    Monotonic = 0,
    Wall = 1,
}

impl ClockKind {
    /// Returns the clock of a quota's states.
    pub(super) fn of(quota: &Quota) -> Self {
        if quota.follows_wall() { Self::Wall } else { Self::Monotonic }
    }
}

/// An instant of the monotonic clock, and how far the wall clock is ahead of it in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) now: Timestamp,
    pub(super) wall_ahead: i64,
}

impl Instant {
    /// Returns the time on a clock.
    pub(super) fn on(self, clock: ClockKind) -> Timestamp {
        self.now.shifted(self.ahead(clock))
    }

    /// Returns how far a clock is ahead of the monotonic one, in microseconds.
    pub(super) const fn ahead(self, clock: ClockKind) -> i64 {
        match clock {
            ClockKind::Monotonic => 0,
            ClockKind::Wall => self.wall_ahead,
        }
    }
}
