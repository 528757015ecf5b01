//! Token bucket, leaky meter, leaky queue and GCRA: one algorithm on one number.
//!
//! The number is the theoretical arrival time: the time at which the bucket is full again. "Tokens
//! left" and "time until full" are the same fact in two units, so a token bucket of `burst` tokens
//! refilling at `rate`, a leaky meter that holds `burst`, and GCRA with a tolerance of `burst`
//! cells decide alike:
//!
//! ```text
//! T    = period / count                 one unit's worth of time
//! debt = max(tat - now, 0)              time until full
//! allow iff debt + cost·T <= burst·T
//! ```
//!
//! `T` is rarely whole: 7 a minute is 8,571,428 µs and four sevenths. Rounding down would admit too
//! much, rounding up too little, and both drift. So the arrival time carries its fraction, counted
//! in `1/den` of a tick with `den` the reduced count. Below, a *grain* is that `1/den` of a tick;
//! in grains every number is whole.
//!
//! Invariant: in any stretch `d`, at most `burst + d/T` units pass. Tested by `tests/proof` against
//! rational arithmetic.

mod queue;

pub use self::queue::Queue;
use super::{Adjustment, Algorithm, Overdraft};
use crate::amount::ChargeTimes;
use crate::outcome::{Outcome, Verdict};
use crate::rate::{MAX_PERIOD, MAX_UNITS, QuotaError, Rate, gcd};
use crate::time::{Span, Timestamp};

/// A token bucket: a capacity and the time in which one unit comes back.
///
/// A `Bucket` is exact by construction: its interval has a finite form, and twice its fill time
/// still fits the clock.
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
    /// Whether buckets with other numbers write the same states.
    shared: bool,
    /// Grains in a full bucket. More than those of `burst` units only if the wait of a queue is
    /// bounded, and less than one unit more.
    full: u128,
    /// Whether and how requests above the rate wait.
    queue: Option<Queue>,
    /// The same bucket in ticks, if one unit is a whole number of ticks. Nearly all are.
    ticks: Option<TickBucket>,
}

/// The time at which the bucket is full again: `tat` ticks and `grains` of the next tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Whole ticks of the theoretical arrival time.
    pub tat: Timestamp,
    /// The fraction on top of `tat`, in `1/den` of a tick.
    pub grains: u32,
}

