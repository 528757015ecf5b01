//! Timestamps and spans in whole microseconds.
//!
//! One tick is a microsecond everywhere: in memory, in Redis, in the shared vectors. Redis numbers
//! are doubles, exact to 2^53, which nanoseconds since 1970 exceed and microseconds do not until
//! the year 2255. With one tick, all stores compute the same integers.
//!
//! Time is always an argument. Clocks are in `tollgate_store::Clock`.

mod human;

use core::fmt;
use core::time::Duration;

pub use human::{HumanExactSpan, HumanSpan};

/// A point in time: microseconds since the Unix epoch.
///
/// ```
/// # use tollgate_core::{Span, Timestamp};
/// let noon = Timestamp::from_secs(43_200);
/// assert_eq!((noon + Span::from_secs(1)).since(noon), Span::from_secs(1));
/// assert_eq!(noon.since(noon + Span::from_secs(1)), Span::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A duration in whole microseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Timestamp {
    /// Midnight, January 1, 1970, UTC.
    pub const EPOCH: Self = Self(0);

    /// Creates a timestamp from microseconds since the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Creates a timestamp from whole seconds since the epoch, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Returns the microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the seconds since the epoch, rounded up: a caller that returns at this second is
    /// never early.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Returns the span from `earlier` to this timestamp, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns this timestamp moved by a number of microseconds, back if negative.
    #[must_use]
    pub const fn shifted(self, by: i64) -> Self {
        Self(self.0.saturating_add_signed(by))
    }

    /// Returns the microseconds from `other` to this timestamp; negative if this one is earlier.
    pub const fn ahead_of(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Returns this timestamp moved back by `span`, saturating at the epoch.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl core::ops::Add<Span> for Timestamp {
    type Output = Self;

    /// Saturates at `u64::MAX` microseconds, half a million years from now.
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// A span of zero.
    pub const ZERO: Self = Self(0);

    /// Creates a span from microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Creates a span from milliseconds, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Creates a span from seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Creates a span from minutes, saturating.
    pub const fn from_minutes(minutes: u64) -> Self {
        Self::from_secs(minutes.saturating_mul(60))
    }

    /// Creates a span from hours, saturating.
    pub const fn from_hours(hours: u64) -> Self {
        Self::from_secs(hours.saturating_mul(3_600))
    }

    /// Creates a span from days of 24 hours, saturating.
    pub const fn from_days(days: u64) -> Self {
        Self::from_secs(days.saturating_mul(86_400))
    }

    /// Returns the microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the milliseconds, rounded up.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Returns the seconds, rounded up, as `Retry-After` carries them.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Returns whether the span is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::Add for Span {
    type Output = Self;

    /// Saturates.
    fn add(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_micros(span.0)
    }
}

impl From<Duration> for Span {
    /// Rounds a fraction of a microsecond up, and saturates.
    fn from(duration: Duration) -> Self {
        // Seconds and fraction apart, because a division of the whole needs 128 bits.
        let micros = u64::from(duration.subsec_nanos().div_ceil(1_000));
        Self(duration.as_secs().saturating_mul(1_000_000).saturating_add(micros))
    }
}

/// Writes the largest unit that keeps the number whole: `90s`, `1500ms`, `1h`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
        match UNITS.iter().find(|(size, _)| self.0 != 0 && self.0.is_multiple_of(*size)) {
            Some((size, unit)) => write!(f, "{}{unit}", self.0 / size),
            None if self.0 == 0 => write!(f, "0s"),
            None => write!(f, "{}us", self.0),
        }
    }
}

/// Writes the span as a [`Duration`] does: `719.99995s`.
impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_favors_the_limit() {
        assert_eq!(Span::from_micros(1).as_secs_ceil(), 1);
        assert_eq!(Span::from_micros(1_000_001).as_secs_ceil(), 2);
        assert_eq!(Span::from_micros(1_001).as_millis_ceil(), 2);
        assert_eq!(Timestamp::from_micros(1_000_001).as_secs_ceil(), 2);
        for (nanos, micros) in [(0, 0), (1, 1), (999_999_000, 999_999), (999_999_001, 1_000_000)] {
            assert_eq!(Span::from(Duration::new(7, nanos)), Span::from_micros(7_000_000 + micros));
        }
        assert_eq!(Span::from(Duration::MAX), Span::from_micros(u64::MAX));
    }

    #[test]
    fn timestamps_saturate_instead_of_wrapping() {
        let end = Timestamp::from_micros(u64::MAX);
        assert_eq!(end + Span::from_days(1), end);
        assert_eq!(Timestamp::from_secs(u64::MAX), end);
        assert_eq!(Timestamp::EPOCH.before(Span::from_secs(1)), Timestamp::EPOCH);
    }

    #[test]
    fn spans_are_written_in_their_largest_whole_unit() {
        for (span, text) in [
            (Span::from_secs(90), "90s"),
            (Span::from_secs(120), "2m"),
            (Span::from_millis(1_500), "1500ms"),
            (Span::from_days(30), "30d"),
            (Span::from_micros(7), "7us"),
            (Span::ZERO, "0s"),
        ] {
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn debug_output_of_a_span_is_that_of_a_duration() {
        let wait = Span::from_micros(719_999_950);
        assert_eq!(format!("{wait:?}"), "719.99995s");
        assert_eq!(format!("{wait:.1?}"), "720.0s");
    }
}
