//! Any algorithm, chosen at run time, and the state that goes with it.
//!
//! A policy names algorithms, so limits need one type that can be any of them.
//! Everything here is a `match` that hands over to the algorithm's own file.

use std::fmt;

use crate::algorithm::{
    Algorithm, Bucket, BucketState, Concurrency, FixedWindow, FixedWindowState, Leases, Overdraft, Owner,
    SlidingLog, SlidingLogState, SlidingWindow, SlidingWindowState, Window,
};
use crate::outcome::{Outcome, Verdict};
use crate::rate::Rate;
use crate::time::{Span, Timestamp};

/// One limit's promise: an algorithm with its numbers.
///
/// A `Quota` that exists can be served, since only valid algorithms can be put
/// into it.
///
/// ```
/// # use tollgate_core::{Bucket, Demand, Quota, QuotaError, Rate, Timestamp};
/// let quota = Quota::from(Bucket::new(Rate::per_minute(2))?);
/// let (mut state, now) = (quota.fresh(), Timestamp::from_secs(7));
/// assert!(quota.step(&mut state, Demand::Exactly(2), now).is_admitted());
/// assert!(!quota.step(&mut state, Demand::Exactly(1), now).is_admitted());
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Token bucket, leaky meter, GCRA.
    Bucket(Bucket),
    /// So many until the window closes.
    FixedWindow(FixedWindow),
    /// So many in any stretch, estimated.
    SlidingWindow(SlidingWindow),
    /// So many in any stretch, exactly.
    SlidingLog(SlidingLog),
    /// So many at once.
    Concurrency(Concurrency),
}

/// What is asked of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// This many units or none. Zero only looks.
    Exactly(u64),
    /// As many units as there are, up to this many; refused only when there are none.
    UpTo(u64),
    /// A slot for this owner. Only concurrency limits have slots.
    Slot(Owner),
}

/// What is remembered about one key, for any algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a [`Bucket`].
    Bucket(BucketState),
    /// Of a [`FixedWindow`].
    FixedWindow(FixedWindowState),
    /// Of a [`SlidingWindow`].
    SlidingWindow(SlidingWindowState),
    /// Of a [`SlidingLog`].
    SlidingLog(SlidingLogState),
    /// Of a [`Concurrency`].
    Concurrency(Leases),
}

/// Runs `$body` with the algorithm and its state bound, for the four that count
/// units; `$slots` for the one that has slots. A state of another algorithm
/// counts as none: which state belongs to which quota is the store's business,
/// and it files them apart.
macro_rules! with_units {
    ($quota:expr, $state:expr, |$algorithm:ident, $inner:ident| $body:expr, |$limit:ident, $leases:ident| $slots:expr) => {
        match $quota {
            Quota::Bucket($algorithm) => with_units!(@ Bucket $algorithm $state, $inner => $body),
            Quota::FixedWindow($algorithm) => with_units!(@ FixedWindow $algorithm $state, $inner => $body),
            Quota::SlidingWindow($algorithm) => with_units!(@ SlidingWindow $algorithm $state, $inner => $body),
            Quota::SlidingLog($algorithm) => with_units!(@ SlidingLog $algorithm $state, $inner => $body),
            Quota::Concurrency($limit) => {
                if !matches!($state, State::Concurrency(_)) {
                    *$state = State::Concurrency(Leases::default());
                }
                let State::Concurrency($leases) = $state else { unreachable!("just made so") };
                $slots
            }
        }
    };
    (@ $kind:ident $algorithm:ident $state:expr, $inner:ident => $body:expr) => {{
        if !matches!($state, State::$kind(_)) {
            *$state = State::$kind($algorithm.fresh());
        }
        let State::$kind($inner) = $state else { unreachable!("just made so") };
        $body
    }};
}

