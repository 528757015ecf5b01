//! How long one store serves in virtual time.
//!
//! A store counts time from where it starts, for some years, and a log may reach further: one line of 1970 is enough. So a store gives way to
//! a new one where that loses nothing: when nobody has asked for so long that all that was spent is forgotten.
//!
//! Not here: making stores (`replay::run`, `simulate::contest`).

use tollgate::{Adjustment, Amount, Overdraft, Quota, Span, Timestamp};

/// A store that is younger is kept, whatever the log does.
const MIN_AGE: Span = Span::from_days(365);
/// After a pause this long a store gives way even if something in it still counted: it would be near its end.
const MAX_PAUSE: Span = Span::from_days(9 * 365);

/// The time of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreEpoch {
    start: Timestamp,
    last: Timestamp,
    /// After a pause longer than this nothing counts any more.
    memory: Span,
}

impl StoreEpoch {
    /// Of a store that starts now and counts with these.
    pub(crate) fn new<'q>(start: Timestamp, quotas: impl Iterator<Item = &'q Quota>) -> Self {
        let memory = quotas.map(|quota| memory(quota, start)).max().unwrap_or(Span::ZERO);
        Self { start, last: start, memory }
    }

    /// A request, not before the last one: whether it needs a new store, whose time then begins.
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

/// How long a key counts that spent all it has, and as much again; and a period, wherever windows begin.
fn memory(quota: &Quota, at: Timestamp) -> Span {
    let mut state = quota.fresh();
    let _ = quota.acquire(&mut state, Amount::Exactly(quota.capacity()), at);
    let debt = Adjustment::Charge { units: quota.capacity(), overdraft: Overdraft::OneCapacity };
    quota.adjust(&mut state, debt, at);
    let rests = quota.expires_at(&state).since(at);
    Span::from_micros(rests.as_micros().saturating_add(quota.period().as_micros()))
}
