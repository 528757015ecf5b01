//! Actions on the state of a key, common to all tables.

use tollgate_core::{Adjustment, Algorithm, Amount, Quota, State, Timestamp, Verdict};

/// An action on a state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Acquires an amount, or changes nothing.
    Acquire(Amount),
    /// Returns the outcome of acquiring an amount, and changes nothing.
    Peek(Amount),
    /// Changes the state without a request.
    Adjust(Adjustment),
}

impl Action {
    /// Returns whether the action can turn an absent key into a present one.
    #[inline]
    pub(super) const fn can_insert(self) -> bool {
        match self {
            Self::Acquire(Amount::Exactly(0) | Amount::UpTo(0)) | Self::Peek(_) => false,
            Self::Acquire(_) => true,
            Self::Adjust(adjustment) => matches!(adjustment, Adjustment::Charge { .. }),
        }
    }

    /// Returns the action for states whose clock is `by` microseconds ahead.
    pub(super) fn shifted(self, by: i64) -> Self {
        match self {
            Self::Adjust(adjustment) => Self::Adjust(adjustment.shifted(by)),
            other => other,
        }
    }

    pub(super) fn on<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Timestamp) -> Verdict {
        match self {
            Self::Acquire(amount) => algorithm.acquire(state, amount, now),
            Self::Peek(amount) => algorithm.acquire(&mut state.clone(), amount, now),
            Self::Adjust(adjustment) => {
                algorithm.adjust(state, adjustment, now);
                Verdict::admitted(u64::from(algorithm.keeps_place(state, adjustment, now)))
            }
        }
    }

    pub(super) fn on_any(self, quota: &Quota, state: &mut State, now: Timestamp) -> Verdict {
        match self {
            Self::Acquire(amount) => quota.acquire(state, amount, now),
            Self::Peek(amount) => quota.acquire(&mut state.clone(), amount, now),
            Self::Adjust(adjustment) => quota.adjust(state, adjustment, now),
        }
    }
}