impl Quota {
    /// The state of a key never seen.
    pub fn fresh(&self) -> State {
        match self {
            Self::Bucket(it) => State::Bucket(it.fresh()),
            Self::FixedWindow(it) => State::FixedWindow(it.fresh()),
            Self::SlidingWindow(it) => State::SlidingWindow(it.fresh()),
            Self::SlidingLog(it) => State::SlidingLog(it.fresh()),
            Self::Concurrency(_) => State::Concurrency(Leases::default()),
        }
    }

    /// How many units a rested key may spend at once, or how many may hold a slot.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Bucket(it) => it.capacity(),
            Self::FixedWindow(it) => it.capacity(),
            Self::SlidingWindow(it) => it.capacity(),
            Self::SlidingLog(it) => it.capacity(),
            Self::Concurrency(it) => u64::from(it.slots()),
        }
    }

    /// The time in which the capacity comes back: what headers call the window.
    pub fn period(&self) -> Span {
        match self {
            Self::Bucket(it) => it.fill_time(),
            Self::FixedWindow(it) => it.window().longest(),
            Self::SlidingWindow(it) => it.rate().period,
            Self::SlidingLog(it) => it.rate().period,
            Self::Concurrency(it) => it.ttl(),
        }
    }

    /// The algorithm's name, as policies and answers spell it.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Bucket(_) => "token-bucket",
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingWindow(_) => "sliding-window",
            Self::SlidingLog(_) => "sliding-log",
            Self::Concurrency(_) => "concurrency",
        }
    }

    /// Meets the demand, or leaves the state as it was. A demand the quota
    /// cannot ever meet (a slot from a rate, units from slots) is
    /// [`Verdict::Never`].
    pub fn step(&self, state: &mut State, demand: Demand, now: Timestamp) -> Outcome {
        with_units!(
            self,
            state,
            |it, inner| match demand {
                Demand::Exactly(cost) => it.step(inner, cost, now),
                Demand::UpTo(most) => it.step_up_to(inner, most, now),
                Demand::Slot(_) => Outcome { verdict: Verdict::Never, ..it.step(inner, 0, now) },
            },
            |it, leases| match demand {
                Demand::Slot(owner) => it.acquire(leases, owner, now),
                Demand::Exactly(0) | Demand::UpTo(0) => it.peek(leases, now),
                Demand::Exactly(_) | Demand::UpTo(_) => {
                    Outcome { verdict: Verdict::Never, ..it.peek(leases, now) }
                }
            }
        )
    }

    /// Gives back what a step at `taken_at` spent. Slots are released, not refunded.
    pub fn refund(&self, state: &mut State, units: u64, taken_at: Timestamp, now: Timestamp) {
        with_units!(self, state, |it, inner| it.refund(inner, units, taken_at, now), |_it, _leases| ());
    }

    /// Lets the key spend `units` more, but never more than a rested key.
    pub fn grant(&self, state: &mut State, units: u64, now: Timestamp) {
        with_units!(self, state, |it, inner| it.grant(inner, units, now), |_it, _leases| ());
    }

    /// Spends `units` whether or not they are there.
    pub fn charge(&self, state: &mut State, units: u64, overdraft: Overdraft, now: Timestamp) {
        with_units!(self, state, |it, inner| it.charge(inner, units, overdraft, now), |_it, _leases| ());
    }

    /// Frees the slot of `owner`. True when it held one.
    pub fn release(&self, state: &mut State, owner: Owner) -> bool {
        with_units!(self, state, |_it, _inner| false, |it, leases| it.release(leases, owner))
    }

    /// How many units are spent and not yet back, rounded up; slots held.
    pub fn used(&self, state: &State, now: Timestamp) -> u64 {
        match (self, state) {
            (Self::Bucket(it), State::Bucket(inner)) => it.used(inner, now),
            (Self::FixedWindow(it), State::FixedWindow(inner)) => it.used(inner, now),
            (Self::SlidingWindow(it), State::SlidingWindow(inner)) => it.used(inner, now),
            (Self::SlidingLog(it), State::SlidingLog(inner)) => it.used(inner, now),
            (Self::Concurrency(it), State::Concurrency(leases)) => {
                let peeked = it.peek(leases, now);
                peeked.limit - peeked.remaining
            }
            _ => 0,
        }
    }

    /// From when on the state says no more than a fresh one would.
    pub fn forgettable_at(&self, state: &State) -> Timestamp {
        match (self, state) {
            (Self::Bucket(it), State::Bucket(inner)) => it.forgettable_at(inner),
            (Self::FixedWindow(it), State::FixedWindow(inner)) => it.forgettable_at(inner),
            (Self::SlidingWindow(it), State::SlidingWindow(inner)) => it.forgettable_at(inner),
            (Self::SlidingLog(it), State::SlidingLog(inner)) => it.forgettable_at(inner),
            (Self::Concurrency(it), State::Concurrency(leases)) => it.forgettable_at(leases),
            _ => Timestamp::EPOCH,
        }
    }

    /// The state a key has under this quota after it had `state` under `before`.
    ///
    /// What carries over is what was spent: whoever had used 60 of 100 has 940
    /// left of a new 1000, and nothing left of a new 50. Leases carry over as
    /// they are.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Demand, Quota, QuotaError, Rate, Timestamp};
    /// let now = Timestamp::from_secs(7);
    /// let before = Quota::from(Bucket::new(Rate::per_minute(100))?);
    /// let after = Quota::from(Bucket::new(Rate::per_minute(1000))?);
    /// let mut state = before.fresh();
    /// before.step(&mut state, Demand::Exactly(60), now);
    /// let mut state = after.carry_over(&before, &state, now);
    /// assert_eq!(after.step(&mut state, Demand::Exactly(0), now).remaining, 940);
    /// # Ok::<(), QuotaError>(())
    /// ```
    #[must_use]
    pub fn carry_over(&self, before: &Self, state: &State, now: Timestamp) -> State {
        match (self, before, state) {
            _ if self == before => state.clone(),
            (Self::Concurrency(_), Self::Concurrency(_), State::Concurrency(_)) => state.clone(),
            (Self::Concurrency(_), ..) | (_, Self::Concurrency(_), _) => self.fresh(),
            _ => {
                let mut carried = self.fresh();
                self.charge(&mut carried, before.used(state, now), Overdraft::None, now);
                carried
            }
        }
    }
}

