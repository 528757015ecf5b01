//! What the last decisions charged, until somebody settles them.
//!
//! Settling is rare and late, so receipts are kept here and not by the caller;
//! and callers may never come back, so only the last so many are.
//!
//! Invariant: two settlements of one decision at once come to what the later one
//! says. Held by changing the receipt and computing from it in one go, before
//! the store is asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{DecisionId, Receipt};

/// How many decisions can still be settled: the last that charged something.
pub const KEPT_DECISIONS: usize = 65_536;

#[derive(Default)]
pub(crate) struct Receipts(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_id: HashMap<DecisionId, Receipt>,
    /// The oldest first.
    order: VecDeque<DecisionId>,
}

impl Receipts {
    pub(crate) fn keep(&self, id: DecisionId, receipt: Receipt) {
        // Declared before the lock is taken, so dropped after it is given back.
        let _oldest;
        let mut kept = self.kept();
        if kept.order.len() >= KEPT_DECISIONS
            && let Some(oldest) = kept.order.pop_front()
        {
            _oldest = kept.by_id.remove(&oldest);
        }
        kept.order.push_back(id);
        kept.by_id.insert(id, receipt);
    }

    /// The receipt as it was before this settlement, which it now includes.
    pub(crate) fn settle(&self, id: DecisionId, cost: u64) -> Option<Receipt> {
        let mut kept = self.kept();
        let receipt = kept.by_id.get_mut(&id)?;
        let before = receipt.clone();
        receipt.settled(cost);
        Some(before)
    }

    /// Puts back what it was: the store gave no answer.
    pub(crate) fn unsettle(&self, id: DecisionId, before: Receipt) {
        if let Some(receipt) = self.kept().by_id.get_mut(&id) {
            *receipt = before;
        }
    }

    pub(crate) fn find(&self, id: DecisionId) -> Option<Receipt> {
        self.kept().by_id.get(&id).cloned()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A thread that panicked in between left at most one receipt without a place in the order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
