//! The amounts that requests acquire, and adjustments without a request.

use crate::algorithm::{Overdraft, Owner};
use crate::outcome::Outcome;
use crate::quota::Quota;
use crate::time::{Span, Timestamp};

/// The amount that a request acquires from one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// All of these units, or a refusal. Zero is a read, which only a tally beyond its limit
    /// refuses.
    Exactly(u64),
    /// The available units, up to this number. Refused only if no unit is available.
    UpTo(u64),
    /// A slot for this owner. Only concurrency limits have slots.
    Slot(Owner),
    /// Units in advance, which the caller spends later. Never refused by a limit that counts units:
    /// admitted with the leased units, which may be none.
    Lease(LeaseRequest),
}

/// A request for units in advance: a unit lease.
///
/// The units are charged when they are leased, and the caller may spend them until `ttl` has
/// passed. Meanwhile a bucket refills, so a full bucket and the leased units could be spent at one
/// instant. A bucket therefore charges a lease as if it were spent `ttl` after its end:
///
/// ```text
/// base = max(tat, now + 2·ttl)
/// tat  = base + units·T                  as many units as fit: tat - now <= burst·T
/// ```
///
/// Requests and leases together then never exceed `burst + d/T` units in any stretch `d`, whether
/// leases are spent, returned ([`Adjustment::ReturnLease`]) or lost, if all leases of a key have one
/// `ttl`. Tested by `tests/proof/leases.rs`.
///
/// The units of a window must be spent before it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The largest number of units to lease. Zero is a read.
    pub units: u32,
    /// How long the caller may spend them.
    pub ttl: Span,
}

/// A change to one key without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Reverses a charge.
    Refund {
        /// The units to refund.
        units: u64,
        /// The times of the charge.
        charge: ChargeTimes,
    },
    /// Gives the key more to spend, up to a full allowance. Slots are not units: they are released.
    Grant {
        /// The units to add.
        units: u64,
    },
    /// Spends units even if fewer are available.
    Charge {
        /// The units to spend.
        units: u64,
        /// The lowest balance that the charge may leave.
        overdraft: Overdraft,
    },
    /// Deletes the state of the key.
    Reset,
    /// Frees the slot of an owner.
    Release {
        /// The holder of the slot.
        owner: Owner,
    },
    /// Frees the slots that were taken first, regardless of their owners. For callers that report the end of a
    /// request without saying of which. Not idempotent.
    ReleaseOldest {
        /// The maximum number of slots to free.
        slots: u64,
    },
    /// Starts the lease of an owner again, if it still holds its slot.
    Renew {
        /// The holder of the slot.
        owner: Owner,
    },
    /// Returns units of a [`LeaseRequest`] that will not be spent.
    ///
    /// A bucket accepts them until the end of the lease, because it has refilled a part of them
    /// after that. A window accepts them as it accepts a refund.
    ReturnLease {
        /// The units to return.
        units: u32,
        /// The time of the lease, by the store's clock.
        taken_at: Timestamp,
        /// The `ttl` of the lease.
        ttl: Span,
    },
}

impl Adjustment {
    /// Returns the same adjustment with its times by a clock that is `by` microseconds ahead.
    #[must_use]
    pub fn shifted(self, by: i64) -> Self {
        match self {
            Self::Refund { units, charge } => Self::Refund { units, charge: charge.shifted(by) },
            Self::ReturnLease { units, taken_at, ttl } => {
                Self::ReturnLease { units, taken_at: taken_at.shifted(by), ttl }
            }
            other => other,
        }
    }
}

/// The times of a charge, by which a refund finds it in a state. They are by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeTimes {
    /// The time at which the charge was made.
    pub at: Timestamp,
    /// The end of the charge: the time at which the key is fresh again if no other request spends.
    ///
    /// Buckets repay in order, so nothing of the charge is owed after its end. In a queue, it is also
    /// the end of the place that the request took.
    pub until: Timestamp,
}

impl ChargeTimes {
    /// Returns the times of a charge that was made at `at`, and after which the key had this outcome.
    pub fn of(at: Timestamp, outcome: &Outcome) -> Self {
        Self { at, until: at + outcome.reset_after }
    }

    /// Returns the times of a charge whose end is not known. A queue does not find its place.
    pub const fn without_end(at: Timestamp) -> Self {
        Self { at, until: Timestamp::from_micros(u64::MAX) }
    }

    /// Returns the times of the charge under a rule that was replaced. Its end there is not known,
    /// except for a place in a queue, which may have been taken under that rule.
    #[must_use]
    pub fn under_predecessor(self, quota: &Quota) -> Self {
        match quota {
            Quota::Bucket(bucket) if bucket.queue().is_some() => self,
            _ => Self::without_end(self.at),
        }
    }

    /// Returns the same times by a clock that is `by` microseconds ahead.
    #[must_use]
    pub fn shifted(self, by: i64) -> Self {
        Self { at: self.at.shifted(by), until: self.until.shifted(by) }
    }
}
