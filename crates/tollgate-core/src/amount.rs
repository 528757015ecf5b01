//! What is asked of a key, and what is done to it.

use crate::algorithm::{Overdraft, Owner};
use crate::time::Timestamp;

/// What is asked of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many units or none. Zero only looks, and only a tally beyond its limit
    /// refuses that.
    Exactly(u64),
    /// As many units as there are, up to this many; refused only when there are none.
    UpTo(u64),
    /// A slot for this owner. Only concurrency limits have slots.
    Slot(Owner),
}

/// A change to one key that is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Undo a charge made at `taken_at`.
    Refund {
        /// How much of it.
        units: u64,
        /// When it was made, by the store's clock.
        taken_at: Timestamp,
    },
    /// Let the key spend this much more, up to a full allowance.
    Grant {
        /// How much.
        units: u64,
    },
    /// Spend this much, whether or not it is there.
    Charge {
        /// How much.
        units: u64,
        /// How far below zero that may go.
        overdraft: Overdraft,
    },
    /// Forget the key.
    Reset,
    /// Free the slot of this owner.
    Release {
        /// Who held it.
        owner: Owner,
    },
}