impl Bucket {
    /// Creates a bucket that holds the units of one period.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        let rate = rate.validate()?;
        let common = low(gcd(rate.count.into(), rate.period.as_micros().into()));
        let unit = rate.period.as_micros() / common;
        let den = u32::try_from(rate.count / common).map_err(|_| QuotaError::TooFine)?;
        Self { rate, burst: 0, unit, den, shared: false, full: 0, queue: None, ticks: None }
            .with_burst(rate.count)
    }

    /// Returns a bucket of the same rate with another capacity.
    pub fn with_burst(self, burst: u64) -> Result<Self, QuotaError> {
        match burst {
            0 => Err(QuotaError::ZeroBurst),
            _ if burst > MAX_UNITS => Err(QuotaError::TooMany),
            _ => self.with_full(burst, self.cost(burst)),
        }
    }

    /// Returns a bucket of the same rate that holds `full` grains, which are `burst` whole units.
    fn with_full(self, burst: u64, full: u128) -> Result<Self, QuotaError> {
        if full > u128::from(self.den) * u128::from(MAX_PERIOD.as_micros()) {
            return Err(QuotaError::TooLong);
        }
        let whole = u64::try_from(full).ok().filter(|_| self.den == 1);
        let ticks = whole.map(|full| TickBucket::new(burst, self.unit, full));
        Ok(Self { burst, full, queue: None, ticks, ..self })
    }

    /// Returns a bucket that shares its states with buckets of other numbers for the same keys.
    /// Each bucket continues from the arrival time that the last one left, regardless of its own
    /// rate and capacity.
    ///
    /// An arrival time may therefore be further ahead than this bucket's own debt allows, without
    /// any clock having stepped back. The state is left unchanged, and the key waits. Moving it
    /// back would let a small bucket erase the debt of a large one. A reader interprets fractions
    /// of a tick in its own grains, which is less than one tick off where those differ.
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

    /// Returns whether buckets with other numbers write the same states.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns the largest debt of a state, in grains. A state with a larger debt comes from a
    /// clock that stepped back and is moved back to this bound.
    pub fn max_debt(&self) -> u128 {
        if self.shared {
            return 2 * u128::from(MAX_PERIOD.as_micros()) * u128::from(self.den);
        }
        2 * self.horizon()
    }

    /// Returns the number of grains in a full bucket: the largest debt after a request.
    pub const fn grains(&self) -> u128 {
        self.full
    }

    /// Returns the rate as configured.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the number of grains in a tick. The `grains` of a state are below it.
    pub const fn grains_per_tick(&self) -> u32 {
        self.den
    }

    /// Returns the number of grains in a unit: the debt that one unit of cost adds.
    pub const fn grains_per_unit(&self) -> u64 {
        self.unit
    }

    /// Returns the same bucket in whole ticks, if one unit is a whole number of ticks and no request
    /// waits.
    #[inline]
    pub const fn in_ticks(&self) -> Option<&TickBucket> {
        self.ticks.as_ref()
    }

    /// Returns the time in which an empty bucket fills, rounded up.
    pub fn fill_time(&self) -> Span {
        self.ticks(self.full)
    }

    /// Returns the grains until the bucket is full. A clock that stepped back makes the debt
    /// larger, never smaller. A debt beyond the largest overdraft moves the state back to that
    /// bound.
    fn debt(&self, state: &mut BucketState, now: Timestamp) -> u128 {
        let debt = self.debt_as_stored(*state, now);
        // The first comparison equals `max_debt` except for shared buckets and short queues, and is
        // already computed.
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
        // More grains than a tick has were written in finer grains: they are less than a tick.
        let grains = state.grains.min(self.den);
        u128::from(state.tat.since(now).as_micros()) * u128::from(self.den) + u128::from(grains)
    }

    /// Returns the state of a key that had `state` under `before`: the same units are missing, to
    /// the fraction, but at most the capacity of this bucket or of any bucket with the same states.
    /// Rounds up by less than a grain.
    pub(crate) fn carry_over(&self, before: &Self, state: BucketState, now: Timestamp) -> BucketState {
        let debt = before.debt_as_stored(state, now).min(before.max_debt());
        self.owing(self.convert(before, debt).min(self.horizon()), now)
    }

    /// Returns the state in which as much is available as in `state` under `before`, of which this
    /// bucket is a raise.
    pub(crate) fn bound_by(&self, before: &Self, state: BucketState, now: Timestamp) -> BucketState {
        let debt = before.debt_as_stored(state, now).min(before.max_debt());
        let more = self.full.saturating_sub(self.convert(before, before.full));
        self.owing(self.convert(before, debt).saturating_add(more).min(self.horizon()), now)
    }

    /// Converts grains of another bucket to those of as many units of this one, rounded up.
    fn convert(&self, before: &Self, grains: u128) -> u128 {
        let (theirs, ours) = (u128::from(before.unit), u128::from(self.unit));
        let part = (grains % theirs * ours).div_ceil(theirs);
        (grains / theirs).saturating_mul(ours).saturating_add(part)
    }

    /// Returns whether this bucket holds at least as much as `other` and refills at least as fast.
    pub(crate) fn is_raise_of(&self, other: &Self) -> bool {
        let interval = |one: &Self, den: u32| u128::from(one.unit) * u128::from(den);
        let holds = |one: &Self, unit: u64| one.full * u128::from(unit);
        holds(self, other.unit) >= holds(other, self.unit)
            && interval(self, other.den) <= interval(other, self.den)
    }

    /// Returns the state with a debt of `debt` grains at `now`.
    fn owing(&self, debt: u128, now: Timestamp) -> BucketState {
        let den = u128::from(self.den);
        if den == 1 {
            return BucketState { tat: now + Span::from_micros(low(debt)), grains: 0 };
        }
        let ticks = divide(debt, u64::from(self.den));
        let grains = low(debt - u128::from(ticks) * den);
        BucketState { tat: now + Span::from_micros(ticks), grains: u32::try_from(grains).unwrap_or(0) }
    }

    /// Converts grains to ticks, rounded up.
    fn ticks(&self, grains: u128) -> Span {
        Span::from_micros(if self.den == 1 {
            low(grains)
        } else {
            divide(grains + u128::from(self.den) - 1, u64::from(self.den))
        })
    }

    /// Converts grains to whole units, rounded down.
    fn units(&self, grains: u128) -> u64 {
        match u64::try_from(grains) {
            Ok(small) => small / self.unit,
            Err(_) => low(grains / u128::from(self.unit)),
        }
    }

    /// Returns the units by which the debt is below the pad of a lease, rounded up.
    pub(crate) fn missing_pad(&self, state: &BucketState, ttl: Span, now: Timestamp) -> u64 {
        if self.queue.is_some() {
            return 0;
        }
        let missing = (2 * self.refilled_in(ttl)).saturating_sub(self.debt_as_stored(*state, now));
        self.units(missing + u128::from(self.unit) - 1)
    }

    /// Returns the grains that come back in a span.
    fn refilled_in(&self, span: Span) -> u128 {
        u128::from(span.as_micros()) * u128::from(self.den)
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
            Verdict::Admitted { units: cost, wait: self.wait_at(debt), leased: false }
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

    fn refund(&self, state: &mut BucketState, units: u64, charge: ChargeTimes, now: Timestamp) {
        let debt = self.debt(state, now);
        // Debts are repaid in order, so nothing is owed after the end of the charge. Its end is
        // rounded up to a tick.
        let mut owed = self.cost(units).min(self.refilled_in(charge.until.since(now)));
        if self.queue.is_none() {
            // A step leaves at most a full bucket of debt. This bounds a charge whose end is not
            // known, or is that of a rule that was replaced.
            owed = owed.min(self.full.saturating_sub(self.refilled_in(now.since(charge.at))));
        } else if self.expires_at(state) != charge.until || charge.until <= now {
            // Requests behind this place keep their times. If the end of the queue moved, newcomers
            // would start together with them, so the time of the place passes unused.
            return;
        }
        *state = self.owing(debt.saturating_sub(owed), now);
    }

    fn keeps_place(&self, state: &BucketState, adjustment: Adjustment, now: Timestamp) -> bool {
        let Adjustment::Refund { charge, .. } = adjustment else { return false };
        self.queue.is_some() && charge.until > now && self.expires_at(state) >= charge.until
    }

    fn lease(&self, state: &mut BucketState, units: u64, ttl: Span, now: Timestamp) -> Verdict {
        let debt = self.debt(state, now).max(2 * self.refilled_in(ttl));
        let units = if self.queue.is_some() { 0 } else { units };
        let units = self.units(self.full.saturating_sub(debt)).min(units);
        if units > 0 {
            *state = self.owing(debt + self.cost(units), now);
        }
        Verdict::admitted(units)
    }

    /// A lease that was taken in the future was taken before the clock stepped back, and its age is
    /// not known.
    fn return_lease(
        &self,
        state: &mut BucketState,
        units: u64,
        taken_at: Timestamp,
        ttl: Span,
        now: Timestamp,
    ) {
        let debt = self.debt(state, now);
        if self.queue.is_none() && taken_at <= now && now.since(taken_at) <= ttl {
            *state = self.owing(debt.saturating_sub(self.cost(units)), now);
        }
    }

    fn grant(&self, state: &mut BucketState, units: u64, now: Timestamp) {
        let debt = self.debt(state, now);
        *state = self.owing(debt.saturating_sub(self.cost(units.min(self.max_adjustment()))), now);
    }

    fn charge(&self, state: &mut BucketState, units: u64, overdraft: Overdraft, now: Timestamp) {
        let floor = match overdraft {
            Overdraft::None => self.full,
            Overdraft::Unlimited if self.queue.is_some() => self.horizon(),
            Overdraft::OneCapacity | Overdraft::Unlimited => 2 * self.full,
        };
        let debt = self.debt(state, now);
        let after = debt + self.cost(units.min(self.max_adjustment()));
        *state = self.owing(after.min(floor.max(debt)), now);
    }

    fn used(&self, state: &BucketState, now: Timestamp) -> u64 {
        let debt = self.debt_as_stored(*state, now).min(2 * self.horizon());
        self.units(debt + u128::from(self.unit) - 1)
    }

    /// The arrival time holds everything: the number of units follows from it.
    fn spent_until(&self, units: u64, until: Timestamp, _now: Timestamp) -> BucketState {
        if units == 0 { self.fresh() } else { BucketState { tat: until, grains: 0 } }
    }

    fn expires_at(&self, state: &BucketState) -> Timestamp {
        state.tat + Span::from_micros(u64::from(state.grains > 0))
    }
}

