//! Token bucket, leaky meter and GCRA: one algorithm on one number.
//!
//! The number is the theoretical arrival time: when the bucket is full again.
//! "Tokens left" and "time until full" are the same fact in two units, so a
//! token bucket of `burst` tokens refilling at `rate`, a leaky meter that holds
//! `burst`, and GCRA with a tolerance of `burst` cells decide alike:
//!
//! ```text
//! T    = period / count                 one unit's worth of time
//! debt = max(tat - now, 0)              time until full
//! allow iff debt + cost·T <= burst·T
//! ```
//!
//! `T` is rarely whole: 7 a minute is 8,571,428 µs and four sevenths. Rounded
//! down it admits too much, up too little, and either way it drifts. So the
//! arrival time carries its fraction, counted in `1/den` of a tick with `den`
//! the reduced count. Below, a *grain* is that `1/den` of a tick; in grains
//! every number is whole.
//!
//! Invariant: in any stretch `d`, at most `burst + d/T` units pass. Held by
//! `tests/proof` against rational arithmetic.

use super::{Algorithm, Overdraft};
use crate::outcome::{Outcome, Verdict};
use crate::rate::{MAX_PERIOD, MAX_UNITS, QuotaError, Rate, gcd};
use crate::time::{Span, Timestamp};

/// What a key may spend at once, and how soon one unit comes back.
///
/// A `Bucket` that exists can be served exactly: its interval has a finite
/// form, and emptying it twice over still fits the clock.
///
/// ```
/// # use tollgate_core::{Algorithm, Bucket, QuotaError, Rate};
/// let bucket = Bucket::new(Rate::per_second(10))?.with_burst(25)?;   // ten a second, 25 at once
/// assert_eq!(bucket.capacity(), 25);
/// assert_eq!(Bucket::new(Rate::per_second(0)), Err(QuotaError::ZeroRate));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: Rate,
    burst: u64,
    /// Grains in one unit: the reduced period.
    unit: u64,
    /// Grains in one tick: the reduced count.
    den: u32,
    /// Whether others with other numbers write its states too.
    shared: bool,
    /// Grains in a full bucket.
    full: u128,
    /// The same bucket in ticks, where one unit is a whole number of them: nearly always.
    ticks: Option<TickBucket>,
}

/// When the bucket is full again: `tat` ticks and `grains` of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Whole ticks of the theoretical arrival time.
    pub tat: Timestamp,
    /// What comes on top, in `1/den` of a tick.
    pub grains: u32,
}

