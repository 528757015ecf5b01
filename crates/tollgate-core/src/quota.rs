//! Any algorithm, chosen at run time, and the state that goes with it.
//!
//! A policy names algorithms, so limits need one type that can be any of them.
//! Everything here is a `match` that hands over to the algorithm's own file.

use std::fmt;

use crate::algorithm::{
    Algorithm, Bucket, BucketState, Concurrency, FixedWindow, FixedWindowState, Lease, Leases, SlidingLog,
    SlidingLogState, SlidingParts, SlidingPartsState, SlidingWindow, SlidingWindowState, Window,
};
use crate::amount::{Adjustment, Amount};
use crate::outcome::{Outcome, Verdict};
use crate::rate::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// One limit's promise: an algorithm with its numbers.
///
/// A `Quota` that exists can be served, since only valid algorithms can be put
/// into it.
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
    /// Token bucket, leaky meter, GCRA.
    Bucket(Bucket),
    /// So many until the window closes; as a tally, counting beyond that.
    FixedWindow(FixedWindow),
    /// So many in any stretch, estimated.
    SlidingWindow(SlidingWindow),
    /// So many in any stretch, from a few parts.
    SlidingParts(SlidingParts),
    /// So many in any stretch, exactly.
    SlidingLog(SlidingLog),
    /// So many at once.
    Concurrency(Concurrency),
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
    /// Of [`SlidingParts`].
    SlidingParts(SlidingPartsState),
    /// Of a [`SlidingLog`].
    SlidingLog(SlidingLogState),
    /// Of a [`Concurrency`].
    Concurrency(Leases),
}

/// Runs `$body` with the algorithm and its state bound, for those that count
/// units; `$slots` for the one that has slots. A state of another algorithm
/// counts as none: which state belongs to which quota is the store's business,
/// and it files them apart.
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
    /// A sliding window: of one part the two-counter estimate, of 2 to 64 one that places
    /// its own borders.
    pub fn sliding_window(rate: Rate, parts: u32) -> Result<Self, QuotaError> {
        match parts {
            1 => SlidingWindow::new(rate).map(Self::from),
            _ => SlidingParts::new(rate, parts).map(Self::from),
        }
    }

    /// The state of a key never seen.
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

    /// How many units a rested key may spend at once, or how many may hold a slot.
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

    /// The time in which the capacity comes back: what headers call the window.
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

    /// Whether its states are in the time of the wall clock: windows that are aligned to it.
    /// All others may be counted on a clock that never steps.
    pub const fn follows_wall(&self) -> bool {
        matches!(self, Self::FixedWindow(it) if it.window().is_aligned())
    }

    /// The algorithm's name, as policies and answers spell it.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Bucket(_) => "token-bucket",
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingWindow(_) | Self::SlidingParts(_) => "sliding-window",
            Self::SlidingLog(_) => "sliding-log",
            Self::Concurrency(_) => "concurrency",
        }
    }

    /// What gives this quota's states their meaning, as text: rules whose quotas
    /// differ here must not share states.
    ///
    /// Leases mean the same however many slots there are, so a slot taken before a
    /// change is released after it. Counts and instants of a window mean the same
    /// whatever the limit, so a changed limit continues with the state as it is. A
    /// bucket's arrival time means something else at another rate, unless the bucket
    /// is shared.
    pub fn identity(&self) -> String {
        match self {
            Self::Concurrency(_) => self.algorithm().to_owned(),
            Self::Bucket(it) if it.is_shared() => {
                // States with and without a fraction are not written alike.
                let ticks = if it.grains_per_tick() == 1 { "whole ticks" } else { "grains" };
                format!("{} shared, in {ticks}", self.algorithm())
            }
            Self::Bucket(_) => self.to_string(),
            Self::FixedWindow(it) if it.is_tally() => format!("{} tally, {}", self.algorithm(), it.window()),
            Self::FixedWindow(it) => {
                let size = if it.is_large() { ", large" } else { "" };
                format!("{} any/{}{size}", self.algorithm(), it.window())
            }
            Self::SlidingWindow(it) => format!("{} any/{}", self.algorithm(), it.rate().period),
            // Parts were once equal slices of the window: their states meant something else.
            Self::SlidingParts(it) => {
                let (name, period, parts) = (self.algorithm(), it.rate().period, it.parts());
                format!("{name} any/{period} in {parts} parts with borders of their own")
            }
            Self::SlidingLog(it) => format!("{} any/{}", self.algorithm(), it.rate().period),
        }
    }

    /// Meets the demand, or leaves the state as it was. A demand the quota
    /// cannot ever meet (a slot from a rate, units from slots) is
    /// [`Verdict::Never`].
    pub fn acquire(&self, state: &mut State, amount: Amount, now: Timestamp) -> Verdict {
        with_units!(self, state, |it, inner| it.acquire(inner, amount, now), |it, leases| match amount {
            Amount::Slot(owner) => it.acquire(leases, owner, now),
            Amount::Exactly(0) | Amount::UpTo(0) => Verdict::admitted(0),
            Amount::Exactly(_) | Amount::UpTo(_) => Verdict::Never,
        })
    }

    /// Words a verdict given at `now`, with how the key stands after it.
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

    /// Meets the demand and describes how the key stands then.
    pub fn step(&self, state: &mut State, amount: Amount, now: Timestamp) -> Outcome {
        let verdict = self.acquire(state, amount, now);
        self.describe(state, verdict, now)
    }

    /// Changes the state without being asked by a request. Slots are released
    /// or forgotten; units are what the other adjustments deal in.
    pub fn adjust(&self, state: &mut State, adjustment: Adjustment, now: Timestamp) {
        with_units!(self, state, |it, inner| it.adjust(inner, adjustment, now), |it, leases| {
            match adjustment {
                Adjustment::Release { owner } => {
                    it.release(leases, owner);
                }
                Adjustment::Reset => leases.held.clear(),
                Adjustment::Refund { .. } | Adjustment::Grant { .. } | Adjustment::Charge { .. } => {}
            }
        });
    }

    /// How many units are spent and not yet back, rounded up; slots held.
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

    /// From when on the state says no more than a fresh one would.
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

    /// The state of a key that has spent `units`, all of which come back at `until`; for
    /// slots, that of a key never seen. ([`Algorithm::spent_until`])
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
    /// What it holds on the heap, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Bucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => 0,
            Self::SlidingParts(state) => state.heap_bytes(),
            Self::SlidingLog(log) => log.entries.capacity() * size_of::<(Timestamp, u32)>(),
            Self::Concurrency(leases) => leases.held.capacity() * size_of::<Lease>(),
        }
    }
}

/// The quota as one line, the same for the same numbers: people read it, and
/// rule ids are made from it ([`Quota::identity`]).
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.algorithm();
        match self {
            Self::Bucket(it) if it.capacity() == it.rate().count => write!(f, "{name} {}", it.rate()),
            Self::Bucket(it) => write!(f, "{name} {}, burst {}", it.rate(), it.capacity()),
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
