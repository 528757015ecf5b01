//! What the last decisions charged, until somebody settles them.
//!
//! Settling is rare and late, so receipts are kept here and not by the caller;
//! and callers may never come back, so only the last so many are.
//!
//! Invariant: a decision is settled once. Held by marking it before the store is
//! asked, so that of two at once only one gets to ask; the mark goes away if the
//! store gave no answer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{DecisionId, Receipt};

/// How many decisions can still be settled: the last that charged something.
pub const MAX_RECEIPTS: usize = 65_536;

#[derive(Default)]
pub(crate) struct Receipts(Mutex<ReceiptTable>);

#[derive(Default)]
struct ReceiptTable {
    by_id: HashMap<DecisionId, Entry, BuildHasherDefault<ById>>,
    /// The oldest first.
    order: VecDeque<DecisionId>,
}

/// Ids are made here and already look random: no caller can choose where one is filed.
#[derive(Default)]
struct ById(u64);

impl Hasher for ById {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Entry {
    receipt: Receipt,
    /// The final cost, once it is known.
    settled: Option<u64>,
}

/// Whether a decision can be settled.
pub(crate) enum SettleState {
    /// It can, and is marked as settled now.
    First(Box<Receipt>),
    /// It was, at this cost.
    Already(u64),
    /// Nobody knows it.
    Unknown,
}

impl Receipts {
    pub(crate) fn keep(&self, id: DecisionId, receipt: Receipt) {
        // Declared before the lock is taken, so dropped after it is given back.
        let _oldest;
        let mut kept = self.kept();
        if kept.order.len() >= MAX_RECEIPTS
            && let Some(oldest) = kept.order.pop_front()
        {
            _oldest = kept.by_id.remove(&oldest);
        }
        kept.order.push_back(id);
        kept.by_id.insert(id, Entry { receipt, settled: None });
    }

    /// Marks a decision as settled, unless it is.
    pub(crate) fn settle(&self, id: DecisionId, cost: u64) -> SettleState {
        match self.kept().by_id.get_mut(&id) {
            None => SettleState::Unknown,
            Some(Entry { settled: Some(cost), .. }) => SettleState::Already(*cost),
            Some(entry) => {
                entry.settled = Some(cost);
                SettleState::First(Box::new(entry.receipt.clone()))
            }
        }
    }

    /// Takes the mark away: the store gave no answer.
    pub(crate) fn unsettle(&self, id: DecisionId) {
        if let Some(entry) = self.kept().by_id.get_mut(&id) {
            entry.settled = None;
        }
    }

    pub(crate) fn find(&self, id: DecisionId) -> Option<Receipt> {
        self.kept().by_id.get(&id).map(|entry| entry.receipt.clone())
    }

    fn kept(&self) -> MutexGuard<'_, ReceiptTable> {
        // A thread that panicked in between left at most one receipt without a place in the order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