/// The quota as one line, the same for the same numbers: people read it, and
/// rule ids are made from it.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.algorithm();
        match self {
            Self::Bucket(it) if it.capacity() == it.rate().count => write!(f, "{name} {}", it.rate()),
            Self::Bucket(it) => write!(f, "{name} {}, burst {}", it.rate(), it.capacity()),
            Self::FixedWindow(it) => match it.window() {
                Window::Epoch(length) => write!(f, "{name} {}", Rate::new(it.capacity(), *length)),
                Window::Anchored(length) => {
                    write!(f, "{name} {} from the first request", Rate::new(it.capacity(), *length))
                }
                Window::Calendar(calendar) => write!(f, "{name} {}/{calendar}", it.capacity()),
            },
            Self::SlidingWindow(it) if it.parts() == 1 => write!(f, "{name} {}", it.rate()),
            Self::SlidingWindow(it) => write!(f, "{name} {} in {} parts", it.rate(), it.parts()),
            Self::SlidingLog(it) => write!(f, "{name} {}", it.rate()),
            Self::Concurrency(it) => write!(f, "{name} {} for {}", it.slots(), it.ttl()),
        }
    }
}

macro_rules! from_algorithm {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Quota {
            fn from(it: $kind) -> Self {
                Self::$kind(it)
            }
        }
    )*};
}
from_algorithm!(Bucket, FixedWindow, SlidingWindow, SlidingLog, Concurrency);