impl Bucket {
    /// A bucket that holds one period's worth of units.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        let common = low(gcd(rate.count.into(), rate.period.as_micros().into()));
        let unit = rate.period.as_micros() / common;
        let den = u32::try_from(rate.count / common).map_err(|_| QuotaError::TooFine)?;
        Self { rate, burst: 0, unit, den, shared: false, full: 0, ticks: None }.with_burst(rate.count)
    }

    /// The same rate with another capacity.
    pub fn with_burst(self, burst: u64) -> Result<Self, QuotaError> {
        let full = u128::from(burst) * u128::from(self.unit);
        match burst {
            0 => Err(QuotaError::ZeroBurst),
            _ if burst > MAX_UNITS => Err(QuotaError::TooMany),
            _ if full > u128::from(self.den) * u128::from(MAX_PERIOD.as_micros()) => Err(QuotaError::TooLong),
            _ => {
                let whole = u64::try_from(full).ok().filter(|_| self.den == 1);
                let ticks = whole.map(|full| TickBucket::new(burst, self.unit, full));
                Ok(Self { burst, full, ticks, ..self })
            }
        }
    }

    /// The same bucket, one of several with different numbers for the same keys: each
    /// goes on from the arrival time that the last one left, whatever its own rate and
    /// capacity.
    ///
    /// So an arrival time may be further ahead than its bucket can owe by itself, and no
    /// clock need have stepped back for that: the state is left as it is, and the key
    /// waits. Were it pulled back, a small bucket would wipe out what a large one is
    /// owed. Fractions of a tick are read in the reader's own grains, less than one tick
    /// off where those differ.
    ///
    /// ```
    /// # use tollgate_core::{Algorithm, Bucket, QuotaError, Rate, Span, Timestamp};
    /// let slow = Bucket::new(Rate::per_hour(1))?.shared();
    /// let fast = Bucket::new(Rate::per_second(1))?.shared();
    /// let (mut state, now) = (slow.fresh(), Timestamp::from_secs(1_000));
    /// assert!(slow.step(&mut state, 1, now).is_admitted());
    /// assert_eq!(fast.step(&mut state, 1, now).retry_after(), Some(Span::from_hours(1)));
    /// assert!(!slow.step(&mut state, 1, now).is_admitted());
    /// # Ok::<(), QuotaError>(())
    /// ```
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Whether its states are those of buckets with other numbers too.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// The most that a state can owe, in grains: one that owes more comes from a clock
    /// that stepped back, and is pulled back to this.
    pub fn max_debt(&self) -> u128 {
        if self.shared {
            return 2 * u128::from(MAX_PERIOD.as_micros()) * u128::from(self.den);
        }
        2 * self.full
    }

    /// The rate as it was written.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How many grains make a tick. A state's `grains` are below this.
    pub const fn grains_per_tick(&self) -> u32 {
        self.den
    }

    /// How many grains make a unit: what one request of cost one adds to the debt.
    pub const fn grains_per_unit(&self) -> u64 {
        self.unit
    }

    /// The same bucket in whole ticks, if one unit is a whole number of them.
    #[inline]
    pub const fn in_ticks(&self) -> Option<&TickBucket> {
        self.ticks.as_ref()
    }

    /// How long an empty bucket takes to fill, rounded up.
    pub fn fill_time(&self) -> Span {
        self.ticks(self.full)
    }

    /// Grains until the bucket is full. A clock that stepped back makes this
    /// larger and never smaller; beyond the deepest overdraft there is, the
    /// state is pulled back to that.
    fn debt(&self, state: &mut BucketState, now: Timestamp) -> u128 {
        let debt = self.debt_as_stored(*state, now);
        // The first is what `deepest` is, but for shared buckets, and there already.
        if debt > 2 * self.full && debt > self.max_debt() {
            *state = self.owing(self.max_debt(), now);
            return self.max_debt();
        }
        debt
    }

    fn debt_as_stored(&self, state: BucketState, now: Timestamp) -> u128 {
        if state.tat < now {
            return 0;
        }
        // More grains than make a tick were written in finer ones: less than a tick.
        let grains = state.grains.min(self.den);
        u128::from(state.tat.since(now).as_micros()) * u128::from(self.den) + u128::from(grains)
    }

    /// The state of a key that had `state` under `before`: as many units are missing, to
    /// the fraction, but no more than this bucket holds. Rounds up by less than a grain.
    pub(crate) fn carry_over(&self, before: &Self, state: BucketState, now: Timestamp) -> BucketState {
        let debt = before.debt_as_stored(state, now).min(before.max_debt());
        let (theirs, ours) = (u128::from(before.unit), u128::from(self.unit));
        let units = debt / theirs;
        let debt = match units.checked_mul(ours) {
            Some(whole) => whole.saturating_add((debt % theirs * ours).div_ceil(theirs)).min(self.full),
            None => self.full,
        };
        self.owing(debt, now)
    }

    /// Whether this bucket holds no less than `other` and refills no slower.
    pub(crate) fn is_raise_of(&self, other: &Self) -> bool {
        let interval = |one: &Self, den: u32| u128::from(one.unit) * u128::from(den);
        self.burst >= other.burst && interval(self, other.den) <= interval(other, self.den)
    }

    /// The state that owes `debt` grains at `now`.
    fn owing(&self, debt: u128, now: Timestamp) -> BucketState {
        let den = u128::from(self.den);
        if den == 1 {
            return BucketState { tat: now + Span::from_micros(low(debt)), grains: 0 };
        }
        let ticks = divide(debt, u64::from(self.den));
        let grains = low(debt - u128::from(ticks) * den);
        BucketState { tat: now + Span::from_micros(ticks), grains: u32::try_from(grains).unwrap_or(0) }
    }

    /// Grains as ticks, rounded up.
    fn ticks(&self, grains: u128) -> Span {
        Span::from_micros(if self.den == 1 {
            low(grains)
        } else {
            divide(grains + u128::from(self.den) - 1, u64::from(self.den))
        })
    }

    /// Grains as whole units, rounded down.
    fn units(&self, grains: u128) -> u64 {
        match u64::try_from(grains) {
            Ok(small) => small / self.unit,
            Err(_) => low(grains / u128::from(self.unit)),
        }
    }

    fn cost(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.unit)
    }
}

