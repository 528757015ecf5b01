//! The queue of a leaky bucket: requests above the rate are admitted with a wait.
//!
//! A queue adds no number to the state. The debt of a bucket is the time until all admitted units
//! have flowed out, so it is also the time at which the next unit may start:
//!
//! ```text
//! admit iff debt + cost·T <= min((length + 1)·T, wait + (free + 1)·T)
//! wait   =  max(debt - free·T, 0)
//! ```
//!
//! The first unit starts immediately, and `length` units are queued behind it. The first `free` of
//! those start immediately, too. In the words of nginx, `length` is `burst` and `free` is `delay`;
//! `free = length` is `nodelay`.
//!
//! A request that costs several units takes as many places, and starts with the first of them. The
//! last one has to start within `wait`: that keeps the bound of a bucket one number, regardless of
//! the cost.
//!
//! States of a short queue depend only on its rate ([`Bucket::is_short_queue`]). If they depended on
//! the length, a shorter queue would forget the requests that wait in the longer one, and its
//! newcomers would overtake them.
//!
//! A request that leaves releases its place only while it is the last one: the end of its charge
//! ([`ChargeTimes::until`](crate::ChargeTimes)) is the end of the queue. The end then moves back to
//! that of the place before, whose request may leave as well. A place in the middle is not reused.
//! One number cannot describe a gap, and if the end moved back for it, newcomers would start at the
//! same time as requests that wait: a caller that cancels again and again could make a whole queue
//! start at once.
//!
//! Invariant: requests start in the order in which they were admitted, and in any stretch `d`, at
//! most `free + 1 + d/T` units start, if each request costs one unit, whichever requests leave.
//! Tested by `tests/proof/queue.rs`, against the integer arithmetic of nginx too.

use core::fmt;

use super::{Bucket, low};
use crate::rate::{MAX_UNITS, QuotaError};
use crate::time::Span;

/// The queue of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The number of units that are admitted above the rate.
    pub length: u64,
    /// The longest wait. `None`: as long as the queue.
    pub wait: Option<Span>,
    /// The number of queued units that start without a wait.
    pub free: u64,
}

impl Queue {
    /// Creates a queue of `length` units, all of which wait.
    pub const fn new(length: u64) -> Self {
        Self { length, wait: None, free: 0 }
    }

    /// Returns the same queue with a longest wait.
    #[must_use]
    pub const fn with_wait(self, wait: Span) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Returns the same queue in which the first `free` units start without a wait.
    #[must_use]
    pub const fn with_free(self, free: u64) -> Self {
        Self { free, ..self }
    }
}

/// Writes the queue with the words of a policy.
impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue of {}", self.length)?;
        if let Some(wait) = self.wait {
            write!(f, ", wait {wait}")?;
        }
        if self.free > 0 {
            write!(f, ", {} free", self.free)?;
        }
        Ok(())
    }
}

/// The longest queue whose states depend only on its rate. A state up to twice that far ahead is
/// taken for the state of a longer queue, and not for the effect of a clock that stepped back.
const MAX_SHORT_QUEUE: Span = Span::from_minutes(1);

impl Bucket {
    /// Returns a bucket of the same rate that admits requests above it with a wait.
    ///
    /// ```
    /// # use tollgate_core::{Algorithm, Bucket, Queue, QuotaError, Rate, Span, Timestamp};
    /// let queue = Bucket::new(Rate::per_second(10))?.with_queue(Queue::new(2))?;
    /// let (mut state, now) = (queue.fresh(), Timestamp::from_secs(1_000));
    /// for millis in [0, 100, 200] {
    ///     assert_eq!(queue.step(&mut state, 1, now).wait(), Span::from_millis(millis));
    /// }
    /// // One starts, two wait: the next request is refused.
    /// assert_eq!(queue.step(&mut state, 1, now).retry_after(), Some(Span::from_millis(100)));
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn with_queue(self, queue: Queue) -> Result<Self, QuotaError> {
        let units = |count: u64| (u128::from(count) + 1) * u128::from(self.unit);
        let within_length = units(queue.length);
        let within_wait =
            queue.wait.map(|wait| units(queue.free) + u128::from(wait.as_micros()) * u128::from(self.den));
        let full = within_wait.map_or(within_length, |most| most.min(within_length));
        let capacity = u64::try_from(full / u128::from(self.unit)).unwrap_or(u64::MAX);
        if capacity > MAX_UNITS {
            return Err(QuotaError::TooMany);
        }
        // In whole ticks too, it is not in ticks: the fast path of a store has no waits.
        Ok(Self { queue: Some(queue), ticks: None, ..self.with_full(capacity, full)? })
    }

    /// Returns the queue, if requests above the rate wait.
    pub const fn queue(&self) -> Option<Queue> {
        self.queue
    }

    /// Returns whether the states depend only on the rate, so that a queue whose length, wait or
    /// free places change continues with the same states.
    ///
    /// A longer queue, of more than a minute, has states of its own, which are carried over as those
    /// of other buckets are. Otherwise, a key would have to wait for any clock that stepped back.
    pub fn is_short_queue(&self) -> bool {
        self.queue.is_some() && self.full <= self.short_queue()
    }

    /// Returns the largest debt that a step leaves under any bucket with the same states, in grains.
    /// Usage that is carried over from another rule is cut there: a state that was cut at the
    /// capacity of a shorter queue would miss that usage in a longer one.
    pub fn horizon(&self) -> u128 {
        if self.queue.is_some() { self.full.max(self.short_queue()) } else { self.full }
    }

    fn short_queue(&self) -> u128 {
        u128::from(MAX_SHORT_QUEUE.as_micros()) * u128::from(self.den)
    }

    /// Returns the wait of a request that was admitted at this debt, rounded up.
    pub(super) fn wait_at(&self, debt: u128) -> Span {
        match &self.queue {
            None => Span::ZERO,
            Some(queue) => self.ticks(debt.saturating_sub(self.cost(queue.free))),
        }
    }

    /// Returns the wait of a request that is admitted when the key is fresh again after
    /// `reset_after`: zero for a bucket without a queue. Rounded up, by up to two ticks.
    pub fn wait_after(&self, reset_after: Span) -> Span {
        self.wait_at(u128::from(reset_after.as_micros()) * u128::from(self.den))
    }

    /// Returns the place in the queue of a request that waits this long: 1 is the first place behind
    /// the request that starts. Zero for a bucket without a queue.
    pub fn place_of(&self, wait: Span) -> u64 {
        let Some(queue) = &self.queue else { return 0 };
        // The wait was rounded up by less than a tick.
        let grains =
            (u128::from(wait.as_micros()) * u128::from(self.den)).saturating_sub(u128::from(self.den) - 1);
        let waiting = low(grains.div_ceil(u128::from(self.unit)));
        queue.free.saturating_add(waiting).min(queue.length)
    }

    /// Returns the largest number of units that an adjustment can change: larger numbers are
    /// equivalent.
    pub fn max_adjustment(&self) -> u64 {
        if self.queue.is_none() {
            return 2 * self.burst;
        }
        low((2 * self.horizon()).div_ceil(u128::from(self.unit)))
    }
}
