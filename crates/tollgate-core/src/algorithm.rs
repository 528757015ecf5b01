//! What every algorithm can do, and the rooms they live in.
//!
//! An algorithm is arithmetic on one key's state: no clock, no lock, no key. A
//! store makes a step atomic; nothing here knows how.
//!
//! Three rules hold for all of them, and `tests/` holds each one to them:
//! - a refused step leaves the state as it was, byte for byte;
//! - rounding favours the limit: `remaining` down, `retry_after` up;
//! - a clock that steps back never raises what is left. A state further ahead
//!   than twice its own period can only come from such a step: it is pulled
//!   back to that bound, also by a step that is refused, so that no key waits
//!   for a clock to catch up with a mistake.

mod bucket;
mod concurrency;
mod fixed_window;
mod sliding_log;
mod sliding_parts;
mod sliding_window;
mod window;

pub use bucket::{Bucket, BucketState, TickBucket};
pub use concurrency::{Concurrency, Lease, Leases, Owner};
pub use fixed_window::{FixedWindow, FixedWindowState};
pub use sliding_log::{SlidingLog, SlidingLogState};
pub use sliding_parts::{SlidingParts, SlidingPartsState};
pub use sliding_window::{SlidingWindow, SlidingWindowState};
pub use window::{Calendar, CalendarUnit, Window};

use crate::amount::{Adjustment, Amount};
use crate::outcome::{Outcome, Verdict};
use crate::time::Timestamp;

/// How far a forced charge may push a key below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdraft {
    /// Down to nothing left, and no further: what a refusal costs under `count_denied`.
    /// A tally counts all of it.
    None,
    /// Down to minus one whole capacity: what a settlement may leave to be repaid.
    OneCapacity,
    /// As far as the state can tell: usage that is carried over from another rule. A
    /// bucket stops at minus one capacity.
    Unlimited,
}

/// Arithmetic on the state of one key.
///
/// A value that implements this is a quota that can be served: constructors
/// refuse all others, so the methods cannot fail and never panic.
pub trait Algorithm {
    /// What is remembered about one key.
    type State: Clone + std::fmt::Debug + PartialEq;

    /// The state of a key never seen.
    fn fresh(&self) -> Self::State;

    /// How many units a rested key may spend at once.
    fn capacity(&self) -> u64;

    /// Spends `cost` units, or leaves the state as it was. A cost of zero only looks.
    fn spend(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Verdict;

    /// Words a verdict given at `now`, with how the key stands after it.
    fn describe(&self, state: &Self::State, verdict: Verdict, now: Timestamp) -> Outcome;

    /// Gives back what a step at `taken_at` spent, as if it had not happened.
    /// Units that time has certainly given back are not given twice. A state
    /// does not tell whose units it holds: a bucket gives back up to what cannot
    /// have come back since, and a refund after others have spent errs by at
    /// most the units refunded.
    fn refund(&self, state: &mut Self::State, units: u64, taken_at: Timestamp, now: Timestamp);

    /// Lets the key spend `units` more from now on, but never more than a rested key.
    fn grant(&self, state: &mut Self::State, units: u64, now: Timestamp);

    /// Spends `units` whether or not they are there.
    fn charge(&self, state: &mut Self::State, units: u64, overdraft: Overdraft, now: Timestamp);

    /// How many units are spent at this instant and not yet back, rounded up.
    fn used(&self, state: &Self::State, now: Timestamp) -> u64;

    /// From when on the state says no more than a fresh one would.
    fn expires_at(&self, state: &Self::State) -> Timestamp;

    /// The state of a key that has spent `units`, all of which come back at `until`.
    ///
    /// It never admits what a state refuses that has spent at most `units` at `now` and is
    /// forgettable at `until` or earlier. A store that evicts a state keeps these two numbers.
    fn spent_until(&self, units: u64, until: Timestamp, now: Timestamp) -> Self::State;

    /// Spends and describes: what a request with a single limit needs.
    fn step(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Outcome {
        let verdict = self.spend(state, cost, now);
        self.describe(state, verdict, now)
    }

    /// Meets any demand for units. A slot is a demand no rate can ever meet.
    fn acquire(&self, state: &mut Self::State, amount: Amount, now: Timestamp) -> Verdict {
        match amount {
            Amount::Exactly(cost) => self.spend(state, cost, now),
            Amount::UpTo(most) => {
                let available = self.step(state, 0, now).remaining;
                self.spend(state, most.min(available.max(1)), now)
            }
            Amount::Slot(_) => Verdict::Never,
        }
    }

    /// Changes the state without being asked by a request.
    fn adjust(&self, state: &mut Self::State, adjustment: Adjustment, now: Timestamp) {
        match adjustment {
            Adjustment::Refund { units, taken_at } => self.refund(state, units, taken_at, now),
            Adjustment::Grant { units } => self.grant(state, units, now),
            Adjustment::Charge { units, overdraft } => self.charge(state, units, overdraft, now),
            Adjustment::Reset => *state = self.fresh(),
            Adjustment::Release { .. } => {}
        }
    }
}
