//! How many units in how long, as somebody wrote it.
//!
//! A `Rate` is a wish: it may be nonsense. It becomes a promise when an
//! algorithm accepts it and returns a quota, or a [`QuotaError`].

use std::fmt;

use crate::time::Span;

/// So many units in so long.
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
    /// The time they come back in.
    pub period: Span,
}

impl Rate {
    /// `count` units in every `period`.
    pub const fn new(count: u64, period: Span) -> Self {
        Self { count, period }
    }

    /// `count` units a second.
    pub const fn per_second(count: u64) -> Self {
        Self::new(count, Span::from_secs(1))
    }

    /// `count` units a minute.
    pub const fn per_minute(count: u64) -> Self {
        Self::new(count, Span::from_minutes(1))
    }

    /// `count` units an hour.
    pub const fn per_hour(count: u64) -> Self {
        Self::new(count, Span::from_hours(1))
    }

    /// `count` units in 24 hours.
    pub const fn per_day(count: u64) -> Self {
        Self::new(count, Span::from_days(1))
    }

    /// Refuses a rate that cannot be served, for every algorithm alike.
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

/// The longest stretch any quota may look back on or ahead to: 2^47 µs, four
/// years. Twice that (a key overdrawn by a whole capacity) still fits the 50
/// bits that the in-memory store gives to time.
pub(crate) const MAX_PERIOD: Span = Span::from_micros(1 << 47);

/// The most units a quota may hold: products with any period then fit `u128`,
/// and a count survives a trip through a Redis double.
pub(crate) const MAX_UNITS: u64 = 1 << 48;

/// The greatest common divisor; one of zero and zero.
pub(crate) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

/// Why a quota cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// A rate of nothing. To refuse everybody, use a deny list.
    #[error("a rate of zero admits nobody")]
    ZeroRate,
    /// A rate in no time.
    #[error("a period of zero has no rate")]
    ZeroPeriod,
    /// A capacity of nothing.
    #[error("a burst below one request admits nobody")]
    ZeroBurst,
    /// A period, or a burst at that rate, of more than four years.
    #[error("a rested key would take more than four years to come back")]
    TooLong,
    /// More units than can be counted exactly.
    #[error("more than 2^48 units cannot be counted exactly")]
    TooMany,
    /// The interval between two units has no exact short form.
    #[error("this many units in this period cannot be spaced exactly; choose a rounder number")]
    TooFine,
    /// More parts than are any use, or none.
    #[error("a sliding window is counted in 1 to 64 parts")]
    Parts,
    /// A sliding log remembers each unit, so its limit bounds its memory.
    #[error("a sliding log remembers every unit and holds at most 65536 of them")]
    LogTooLong,
}
