//! The clock: the only place that reads the system time.
//!
//! The store owns the time of its decisions. In this process that is a monotonic clock: it starts
//! from the wall clock and then counts monotonically, so a corrected system clock neither refills a
//! bucket nor drains one.
//!
//! Windows that are aligned to the calendar or to 1970, and dates in headers, follow the wall
//! clock. A clock therefore also reports how far the wall clock is ahead of it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::{Span, Timestamp};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time. It never goes back.
    fn now(&self) -> Timestamp;

    /// Returns how far the wall clock is ahead of [`now`](Self::now), in microseconds. `now` is a
    /// recent reading, so that the clock need not be read again.
    fn wall_ahead(&self, now: Timestamp) -> i64 {
        let _ = now;
        0
    }

    /// Returns the time of the wall clock.
    fn wall(&self) -> Timestamp {
        let now = self.now();
        now.shifted(self.wall_ahead(now))
    }

    /// Identifies the time that the clock shows: while two clocks exist, they show the same time if they have the same
    /// id. `None` if this is not known.
    fn id(&self) -> Option<ClockId> {
        None
    }
}

/// Identifies the time that a clock shows ([`Clock::id`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockId(usize);

impl ClockId {
    /// Returns the id of all clocks that share this state.
    pub fn of<T>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared).addr())
    }
}

/// The interval between two reads of the wall clock, in microseconds of the monotonic clock.
const WALL_READ_INTERVAL_US: u64 = 100_000;

/// How far the wall clock may have moved from the system clocks of this process before a new one starts from it.
const MAX_WALL_DRIFT_US: u64 = 1_000_000;

/// The latest system clock of this process.
static LATEST: Mutex<Option<SystemClock>> = Mutex::new(None);

/// The system clock: wall time at the start, monotonic from then on.
///
/// The system clocks of a process show the same time, unless the wall clock was set or the machine was suspended
/// between their starts: so one reading serves several components.
#[derive(Clone, Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    /// The monotonic reading at which `wall` was taken.
    start: u64,
    wall: Timestamp,
    seen: Arc<Wall>,
}

/// The last reading of the wall clock.
#[derive(Debug, Default)]
struct Wall {
    /// How far the wall clock is ahead, in microseconds.
    ahead: AtomicI64,
    /// The time of the next read.
    next: AtomicU64,
}

impl SystemClock {
    /// Creates a clock that starts at the current wall time, to a second.
    pub fn new() -> Self {
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*latest
            && read_wall().ahead_of(known.now()).unsigned_abs() < MAX_WALL_DRIFT_US
        {
            return known.clone();
        }
        latest.insert(Self::separate()).clone()
    }

    /// Creates a clock that shares nothing with others.
    fn separate() -> Self {
        let clock = quanta::Clock::new();
        Self { start: clock.raw(), clock, wall: read_wall(), seen: Arc::default() }
    }

    /// Creates a clock that shows `now` and counts monotonically from there, to continue the time of
    /// another process. Its wall clock is that of the system.
    pub fn starting_at(now: Timestamp) -> Self {
        Self { wall: now, ..Self::separate() }
    }
}

#[allow(clippy::disallowed_methods)] // the only reader of the system clock
fn read_wall() -> Timestamp {
    Timestamp::EPOCH + Span::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let nanos = self.clock.delta_as_nanos(self.start, self.clock.raw());
        self.wall + Span::from_micros(nanos / 1_000)
    }

    #[inline]
    fn wall_ahead(&self, now: Timestamp) -> i64 {
        // Relaxed: the two values are independent, and an additional stale reading is harmless.
        if now.as_micros() >= self.seen.next.load(Ordering::Relaxed) {
            self.refresh_wall();
        }
        self.seen.ahead.load(Ordering::Relaxed)
    }

    fn id(&self) -> Option<ClockId> {
        Some(ClockId::of(&self.seen))
    }
}

impl SystemClock {
    #[cold]
    fn refresh_wall(&self) {
        let now = self.now();
        self.seen.next.store(now.as_micros().saturating_add(WALL_READ_INTERVAL_US), Ordering::Relaxed);
        self.seen.ahead.store(read_wall().ahead_of(now), Ordering::Relaxed);
    }
}

/// A clock that tests move by hand. Clones share their time.
///
/// ```
/// # use tollgate_core::{Span, Timestamp};
/// # use tollgate_store::{Clock, ManualClock};
/// let clock = ManualClock::at(Timestamp::from_secs(1_000));
/// clock.advance(Span::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_secs(1_005));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<ManualTime>);

#[derive(Debug)]
struct ManualTime {
    now: AtomicU64,
    wall_ahead: AtomicI64,
}

impl ManualClock {
    /// Creates a clock that stands at this time until it is moved.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(ManualTime { now: AtomicU64::new(now.as_micros()), wall_ahead: AtomicI64::new(0) }))
    }

    /// Moves the clock and its wall clock forward by a [`Span`] or a
    /// [`Duration`](std::time::Duration).
    pub fn advance(&self, span: impl Into<Span>) {
        self.0.now.fetch_add(span.into().as_micros(), Ordering::SeqCst);
    }

    /// Sets the time, which may be earlier.
    pub fn set(&self, now: Timestamp) {
        self.0.now.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Sets only the wall clock, which may be earlier.
    pub fn set_wall(&self, wall: Timestamp) {
        self.0.wall_ahead.store(wall.ahead_of(self.now()), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.now.load(Ordering::SeqCst))
    }

    fn wall_ahead(&self, _now: Timestamp) -> i64 {
        self.0.wall_ahead.load(Ordering::SeqCst)
    }

    fn id(&self) -> Option<ClockId> {
        Some(ClockId::of(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_read_periodically() {
        let clock = SystemClock::separate();
        // As if the wall clock had stepped back by thirty hours since the start.
        let clock = SystemClock { wall: clock.wall + Span::from_hours(30), ..clock };
        let off = read_wall().ahead_of(clock.wall());
        assert!(off.abs() < 5_000_000, "{off} µs off");
        assert!(clock.wall_ahead(clock.now()) < -29 * 3_600_000_000);
    }

    #[test]
    fn system_clocks_of_a_process_show_the_same_time() {
        let (one, other) = (SystemClock::new(), SystemClock::new());
        assert_eq!(one.id(), other.id());
        assert_eq!((one.start, one.wall), (other.start, other.wall));
        assert_ne!(one.id(), SystemClock::starting_at(Timestamp::EPOCH).id());
    }

    #[test]
    fn only_clones_of_a_manual_clock_show_its_time() {
        let clock = ManualClock::at(Timestamp::EPOCH);
        assert_eq!(clock.id(), clock.clone().id());
        assert_ne!(clock.id(), ManualClock::at(Timestamp::EPOCH).id());
    }
}
