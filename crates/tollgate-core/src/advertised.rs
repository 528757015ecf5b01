//! The sustained rate of a quota in whole seconds, for headers.
//!
//! `RateLimit-Policy` of the IETF draft writes a quota as `q` units in a window of `w` seconds,
//! both integers. A client divides the two to learn its sustained rate, so the quotient must be the
//! rate that the quota sustains: neither the burst of a bucket nor a window rounded up to the next
//! second.
//!
//! Writing the header is the job of `tollgate_http`.
//!
//! Invariant: `units / seconds` equals the sustained rate exactly, and `units` is at least the
//! capacity, so that no `remaining` exceeds it. Fractions that do not fit the 15 digits of a
//! structured field, such as 3·10^14 per millisecond, are the exception: they are rounded down, so
//! that a client never learns of a rate higher than its own. Tested by `tests/proof/advertised.rs`
//! against rational arithmetic.

use core::ops::Range;

use crate::algorithm::{Algorithm, Window};
use crate::quota::Quota;
use crate::rate::{Rate, gcd};
use crate::time::Timestamp;

/// The largest integer of a structured field (RFC 9651, 3.3.1): 15 digits.
pub const MAX_UNITS: u64 = 999_999_999_999_999;

const MICROS_PER_SECOND: u128 = 1_000_000;

/// The sustained rate of a quota: a number of units in a number of seconds.
///
/// ```
/// # use tollgate_core::{Bucket, Quota, QuotaError, Rate, Span, Timestamp};
/// let advertised = |quota: Quota| {
///     let rate = quota.advertised(Timestamp::from_secs(0)).expect("a bucket has a rate");
///     (rate.units, rate.seconds)
/// };
/// let evenly = Bucket::new(Rate::per_second(10))?.with_burst(1)?;
/// assert_eq!(advertised(evenly.into()), (10, 1));
/// let quick = Bucket::new(Rate::new(3, Span::from_millis(250)))?;
/// assert_eq!(advertised(quick.into()), (12, 1));
/// // 25 can be left, so 25 must be advertised at least.
/// let bursty = Bucket::new(Rate::per_second(10))?.with_burst(25)?;
/// assert_eq!(advertised(bursty.into()), (30, 3));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedRate {
    /// Units, at most [`MAX_UNITS`].
    pub units: u64,
    /// The window in seconds, at least one.
    pub seconds: u64,
    /// The period in which this rate is valid: one window of a calendar, whose windows differ in
    /// length; all of time for other quotas.
    pub valid: Range<Timestamp>,
}

impl Quota {
    /// Returns the sustained rate in whole seconds at `now`, or `None` for concurrency limits,
    /// which have no rate.
    pub fn advertised(&self, now: Timestamp) -> Option<AdvertisedRate> {
        let rate = match self {
            Self::Bucket(it) => it.rate(),
            Self::SlidingWindow(it) => it.rate(),
            Self::SlidingParts(it) => it.rate(),
            Self::SlidingLog(it) => it.rate(),
            Self::FixedWindow(it) => match it.window() {
                Window::Epoch(length) | Window::Anchored(length) => Rate::new(it.capacity(), *length),
                Window::Calendar(calendar) => {
                    let (start, end) = calendar.around(now);
                    let seconds = end.since(start).as_secs_ceil().max(1);
                    return Some(AdvertisedRate { units: it.capacity(), seconds, valid: start..end });
                }
            },
            Self::Concurrency(_) => return None,
        };
        let (units, seconds) = in_whole_seconds(rate, self.capacity());
        let valid = Timestamp::EPOCH..Timestamp::from_micros(u64::MAX);
        Some(AdvertisedRate { units, seconds, valid })
    }
}

/// Returns the rate as whole units in whole seconds, with at least `capacity` units.
///
/// The numbers are those of the policy where they fit (60 per minute is not 1 per second).
/// Otherwise they are the smallest multiple of the reduced fraction that fits.
fn in_whole_seconds(rate: Rate, capacity: u64) -> (u64, u64) {
    let (count, micros) = (u128::from(rate.count), u128::from(rate.period.as_micros().max(1)));
    // The number of periods that make whole seconds. It is at most 10^6, so nothing below
    // overflows: counts have 48 bits, periods 47.
    let periods = MICROS_PER_SECOND / gcd(micros, MICROS_PER_SECOND);
    let (units, seconds) = (count * periods, micros * periods / MICROS_PER_SECOND);
    if units >= u128::from(capacity) && units <= u128::from(MAX_UNITS) {
        return (low(units), low(seconds));
    }
    let common = gcd(units, seconds);
    let (units, seconds) = (units / common, seconds / common);
    let times = u128::from(capacity).div_ceil(units.max(1)).max(1);
    if units * times <= u128::from(MAX_UNITS) {
        return (low(units * times), low(seconds * times));
    }
    // The exact fraction does not fit 15 digits. The quotient is rounded down.
    let seconds_that_fit = (u128::from(MAX_UNITS) * seconds / units).max(1);
    let units_that_fit = units * seconds_that_fit / seconds;
    (low(units_that_fit.min(MAX_UNITS.into())), low(seconds_that_fit))
}

fn low(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
