//! The controller of a load shedder: how much of the least important traffic a node refuses.
//!
//! Its input is the utilization of the node, the largest ratio of a measured signal to its target.
//! Its output is a [`Level`]: the number of classes that are shed, in thousandths of a class. The
//! last class is shed first, a growing share of it and then all of it, then the class before it.
//!
//! ```text
//! utilization   0            0.875        1.0          1.25              2.0
//!               ├── falls ────┼─ stays ────┼─ rises slowly ┼─ rises faster ──┼─ rises at four times the speed
//! ```
//!
//! Four rules keep the level from oscillating:
//! - Between 0.875 and 1 of the target it stays. (Stripe's controller has the same gap: 0.7 to 0.8.)
//! - It falls only after the utilization has not exceeded the target for [`hold`](ShedderRates::hold),
//!   and more slowly than it rises.
//! - When a class is shed entirely, it stays for `hold` before it goes on to the next class, or for
//!   less if the overload is large: the effect of a shed class shows only after the running requests
//!   have ended.
//! - While the utilization falls by a tenth per second or more, the level does not rise: the shed
//!   share is sufficient, and the backlog drains.
//!
//! So the level changes from falling to rising at most once per `hold`, whatever the input is.
//!
//! Time and random numbers are arguments. Measuring and refusing are in `tollgate`.
//!
//! Tested by `tests/shedder.rs`, in virtual time, against a controller without these rules.

mod level;
mod smoothed;

pub use level::Level;
pub use smoothed::Smoothed;

use std::time::Duration;

/// A utilization at which a signal equals its target, in thousandths.
pub const AT_TARGET: u32 = 1_000;
/// The utilization below which the level falls, in thousandths.
pub const FALLS_BELOW: u32 = 875;
/// The excess of the utilization over the target at which a class takes [`ShedderRates::rise`], in
/// thousandths.
const NORMAL_EXCESS: u32 = 250;
/// The maximum of the excess that makes the level rise faster, in multiples of the normal one.
const MAX_URGENCY: u64 = 4;
/// The decline of the utilization per second at which the level does not rise, in thousandths.
const SUFFICIENT_DECLINE: u128 = 100;
/// The longest time that one update accounts for. A controller that was not updated for longer knows
/// nothing about the time in between.
const MAX_STEP: Duration = Duration::from_secs(1);
/// One class, in the unit of the controller. Finer than a [`Level`], so that slow rates add up.
const CLASS: u64 = 1_000_000_000;

/// The speeds of a [`Shedder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedderRates {
    /// The time in which a class goes from admitted to shed, at 1.25 times the target. At twice the
    /// target or more, it takes a quarter of this time.
    pub rise: Duration,
    /// The time in which a class goes from shed to admitted, at a utilization of zero.
    pub fall: Duration,
    /// The time for which the level stays before it falls, and before it goes on to the next class.
    /// At twice the target or more, it goes on after a quarter of this time.
    pub hold: Duration,
}

/// A class is shed within two seconds, and comes back within seven after the end of the overload.
impl Default for ShedderRates {
    fn default() -> Self {
        Self { rise: Duration::from_secs(2), fall: Duration::from_secs(5), hold: Duration::from_secs(2) }
    }
}

/// The controller of a load shedder.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate_overload::shedder::{Shedder, ShedderRates};
/// let (mut shedder, rates) = (Shedder::default(), ShedderRates::default());
/// let mut level = shedder.level();
/// for tick in 0..=10 {
///     level = shedder.update(Duration::from_millis(100 * tick), 1_250, 3, &rates);
/// }
/// // After one second at 1.25 times the target: half of the last of three classes.
/// assert_eq!([0, 1, 2].map(|rank| level.share(rank, 3)), [0, 0, 500]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shedder {
    /// In billionths of a class.
    level: u64,
    /// The time of the last update.
    at: Option<Duration>,
    /// The utilization of the last update, in thousandths.
    utilization: u32,
    /// The last time at which the utilization exceeded the target.
    exceeded_at: Option<Duration>,
    /// The time at which the last class was shed entirely, while the level rises.
    class_full_at: Option<Duration>,
}