impl Algorithm for Bucket {
    type State = BucketState;

    fn fresh(&self) -> BucketState {
        BucketState::default()
    }

    fn capacity(&self) -> u64 {
        self.burst
    }

    fn spend(&self, state: &mut BucketState, cost: u64, now: Timestamp) -> Verdict {
        if cost > self.burst {
            self.debt(state, now);
            return Verdict::Never;
        }
        let debt = self.debt(state, now);
        let after = debt + self.cost(cost);
        if cost == 0 {
            Verdict::admitted(0)
        } else if after <= self.full {
            *state = self.owing(after, now);
            Verdict::admitted(cost)
        } else {
            Verdict::Refused { retry_after: self.ticks(after - self.full) }
        }
    }

    fn describe(&self, state: &BucketState, verdict: Verdict, now: Timestamp) -> Outcome {
        let debt = self.debt_as_stored(*state, now);
        Outcome {
            verdict,
            limit: self.burst,
            remaining: self.units(self.full.saturating_sub(debt)),
            reset_after: self.ticks(debt),
        }
    }

    fn refund(&self, state: &mut BucketState, units: u64, taken_at: Timestamp, now: Timestamp) {
        // A step leaves at most a full bucket to be repaid, and debts are repaid in
        // order: of that, no more than is left after the time since can still be owed.
        let repaid = u128::from(now.since(taken_at).as_micros()) * u128::from(self.den);
        let owed = self.cost(units).min(self.full.saturating_sub(repaid));
        let debt = self.debt(state, now);
        *state = self.owing(debt.saturating_sub(owed), now);
    }

    fn grant(&self, state: &mut BucketState, units: u64, now: Timestamp) {
        let debt = self.debt(state, now);
        *state = self.owing(debt.saturating_sub(self.cost(units.min(2 * self.burst))), now);
    }

    fn charge(&self, state: &mut BucketState, units: u64, overdraft: Overdraft, now: Timestamp) {
        let floor = match overdraft {
            Overdraft::None => self.full,
            Overdraft::OneCapacity | Overdraft::Unlimited => 2 * self.full,
        };
        let debt = self.debt(state, now);
        let after = debt + self.cost(units.min(2 * self.burst));
        *state = self.owing(after.min(floor.max(debt)), now);
    }

    fn used(&self, state: &BucketState, now: Timestamp) -> u64 {
        let debt = self.debt_as_stored(*state, now).min(2 * self.full);
        self.units(debt + u128::from(self.unit) - 1)
    }

    /// The arrival time says all: how many units that is follows from it.
    fn spent_until(&self, units: u64, until: Timestamp, _now: Timestamp) -> BucketState {
        if units == 0 { self.fresh() } else { BucketState { tat: until, grains: 0 } }
    }

    fn expires_at(&self, state: &BucketState) -> Timestamp {
        state.tat + Span::from_micros(u64::from(state.grains > 0))
    }
}

/// A bucket in which every number is whole: the hot path of a store.
///
/// The same decisions as its [`Bucket`]'s, on half the bits and without the
/// branches; `tests/` holds the two equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickBucket {
    burst: u64,
    /// Ticks in one unit.
    unit: u64,
    /// Ticks in a full bucket.
    full: u64,
    /// `floor((2^64 - 1) / unit)`, to divide by `unit` with a multiplication.
    inverse: u64,
}

impl TickBucket {
    const fn new(burst: u64, unit: u64, full: u64) -> Self {
        Self { burst, unit, full, inverse: u64::MAX / unit }
    }

