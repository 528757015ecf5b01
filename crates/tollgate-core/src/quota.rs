//! A quota of any algorithm, chosen at run time, and its state.
//!
//! A policy names algorithms, so limits need one type that can be any of them. Every method is a
//! `match` that delegates to the module of the algorithm.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt;

use crate::algorithm::{
    Algorithm, Bucket, BucketState, Concurrency, FixedWindow, FixedWindowState, Lease, Leases, SlidingLog,
    SlidingLogState, SlidingParts, SlidingPartsState, SlidingWindow, SlidingWindowState, Window,
};
use crate::amount::{Adjustment, Amount};
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// The configuration of one limit: an algorithm with its numbers.
///
/// A `Quota` is valid by construction, since it can only hold valid algorithms.
///
/// ```
/// # use tollgate_core::{Bucket, Amount, Quota, QuotaError, Rate, Timestamp};
/// let quota = Quota::from(Bucket::new(Rate::per_minute(2))?);
/// let (mut state, now) = (quota.fresh(), Timestamp::from_secs(7));
/// assert!(quota.step(&mut state, Amount::Exactly(2), now).is_admitted());
/// assert!(!quota.step(&mut state, Amount::Exactly(1), now).is_admitted());
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Token bucket, leaky meter, leaky queue, GCRA.
    Bucket(Bucket),
    /// A number of units per window; as a tally, it counts beyond its limit.
    FixedWindow(FixedWindow),
    /// A number of units in any stretch of a window, estimated from two counts.
    SlidingWindow(SlidingWindow),
    /// A number of units in any stretch of a window, from a few parts.
    SlidingParts(SlidingParts),
    /// A number of units in any stretch of a window, exactly.
    SlidingLog(SlidingLog),
    /// A number of concurrent holders.
    Concurrency(Concurrency),
}

/// The state of one key, for any algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// State of a [`Bucket`].
    Bucket(BucketState),
    /// State of a [`FixedWindow`].
    FixedWindow(FixedWindowState),
    /// State of a [`SlidingWindow`].
    SlidingWindow(SlidingWindowState),
    /// State of [`SlidingParts`].
    SlidingParts(SlidingPartsState),
    /// State of a [`SlidingLog`].
    SlidingLog(SlidingLogState),
    /// State of a [`Concurrency`].
    Concurrency(Leases),
}

