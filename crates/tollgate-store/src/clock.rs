//! The one place that reads a clock.
//!
//! The store owns the time of its decisions. In this process that is a clock
//! that never steps: it starts from the wall and then counts monotonically, so
//! a corrected system clock neither refills a bucket nor drains one.
//!
//! Windows that are aligned to the calendar or to 1970, and dates in headers, follow the
//! wall clock. A clock therefore also tells how far the wall clock is ahead of it by now.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::{Span, Timestamp};

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now. Never steps.
    fn now(&self) -> Timestamp;

    /// How far the wall clock is ahead of [`now`](Self::now), in microseconds. `now` is a
    /// reading of a moment ago, which need not be taken again.
    fn wall_ahead(&self, now: Timestamp) -> i64 {
        let _ = now;
        0
    }

    /// The time that the wall clock shows.
    fn wall(&self) -> Timestamp {
        let now = self.now();
        now.shifted(self.wall_ahead(now))
    }
}

/// How often the wall clock is read, in microseconds of the clock that never steps.
const WALL_INTERVAL: u64 = 100_000;

/// Wall time at the start, monotonic from there on. Clones share what they know of the wall.
#[derive(Clone, Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    /// The reading that `wall` was taken at.
    start: u64,
    wall: Timestamp,
    seen: Arc<Wall>,
}

/// The wall clock, as it was last read.
#[derive(Debug, Default)]
struct Wall {
    /// How far it is ahead.
    ahead: AtomicI64,
    /// When it is read again.
    next: AtomicU64,
}

impl SystemClock {
    /// Reads the wall clock.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { start: clock.raw(), clock, wall: read_wall(), seen: Arc::default() }
    }
}

#[allow(clippy::disallowed_methods)] // the one place
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
        // Relaxed: the two are read and written by themselves, and one old reading more
        // does no harm.
        if now.as_micros() >= self.seen.next.load(Ordering::Relaxed) {
            self.look_at_wall();
        }
        self.seen.ahead.load(Ordering::Relaxed)
    }
}

impl SystemClock {
    #[cold]
    fn look_at_wall(&self) {
        let now = self.now();
        self.seen.next.store(now.as_micros().saturating_add(WALL_INTERVAL), Ordering::Relaxed);
        self.seen.ahead.store(read_wall().ahead_of(now), Ordering::Relaxed);
    }
}

/// A clock that moves when told to. Clones share their hands.
///
/// ```
/// # use tollgate_core::{Span, Timestamp};
/// # use tollgate_store::{Clock, ManualClock};
/// let clock = ManualClock::at(Timestamp::from_secs(1_000));
/// clock.advance(Span::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_secs(1_005));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Hands>);

#[derive(Debug)]
struct Hands {
    now: AtomicU64,
    wall_ahead: AtomicI64,
}

impl ManualClock {
    /// A clock that shows this time until it is moved.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Hands { now: AtomicU64::new(now.as_micros()), wall_ahead: AtomicI64::new(0) }))
    }

    /// Moves on by `span`, and the wall clock with it.
    pub fn advance(&self, span: Span) {
        self.0.now.fetch_add(span.as_micros(), Ordering::SeqCst);
    }

    /// Shows another time, be it earlier.
    pub fn set(&self, now: Timestamp) {
        self.0.now.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Steps the wall clock alone to another time, be it earlier.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_read_again() {
        let clock = SystemClock::new();
        // As if the wall clock had stepped back by thirty hours since the start.
        let clock = SystemClock { wall: clock.wall + Span::from_hours(30), ..clock };
        let off = read_wall().ahead_of(clock.wall());
        assert!(off.abs() < 5_000_000, "{off} µs off");
        assert!(clock.wall_ahead(clock.now()) < -29 * 3_600_000_000);
    }
}
