//! The interface of all algorithms, with one module per algorithm.
//!
//! An algorithm is arithmetic on the state of one key. It has no clock, no lock and no key. A store
//! makes a step atomic.
//!
//! Three rules hold for every algorithm; the tests in `tests/` check each of them:
//! - A refused step leaves the state unchanged, byte for byte.
//! - Rounding favors the limit: `remaining` is rounded down, `retry_after` up.
//! - A clock that steps back never raises the remaining units. A state further ahead than twice its
//!   own period can only come from such a clock. It is moved back to that bound, also by a refused
//!   step, so that no key waits for the clock to catch up.

mod bucket;
mod calendar;
mod concurrency;
mod fixed_window;
mod sliding_log;
mod sliding_parts;
mod sliding_window;
mod window;

pub use bucket::{Bucket, BucketState, Queue, TickBucket};
pub use calendar::{Calendar, CalendarUnit};
pub use concurrency::{Concurrency, Lease, Leases, Owner};
pub use fixed_window::{FixedWindow, FixedWindowState};
pub use sliding_log::{SlidingLog, SlidingLogState};
pub use sliding_parts::{SlidingParts, SlidingPartsState};
pub use sliding_window::{SlidingWindow, SlidingWindowState};
pub use window::Window;

use crate::amount::{Adjustment, Amount, ChargeTimes, LeaseRequest};
use crate::outcome::{Outcome, Verdict};
use crate::time::{Span, Timestamp};

/// The lowest balance that a forced charge may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdraft {
    /// The balance stops at zero. Used for the cost of a refusal under `count_denied`. A tally
    /// counts the whole charge.
    None,
    /// The balance stops at minus one capacity. Used for settlements: the next requests repay the
    /// debt.
    OneCapacity,
    /// The balance stops only where the state cannot represent more. Used for usage carried over
    /// from another rule. A bucket stops at minus one capacity, a queue where it has no place left
    /// within a minute.
    Unlimited,
}

/// Spends the available units, up to `units`: a lease of a window, which does not refill while it is
/// open.
fn lease_available<A: Algorithm>(algorithm: &A, state: &mut A::State, units: u64, now: Timestamp) -> Verdict {
    match algorithm.step(state, 0, now).remaining.min(units) {
        0 => Verdict::admitted(0),
        available => algorithm.spend(state, available, now),
    }
}

/// Arithmetic on the state of one key.
///
/// A value that implements this trait is a valid quota: constructors refuse invalid numbers, so the
/// methods cannot fail and never panic.
pub trait Algorithm {
    /// The state of one key.
    type State: Clone + core::fmt::Debug + PartialEq;

    /// Returns the state of a key that has never been seen.
    fn fresh(&self) -> Self::State;

    /// Returns the number of units that a rested key may spend in one step.
    fn capacity(&self) -> u64;

    /// Spends `cost` units, or leaves the state unchanged. A cost of zero is a read.
    fn spend(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Verdict;

    /// Completes a verdict given at `now` with the limit, the remaining units and the reset time of
    /// the key.
    fn describe(&self, state: &Self::State, verdict: Verdict, now: Timestamp) -> Outcome;

    /// Refunds units of a charge.
    ///
    /// Units that have certainly come back with time are not refunded a second time. A state does
    /// not record which request spent its units. A bucket therefore refunds at most the units that
    /// cannot have come back since, and a refund after other requests have spent is off by at most
    /// the refunded units. A queue refunds only its last place.
    fn refund(&self, state: &mut Self::State, units: u64, charge: ChargeTimes, now: Timestamp);

    /// Gives the key `units` more to spend from now on, up to the allowance of a rested key.
    fn grant(&self, state: &mut Self::State, units: u64, now: Timestamp);

    /// Spends `units` even if fewer are available.
    fn charge(&self, state: &mut Self::State, units: u64, overdraft: Overdraft, now: Timestamp);

    /// Returns the units that are spent at this instant and have not come back, rounded up.
    fn used(&self, state: &Self::State, now: Timestamp) -> u64;

    /// Returns the time from which the state is equivalent to a fresh one.
    fn expires_at(&self, state: &Self::State) -> Timestamp;

    /// Returns the state of a key that has spent `units`, all of which come back at `until`.
    ///
    /// The returned state never admits a request that would be refused by a state that has spent at
    /// most `units` at `now` and expires at `until` or earlier. A store that evicts a state keeps
    /// these two numbers.
    fn spent_until(&self, units: u64, until: Timestamp, now: Timestamp) -> Self::State;

    /// Spends up to `units` units in advance, for a caller that spends them within `ttl`. See
    /// [`LeaseRequest`]. An algorithm whose units cannot be leased leases none.
    fn lease(&self, state: &mut Self::State, units: u64, ttl: Span, now: Timestamp) -> Verdict {
        let _ = (units, ttl);
        let _read = self.spend(state, 0, now);
        Verdict::admitted(0)
    }

    /// Returns units of a lease that was taken at `taken_at`. See [`Adjustment::ReturnLease`].
    /// An algorithm whose units cannot be leased takes none back.
    fn return_lease(
        &self,
        state: &mut Self::State,
        units: u64,
        taken_at: Timestamp,
        ttl: Span,
        now: Timestamp,
    ) {
        let _ = (units, taken_at, ttl);
        let _read = self.spend(state, 0, now);
    }

    /// Spends and describes in one call, for a request with a single limit.
    fn step(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Outcome {
        let verdict = self.spend(state, cost, now);
        self.describe(state, verdict, now)
    }

    /// Acquires any amount of units. A slot is never available from a rate.
    fn acquire(&self, state: &mut Self::State, amount: Amount, now: Timestamp) -> Verdict {
        match amount {
            Amount::Exactly(cost) => self.spend(state, cost, now),
            Amount::UpTo(most) => {
                let available = self.step(state, 0, now).remaining;
                self.spend(state, most.min(available.max(1)), now)
            }
            Amount::Lease(LeaseRequest { units, ttl }) => self.lease(state, units.into(), ttl, now),
            Amount::Slot(_) => Verdict::Never,
        }
    }

    /// Returns whether a refund left a place of a queue as it is, because requests wait behind it. `state` is the
    /// state after the refund. The same refund returns the place when it has become the last one.
    fn keeps_place(&self, state: &Self::State, adjustment: Adjustment, now: Timestamp) -> bool {
        let _ = (state, adjustment, now);
        false
    }

    /// Changes the state without a request.
    fn adjust(&self, state: &mut Self::State, adjustment: Adjustment, now: Timestamp) {
        match adjustment {
            Adjustment::Refund { units, charge } => self.refund(state, units, charge, now),
            Adjustment::Grant { units } => self.grant(state, units, now),
            Adjustment::Charge { units, overdraft } => self.charge(state, units, overdraft, now),
            Adjustment::Reset => *state = self.fresh(),
            Adjustment::ReturnLease { units, taken_at, ttl } => {
                self.return_lease(state, units.into(), taken_at, ttl, now);
            }
            Adjustment::Release { .. } | Adjustment::ReleaseOldest { .. } | Adjustment::Renew { .. } => {}
        }
    }
}
