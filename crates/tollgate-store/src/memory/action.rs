//! What is done to a key's state, for every kind of table alike.

use tollgate_core::{Adjustment, Algorithm, Amount, Quota, State, Timestamp, Verdict};

/// What is done to a state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Meet a demand, or change nothing.
    Meet(Amount),
    /// Say what the demand would be answered, and change nothing.
    Peek(Amount),
    /// Change it without being asked by a request.
    Adjust(Adjustment),
}

impl Action {
    /// Whether a key never seen can come out of this as one that was.
    #[inline]
    pub(super) const fn can_insert(self) -> bool {
        match self {
            Self::Meet(Amount::Exactly(0) | Amount::UpTo(0)) | Self::Peek(_) => false,
            Self::Meet(_) => true,
            Self::Adjust(adjustment) => matches!(adjustment, Adjustment::Charge { .. }),
        }
    }

    /// The same for states whose clock is so many microseconds ahead.
    pub(super) fn shifted(self, by: i64) -> Self {
        match self {
            Self::Adjust(Adjustment::Refund { units, taken_at }) => {
                Self::Adjust(Adjustment::Refund { units, taken_at: taken_at.shifted(by) })
            }
            other => other,
        }
    }

    pub(super) fn on<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Timestamp) -> Verdict {
        match self {
            Self::Meet(amount) => algorithm.acquire(state, amount, now),
            Self::Peek(amount) => algorithm.acquire(&mut state.clone(), amount, now),
            Self::Adjust(adjustment) => {
                algorithm.adjust(state, adjustment, now);
                Verdict::admitted(0)
            }
        }
    }

    pub(super) fn on_any(self, quota: &Quota, state: &mut State, now: Timestamp) -> Verdict {
        match self {
            Self::Meet(amount) => quota.acquire(state, amount, now),
            Self::Peek(amount) => quota.acquire(&mut state.clone(), amount, now),
            Self::Adjust(adjustment) => {
                quota.adjust(state, adjustment, now);
                Verdict::admitted(0)
            }
        }
    }
}