impl Shedder {
    /// Returns the current level.
    pub fn level(&self) -> Level {
        Level::from_thousandths(u32::try_from(self.level / (CLASS / 1_000)).unwrap_or(u32::MAX))
    }

    /// Moves the level by the time since the last update and returns it. `utilization` is in
    /// thousandths of the target; `classes` is the number of classes that may be shed.
    pub fn update(&mut self, now: Duration, utilization: u32, classes: u8, rates: &ShedderRates) -> Level {
        let elapsed = self.elapsed(now);
        let before = std::mem::replace(&mut self.utilization, utilization);
        let max = CLASS * u64::from(classes);
        self.level = self.level.min(max);
        if utilization > AT_TARGET {
            self.exceeded_at = Some(now);
            if !declines(before, utilization, elapsed) {
                self.rise(now, urgency(utilization), elapsed, rates);
                self.level = self.level.min(max);
            }
        } else if utilization < FALLS_BELOW && is_past(self.exceeded_at, now, rates.hold) {
            self.level = self.level.saturating_sub(step(elapsed, spare(utilization), rates.fall));
            self.class_full_at = None;
        }
        self.level()
    }

    /// Keeps the level: the time until `now` does not count.
    pub fn skip(&mut self, now: Duration) -> Level {
        self.elapsed(now);
        self.level()
    }

    /// Sets the level to zero, as at the start.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    fn rise(&mut self, now: Duration, urgency: u64, elapsed: Duration, rates: &ShedderRates) {
        if self.level > 0 && self.level.is_multiple_of(CLASS) {
            let full_at = *self.class_full_at.get_or_insert(now);
            let shortened = u32::try_from(urgency / 1_000).unwrap_or(1).max(1);
            if !is_past(Some(full_at), now, rates.hold / shortened) {
                return;
            }
        }
        self.class_full_at = None;
        // A step ends where the class is shed entirely.
        let next_class = (self.level / CLASS + 1) * CLASS;
        self.level = self.level.saturating_add(step(elapsed, urgency, rates.rise)).min(next_class);
        if self.level == next_class {
            self.class_full_at = Some(now);
        }
    }

    /// Returns the time since the last update. A clock that steps back counts as no time, and times
    /// in the future are moved back, so that no wait lasts until the clock catches up.
    fn elapsed(&mut self, now: Duration) -> Duration {
        let last = self.at.replace(now);
        if last.is_some_and(|last| last > now) {
            for time in [&mut self.exceeded_at, &mut self.class_full_at] {
                *time = time.map(|time| time.min(now));
            }
        }
        now.saturating_sub(last.unwrap_or(now)).min(MAX_STEP)
    }
}

/// Whether `wait` has passed since a time.
fn is_past(since: Option<Duration>, now: Duration, wait: Duration) -> bool {
    since.is_none_or(|since| now.saturating_sub(since) >= wait)
}

/// Whether a utilization declines so fast that the shed share is sufficient.
fn declines(before: u32, now: u32, elapsed: Duration) -> bool {
    let decline = u128::from(before) * SUFFICIENT_DECLINE * elapsed.as_micros();
    now < before && u128::from(before - now) * 1_000_000_000 >= decline
}

/// Returns the speed at which the level rises, in thousandths of the configured one.
fn urgency(utilization: u32) -> u64 {
    let excess = u64::from(utilization.saturating_sub(AT_TARGET));
    (excess * 1_000 / u64::from(NORMAL_EXCESS)).min(MAX_URGENCY * 1_000)
}

/// Returns the speed at which the level falls, in thousandths of the configured one: the square of
/// the spare part, so that traffic returns slowly where little is spare.
fn spare(utilization: u32) -> u64 {
    let spare = u64::from(FALLS_BELOW.saturating_sub(utilization)) * 1_000 / u64::from(FALLS_BELOW);
    spare * spare / 1_000
}

/// Returns the change of the level in `elapsed`, for a class that takes `per_class` at a speed of 1000.
fn step(elapsed: Duration, speed: u64, per_class: Duration) -> u64 {
    let per_class = per_class.as_micros().max(1);
    let step = elapsed.as_micros() * u128::from(CLASS) * u128::from(speed) / (per_class * 1_000);
    u64::try_from(step).unwrap_or(u64::MAX)
}
