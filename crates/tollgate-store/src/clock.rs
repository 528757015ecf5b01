//! The one place that reads a clock.
//!
//! The store owns the time of its decisions. In this process that is a clock
//! that never steps: it starts from the wall and then counts monotonically, so
//! a corrected system clock neither grants nor denies anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::{Span, Timestamp};

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Wall time at the start, monotonic from there on.
#[derive(Clone, Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    /// The reading that `wall` was taken at.
    start: u64,
    wall: Timestamp,
}

impl SystemClock {
    /// Reads the wall clock once.
    #[allow(clippy::disallowed_methods)] // the one place
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let wall = Span::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { start: clock.raw(), clock, wall: Timestamp::EPOCH + wall }
    }
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
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows this time until it is moved.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.as_micros())))
    }

    /// Moves on by `span`.
    pub fn advance(&self, span: Span) {
        self.0.fetch_add(span.as_micros(), Ordering::SeqCst);
    }

    /// Shows another time, be it earlier.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
