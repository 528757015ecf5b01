//! The amounts that requests acquire, and adjustments without a request.

use crate::algorithm::{Overdraft, Owner};
use crate::time::Timestamp;

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
}

/// A change to one key without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Reverses a charge made at `taken_at`.
    Refund {
        /// The units to refund.
        units: u64,
        /// The time of the charge, by the store's clock.
        taken_at: Timestamp,
    },
    /// Gives the key more to spend, up to a full allowance.
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
}