/// Runs `$body` with the algorithm and its state bound, for algorithms that count units; `$slots`
/// for the concurrency limit. A state of another algorithm counts as a fresh one: the store is
/// responsible for matching states to quotas, and stores them under separate rule ids.
macro_rules! with_units {
    ($quota:expr, $state:expr, |$algorithm:ident, $inner:ident| $body:expr, |$limit:ident, $leases:ident| $slots:expr) => {
        match $quota {
            Quota::Bucket($algorithm) => with_units!(@ Bucket $algorithm $state, $inner => $body),
            Quota::FixedWindow($algorithm) => with_units!(@ FixedWindow $algorithm $state, $inner => $body),
            Quota::SlidingWindow($algorithm) => with_units!(@ SlidingWindow $algorithm $state, $inner => $body),
            Quota::SlidingParts($algorithm) => with_units!(@ SlidingParts $algorithm $state, $inner => $body),
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
    /// Creates a sliding window: the two-counter estimate for one part, [`SlidingParts`] for 2 to
    /// 64.
    pub fn sliding_window(rate: Rate, parts: u32) -> Result<Self, QuotaError> {
        match parts {
            1 => SlidingWindow::new(rate).map(Self::from),
            _ => SlidingParts::new(rate, parts).map(Self::from),
        }
    }

    /// Returns the state of a key that has never been seen.
    pub fn fresh(&self) -> State {
        match self {
            Self::Bucket(it) => State::Bucket(it.fresh()),
            Self::FixedWindow(it) => State::FixedWindow(it.fresh()),
            Self::SlidingWindow(it) => State::SlidingWindow(it.fresh()),
            Self::SlidingParts(it) => State::SlidingParts(it.fresh()),
            Self::SlidingLog(it) => State::SlidingLog(it.fresh()),
            Self::Concurrency(_) => State::Concurrency(Leases::default()),
        }
    }

    /// Returns the number of units that a rested key may spend in one step, or the number of slots.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Bucket(it) => it.capacity(),
            Self::FixedWindow(it) => it.capacity(),
            Self::SlidingWindow(it) => it.capacity(),
            Self::SlidingParts(it) => it.capacity(),
            Self::SlidingLog(it) => it.capacity(),
            Self::Concurrency(it) => u64::from(it.slots()),
        }
    }

    /// Returns the time in which the capacity comes back: the window of headers.
    pub fn period(&self) -> Span {
        match self {
            Self::Bucket(it) => it.fill_time(),
            Self::FixedWindow(it) => it.window().longest(),
            Self::SlidingWindow(it) => it.rate().period,
            Self::SlidingParts(it) => it.rate().period,
            Self::SlidingLog(it) => it.rate().period,
            Self::Concurrency(it) => it.ttl(),
        }
    }

    /// Returns whether its states use the time of the wall clock, as windows aligned to it do. All
    /// other states may be counted on a monotonic clock.
    pub const fn follows_wall(&self) -> bool {
        matches!(self, Self::FixedWindow(it) if it.window().is_aligned())
    }

    /// Returns whether units may be leased: spent some time after they were charged, without more
    /// being admitted than the quota allows.
    ///
    /// A log and a window in parts forget a unit one period after its charge, so a unit that was
    /// spent later would count for too short a time. The requests of a queue start at the time of
    /// their charge, and a tally counts refusals.
    pub const fn is_leasable(&self) -> bool {
        match self {
            Self::Bucket(it) => it.queue().is_none(),
            Self::FixedWindow(it) => !it.is_tally(),
            Self::SlidingWindow(_) => true,
            Self::SlidingParts(_) | Self::SlidingLog(_) | Self::Concurrency(_) => false,
        }
    }

    /// Returns the name of the algorithm, as used in policies and answers.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Bucket(it) if it.queue().is_some() => "leaky-queue",
            Self::Bucket(_) => "token-bucket",
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingWindow(_) | Self::SlidingParts(_) => "sliding-window",
            Self::SlidingLog(_) => "sliding-log",
            Self::Concurrency(_) => "concurrency",
        }
    }

    /// Returns a text that identifies the meaning of this quota's states. Rules whose quotas differ
    /// in it must not share states.
    ///
    /// Leases have the same meaning for any number of slots, so a slot taken before a change is
    /// released after it. Counts and instants of a window have the same meaning for any limit, so a
    /// changed limit continues with the same state. The arrival time of a bucket has another
    /// meaning at another rate, unless the bucket is shared. That of a short queue has the same
    /// meaning for any length of the queue.
    pub fn identity(&self) -> String {
        match self {
            Self::Concurrency(_) => self.algorithm().to_owned(),
            Self::Bucket(it) if it.is_shared() => {
                // States with and without a fraction have different encodings.
                let ticks = if it.grains_per_tick() == 1 { "whole ticks" } else { "grains" };
                format!("{} shared, in {ticks}", self.algorithm())
            }
            Self::Bucket(it) if it.is_short_queue() => format!("{} {}", self.algorithm(), it.rate()),
            Self::Bucket(_) => self.to_string(),
            Self::FixedWindow(it) if it.is_tally() => format!("{} tally, {}", self.algorithm(), it.window()),
            Self::FixedWindow(it) => {
                let size = if it.is_large() { ", large" } else { "" };
                format!("{} any/{}{size}", self.algorithm(), it.window())
            }
            Self::SlidingWindow(it) => format!("{} any/{}", self.algorithm(), it.rate().period),
            // Earlier versions used equal parts, whose states have another meaning. A strict window
            // reads the same states in another way, and counts no fewer units.
            Self::SlidingParts(it) => {
                let (name, period, parts) = (self.algorithm(), it.rate().period, it.parts());
                format!("{name} any/{period} in {parts} parts with borders of their own")
            }
            Self::SlidingLog(it) => format!("{} any/{}", self.algorithm(), it.rate().period),
        }
    }

    /// Acquires the amount, or leaves the state unchanged. An amount that the quota can never
    /// provide (a slot from a rate, units from slots) is [`Verdict::Never`].
    pub fn acquire(&self, state: &mut State, amount: Amount, now: Timestamp) -> Verdict {
        with_units!(self, state, |it, inner| it.acquire(inner, amount, now), |it, leases| match amount {
            Amount::Slot(owner) => it.acquire(leases, owner, now),
            Amount::Exactly(0) | Amount::UpTo(0) => Verdict::admitted(0),
            Amount::Exactly(_) | Amount::UpTo(_) | Amount::Lease(_) => Verdict::Never,
        })
    }

    /// Completes a verdict given at `now` with the limit, the remaining units and the reset time of
    /// the key.
    pub fn describe(&self, state: &State, verdict: Verdict, now: Timestamp) -> Outcome {
        match (self, state) {
            (Self::Bucket(it), State::Bucket(inner)) => it.describe(inner, verdict, now),
            (Self::FixedWindow(it), State::FixedWindow(inner)) => it.describe(inner, verdict, now),
            (Self::SlidingWindow(it), State::SlidingWindow(inner)) => it.describe(inner, verdict, now),
            (Self::SlidingParts(it), State::SlidingParts(inner)) => it.describe(inner, verdict, now),
            (Self::SlidingLog(it), State::SlidingLog(inner)) => it.describe(inner, verdict, now),
            (Self::Concurrency(it), State::Concurrency(leases)) => it.describe(leases, verdict, now),
            _ => self.describe(&self.fresh(), verdict, now),
        }
    }

    /// Acquires the amount and describes the key after it.
    pub fn step(&self, state: &mut State, amount: Amount, now: Timestamp) -> Outcome {
        let verdict = self.acquire(state, amount, now);
        self.describe(state, verdict, now)
    }

    /// Changes the state without a request. Concurrency limits support `Release`, `ReleaseOldest`, `Renew` and
    /// `Reset`; the other adjustments apply to units.
    ///
    /// Returns an admission of zero units, or of one unit if a slot was renewed, or if a refund left a place of a
    /// queue as it is ([`keeps_place`](Self::keeps_place)).
    pub fn adjust(&self, state: &mut State, adjustment: Adjustment, now: Timestamp) -> Verdict {
        let mut is_renewed = false;
        with_units!(self, state, |it, inner| it.adjust(inner, adjustment, now), |it, leases| {
            match adjustment {
                Adjustment::Release { owner } => {
                    it.release(leases, owner);
                }
                Adjustment::Renew { owner } => is_renewed = it.renew(leases, owner, now),
                Adjustment::Reset => leases.held.clear(),
                Adjustment::ReleaseOldest { slots } => it.release_oldest(leases, slots, now),
                Adjustment::Refund { .. }
                | Adjustment::Grant { .. }
                | Adjustment::Charge { .. }
                | Adjustment::ReturnLease { .. } => {}
            }
        });
        Verdict::admitted(u64::from(is_renewed || self.keeps_place(state, adjustment, now)))
    }

    /// Returns whether an admission of this amount takes a slot or a place in a queue, which the caller has to
    /// release.
    pub const fn takes_place(&self, amount: Amount) -> bool {
        matches!(amount, Amount::Slot(_)) || matches!(self, Self::Bucket(it) if it.queue().is_some())
    }

    /// Returns whether a refund left a place of a queue as it is. See [`Algorithm::keeps_place`].
    pub fn keeps_place(&self, state: &State, adjustment: Adjustment, now: Timestamp) -> bool {
        match (self, state) {
            (Self::Bucket(it), State::Bucket(inner)) => it.keeps_place(inner, adjustment, now),
            _ => false,
        }
    }

    /// Returns the units that are spent and have not come back, rounded up, or the held slots.
    pub fn used(&self, state: &State, now: Timestamp) -> u64 {
        match (self, state) {
            (Self::Bucket(it), State::Bucket(inner)) => it.used(inner, now),
            (Self::FixedWindow(it), State::FixedWindow(inner)) => it.used(inner, now),
            (Self::SlidingWindow(it), State::SlidingWindow(inner)) => it.used(inner, now),
            (Self::SlidingParts(it), State::SlidingParts(inner)) => it.used(inner, now),
            (Self::SlidingLog(it), State::SlidingLog(inner)) => it.used(inner, now),
            (Self::Concurrency(it), State::Concurrency(leases)) => {
                let standing = it.describe(leases, Verdict::admitted(0), now);
                standing.limit - standing.remaining
            }
            _ => 0,
        }
    }

    /// Returns the time from which the state is equivalent to a fresh one.
    pub fn expires_at(&self, state: &State) -> Timestamp {
        match (self, state) {
            (Self::Bucket(it), State::Bucket(inner)) => it.expires_at(inner),
            (Self::FixedWindow(it), State::FixedWindow(inner)) => it.expires_at(inner),
            (Self::SlidingWindow(it), State::SlidingWindow(inner)) => it.expires_at(inner),
            (Self::SlidingParts(it), State::SlidingParts(inner)) => it.expires_at(inner),
            (Self::SlidingLog(it), State::SlidingLog(inner)) => it.expires_at(inner),
            (Self::Concurrency(it), State::Concurrency(leases)) => it.expires_at(leases),
            _ => Timestamp::EPOCH,
        }
    }

    /// Returns the state of a key that has spent `units`, all of which come back at `until`. For
    /// slots, returns a fresh state. See [`Algorithm::spent_until`].
    pub fn spent_until(&self, units: u64, until: Timestamp, now: Timestamp) -> State {
        match self {
            Self::Bucket(it) => State::Bucket(it.spent_until(units, until, now)),
            Self::FixedWindow(it) => State::FixedWindow(it.spent_until(units, until, now)),
            Self::SlidingWindow(it) => State::SlidingWindow(it.spent_until(units, until, now)),
            Self::SlidingParts(it) => State::SlidingParts(it.spent_until(units, until, now)),
            Self::SlidingLog(it) => State::SlidingLog(it.spent_until(units, until, now)),
            Self::Concurrency(_) => self.fresh(),
        }
    }
}