    /// The ticks that `cost` units take to come back, if they can ever be had at once.
    #[inline(always)]
    pub const fn price(&self, cost: u64) -> Option<u64> {
        if cost <= self.burst { Some(cost * self.unit) } else { None }
    }

    /// The ticks in a full bucket: the most that may ever be owed after paying.
    #[inline(always)]
    pub const fn full(&self) -> u64 {
        self.full
    }

    /// The arrival time after paying `price`, or `None` if that is more than is
    /// left. Holds in any unit of time that all four share, so a store may keep
    /// them as it likes.
    #[inline(always)]
    pub const fn pay(tat: u64, price: u64, now: u64, full: u64) -> Option<u64> {
        let after = if tat > now { tat } else { now }.saturating_add(price);
        if after - now <= full { Some(after) } else { None }
    }

    /// Whether [`pay`](Self::pay) would go through.
    #[inline(always)]
    pub const fn affords(&self, tat: Timestamp, price: u64, now: Timestamp) -> bool {
        Self::pay(tat.as_micros(), price, now.as_micros(), self.full).is_some()
    }

    /// Words what [`pay`](Self::pay) answered. `tat` is the arrival time after it.
    /// `None` where the clock must have stepped back: [`Bucket`] knows what to do.
    #[inline(always)]
    pub fn describe(&self, tat: Timestamp, paid: bool, cost: u64, now: Timestamp) -> Option<Outcome> {
        let (debt, full) = (tat.since(now).as_micros(), self.full);
        if debt > 2 * full {
            return None;
        }
        let verdict = if paid {
            Verdict::admitted(cost)
        } else {
            Verdict::Refused {
                retry_after: Span::from_micros((debt + cost * self.unit).saturating_sub(full)),
            }
        };
        let remaining = self.units(full.saturating_sub(debt));
        Some(Outcome { verdict, limit: self.burst, remaining, reset_after: Span::from_micros(debt) })
    }

    /// Ticks as whole units, rounded down: a multiplication by the reciprocal,
    /// at most one too low for any number below 2^63.
    #[inline(always)]
    const fn units(&self, ticks: u64) -> u64 {
        let quotient = low((ticks as u128 * self.inverse as u128) >> 64);
        let rest = ticks - quotient * self.unit;
        quotient + (rest >= self.unit) as u64
    }
}

/// A number known to fit 64 bits: debts are bounded by eight years of ticks.
#[inline]
#[allow(clippy::cast_possible_truncation)]
const fn low(value: u128) -> u64 {
    value as u64
}

/// `u128` division is a library call; nearly every debt fits the hardware's.
#[inline]
fn divide(value: u128, by: u64) -> u64 {
    match u64::try_from(value) {
        Ok(small) => small / by,
        Err(_) => low(value / u128::from(by)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_cannot_be_served_are_refused() {
        let second = Span::from_secs(1);
        for (rate, error) in [
            (Rate::new(0, second), QuotaError::ZeroRate),
            (Rate::new(1, Span::ZERO), QuotaError::ZeroPeriod),
            (Rate::new(1, Span::from_days(2_000)), QuotaError::TooLong),
            (Rate::new(u64::MAX, second), QuotaError::TooMany),
            (Rate::new((1 << 33) + 1, second), QuotaError::TooFine),
        ] {
            assert_eq!(Bucket::new(rate), Err(error), "{rate}");
        }
        let bucket = Bucket::new(Rate::per_hour(1)).unwrap();
        assert_eq!(bucket.with_burst(0), Err(QuotaError::ZeroBurst));
        assert_eq!(bucket.with_burst(100_000), Err(QuotaError::TooLong));
    }

    #[test]
    fn the_reciprocal_divides_like_the_divider() {
        for unit in [1u64, 2, 3, 7, 59_999, 60_000_000, (1 << 47) - 1, 1 << 47] {
            let bucket = Bucket::new(Rate::new(1, Span::from_micros(unit))).unwrap();
            let bucket = bucket.in_ticks().unwrap();
            for grains in [0, 1, unit - 1, unit, unit + 1, 2 * unit - 1, (1 << 63) - 1] {
                assert_eq!(bucket.units(grains), grains / unit, "{grains} / {unit}");
            }
        }
    }
}
