//! Decides when a simulated store is replaced by a new one.
//!
//! A store represents time as an offset from its start, for some years. A log may cover more: one line of 1970 is
//! enough. A store is replaced when no state is lost by it: after a pause in which every charge has expired.
//!
//! Not here: making stores (`replay::run`, `simulate::contest`).

use tollgate::{Adjustment, Amount, Overdraft, Quota, Span, Timestamp};

/// A store is not replaced before this age.
const MIN_AGE: Span = Span::from_days(365);
/// After a pause of this length a store is replaced even if some of its state has not expired: its time range would
/// be nearly exhausted.
const MAX_PAUSE: Span = Span::from_days(9 * 365);

/// The time that one store covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreEpoch {
    start: Timestamp,
    last: Timestamp,
    /// After a pause longer than this, all state of the store has expired.
    memory: Span,
}

impl StoreEpoch {
    /// Creates the epoch of a store that starts at `start` and counts by these quotas.
    pub(crate) fn new<'q>(start: Timestamp, quotas: impl Iterator<Item = &'q Quota>) -> Self {
        let memory = quotas.map(|quota| memory(quota, start)).max().unwrap_or(Span::ZERO);
        Self { start, last: start, memory }
    }

    /// Whether the request at `at` needs a new store; if so, the new epoch starts there. Requests must come in the
    /// order of time.
    pub(crate) fn is_over(&mut self, at: Timestamp) -> bool {
        let pause = at.since(self.last);
        self.last = at;
        let is_over = pause > MAX_PAUSE || (pause > self.memory && at.since(self.start) > MIN_AGE);
        if is_over {
            self.start = at;
        }
        is_over
    }
}

/// Returns the longest time for which a charge counts: a key with its capacity spent and an overdraft of one
/// capacity, plus one period for windows that start late.
fn memory(quota: &Quota, at: Timestamp) -> Span {
    let mut state = quota.fresh();
    let _ = quota.acquire(&mut state, Amount::Exactly(quota.capacity()), at);
    let debt = Adjustment::Charge { units: quota.capacity(), overdraft: Overdraft::OneCapacity };
    quota.adjust(&mut state, debt, at);
    let rests = quota.expires_at(&state).since(at);
    Span::from_micros(rests.as_micros().saturating_add(quota.period().as_micros()))
}