impl State {
    /// Returns its heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Bucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => 0,
            Self::SlidingParts(state) => state.heap_bytes(),
            Self::SlidingLog(log) => log.entries.capacity() * size_of::<(Timestamp, u32)>(),
            Self::Concurrency(leases) => leases.held.capacity() * size_of::<Lease>(),
        }
    }
}

/// Writes the quota as one line, the same for the same numbers. People read it, and rule ids are
/// derived from it ([`Quota::identity`]).
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.algorithm();
        match self {
            Self::Bucket(it) => match it.queue() {
                Some(queue) => write!(f, "{name} {}, {queue}", it.rate()),
                None if it.capacity() == it.rate().count => write!(f, "{name} {}", it.rate()),
                None => write!(f, "{name} {}, burst {}", it.rate(), it.capacity()),
            },
            Self::FixedWindow(it) => {
                match it.window() {
                    Window::Epoch(length) => write!(f, "{name} {}", Rate::new(it.capacity(), *length)),
                    Window::Anchored(length) => {
                        write!(f, "{name} {} from the first request", Rate::new(it.capacity(), *length))
                    }
                    Window::Calendar(calendar) => write!(f, "{name} {}/{calendar}", it.capacity()),
                }?;
                f.write_str(if it.is_tally() { ", counts refusals" } else { "" })
            }
            Self::SlidingWindow(it) => write!(f, "{name} {}", it.rate()),
            Self::SlidingParts(it) => {
                let strict = if it.is_strict() { ", strict" } else { "" };
                write!(f, "{name} {} in {} parts{strict}", it.rate(), it.parts())
            }
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
from_algorithm!(Bucket, FixedWindow, SlidingWindow, SlidingParts, SlidingLog, Concurrency);