/// A bucket in which every number is whole, for the hot path of a store.
///
/// It decides exactly as its [`Bucket`] does, on half the bits and without the branches. The tests
/// in `tests/` check that both agree.
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

    /// Returns the ticks in which `cost` units come back, or `None` if they exceed the capacity.
    #[inline(always)]
    pub const fn price(&self, cost: u64) -> Option<u64> {
        if cost <= self.burst { Some(cost * self.unit) } else { None }
    }

    /// Returns the ticks in a full bucket: the largest debt after a payment.
    #[inline(always)]
    pub const fn full(&self) -> u64 {
        self.full
    }

    /// Returns the arrival time after paying `price`, or `None` if fewer units are left. All four
    /// times may be in any common unit, so a store may choose its own representation.
    #[inline(always)]
    pub const fn pay(tat: u64, price: u64, now: u64, full: u64) -> Option<u64> {
        let after = if tat > now { tat } else { now }.saturating_add(price);
        if after - now <= full { Some(after) } else { None }
    }

    /// Returns whether [`pay`](Self::pay) would succeed.
    #[inline(always)]
    pub const fn affords(&self, tat: Timestamp, price: u64, now: Timestamp) -> bool {
        Self::pay(tat.as_micros(), price, now.as_micros(), self.full).is_some()
    }

    /// Describes the result of [`pay`](Self::pay). `tat` is the arrival time after it. Returns
    /// `None` if the clock must have stepped back; [`Bucket`] handles that case.
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

    /// Converts ticks to whole units, rounded down, by a multiplication with the reciprocal. The
    /// product is at most one too low for any number below 2^63.
    #[inline(always)]
    const fn units(&self, ticks: u64) -> u64 {
        let quotient = low((ticks as u128 * self.inverse as u128) >> 64);
        let rest = ticks - quotient * self.unit;
        quotient + (rest >= self.unit) as u64
    }
}

/// Narrows a number that is known to fit 64 bits: debts are bounded by eight years of ticks.
#[inline]
#[allow(clippy::cast_possible_truncation)]
const fn low(value: u128) -> u64 {
    value as u64
}

/// Divides in hardware where the debt fits 64 bits, as nearly all do; `u128` division is a library
/// call.
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
    fn reciprocal_multiplication_equals_division() {
        for unit in [1u64, 2, 3, 7, 59_999, 60_000_000, (1 << 47) - 1, 1 << 47] {
            let bucket = Bucket::new(Rate::new(1, Span::from_micros(unit))).unwrap();
            let bucket = bucket.in_ticks().unwrap();
            for grains in [0, 1, unit - 1, unit, unit + 1, 2 * unit - 1, (1 << 63) - 1] {
                assert_eq!(bucket.units(grains), grains / unit, "{grains} / {unit}");
            }
        }
    }
}
