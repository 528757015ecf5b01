//! A number of units per period, as configured.
//!
//! A `Rate` may be invalid. An algorithm checks it and returns a quota or a [`QuotaError`].

use core::fmt;
use core::time::Duration;

use crate::time::Span;

/// A number of units per period.
///
/// ```
/// # use tollgate_core::{Rate, Span};
/// assert_eq!(Rate::per_minute(10), Rate::new(10, Span::from_secs(60)));
/// assert_eq!(Rate::new(5, Span::from_secs(2)).to_string(), "5/2s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Units.
    pub count: u64,
    /// The time in which they come back.
    pub period: Span,
}

impl Rate {
    /// Creates a rate of `count` units per `period`.
    pub const fn new(count: u64, period: Span) -> Self {
        Self { count, period }
    }

    /// Creates a rate of `count` units per `period`, rounded up to whole microseconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_core::Rate;
    /// assert_eq!(Rate::per(5, Duration::from_secs(2)).to_string(), "5/2s");
    /// ```
    pub fn per(count: u64, period: Duration) -> Self {
        Self::new(count, period.into())
    }

    /// Creates a rate of `count` units per second.
    pub const fn per_second(count: u64) -> Self {
        Self::new(count, Span::from_secs(1))
    }

    /// Creates a rate of `count` units per minute.
    pub const fn per_minute(count: u64) -> Self {
        Self::new(count, Span::from_minutes(1))
    }

    /// Creates a rate of `count` units per hour.
    pub const fn per_hour(count: u64) -> Self {
        Self::new(count, Span::from_hours(1))
    }

    /// Creates a rate of `count` units per 24 hours.
    pub const fn per_day(count: u64) -> Self {
        Self::new(count, Span::from_days(1))
    }

    /// Refuses a rate that no algorithm can serve.
    pub(crate) fn validate(self) -> Result<Self, QuotaError> {
        match self {
            Self { count: 0, .. } => Err(QuotaError::ZeroRate),
            Self { period: Span::ZERO, .. } => Err(QuotaError::ZeroPeriod),
            Self { period, .. } if period > MAX_PERIOD => Err(QuotaError::TooLong),
            Self { count, .. } if count > MAX_UNITS => Err(QuotaError::TooMany),
            rate => Ok(rate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period.as_micros() {
            1_000_000 => "second",
            60_000_000 => "minute",
            3_600_000_000 => "hour",
            86_400_000_000 => "day",
            _ => return write!(f, "{}/{}", self.count, self.period),
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// The longest period of a quota: 2^47 µs, four years. Twice that (a key overdrawn by a whole
/// capacity) still fits the 50 bits that the in-memory store uses for time.
pub(crate) const MAX_PERIOD: Span = Span::from_micros(1 << 47);

/// The largest number of units of a quota: products with any period then fit `u128`, and a count is
/// exact as a Redis double.
pub(crate) const MAX_UNITS: u64 = 1 << 48;

/// Returns the greatest common divisor, or one if both numbers are zero.
pub(crate) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

/// Error returned when a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// The rate is zero. Use a deny list to refuse all requests.
    #[error("a rate of zero admits no request")]
    ZeroRate,
    /// The period is zero.
    #[error("a period of zero has no rate")]
    ZeroPeriod,
    /// The capacity is zero.
    #[error("a burst below one request admits no request")]
    ZeroBurst,
    /// The period, or the time to refill the burst, is more than four years.
    #[error("a drained key would take more than four years to refill")]
    TooLong,
    /// More units than can be counted exactly.
    #[error("more than 2^48 units cannot be counted exactly")]
    TooMany,
    /// The interval between two units has no exact short form.
    #[error("this many units in this period cannot be spaced exactly; choose a rounder number")]
    TooFine,
    /// The number of parts is zero or more than 64.
    #[error("a sliding window is counted in 1 to 64 parts")]
    Parts,
    /// The limit of a sliding log is too large: it remembers every unit, so its limit bounds its
    /// memory.
    #[error("a sliding log remembers every unit and holds at most 65536 of them")]
    LogTooLong,
}
