//! The charges of the last decisions, until they are settled.
//!
//! Clients send only the id of a decision, so its receipt is kept here. Clients may never settle, so
//! the number of receipts is bounded.
//!
//! Invariant: a decision is settled once, at its first cost. It is marked before the store is called,
//! so only one of two concurrent calls proceeds. If the settlement is incomplete, it may be repeated at
//! the same cost: limits that are settled already may not be settled at another.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{DecisionId, Receipt};

/// The number of decisions that can be settled: the last ones that charged something.
pub const MAX_RECEIPTS: usize = 65_536;

#[derive(Default)]
pub(crate) struct Receipts(Mutex<ReceiptTable>);

#[derive(Default)]
struct ReceiptTable {
    by_id: HashMap<DecisionId, Entry, BuildHasherDefault<ById>>,
    /// The ids, the oldest first.
    order: VecDeque<DecisionId>,
}

/// Ids are generated here and are uniformly distributed, so callers cannot cause collisions.
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
    /// Whether the settlement is incomplete and may be repeated.
    may_repeat: bool,
}

/// Whether a decision can be settled.
pub(crate) enum SettleState {
    /// It can, for the first time or again, and is now marked as settled.
    Open(Box<Receipt>),
    /// It was settled at this cost.
    Already(u64),
    /// The id is unknown.
    Unknown,
}

impl Receipts {
    pub(crate) fn keep(&self, id: DecisionId, receipt: Receipt) {
        // Declared before the lock, so that it is dropped after the lock is released.
        let _oldest;
        let mut kept = self.kept();
        if kept.order.len() >= MAX_RECEIPTS
            && let Some(oldest) = kept.order.pop_front()
        {
            _oldest = kept.by_id.remove(&oldest);
        }
        kept.order.push_back(id);
        kept.by_id.insert(id, Entry { receipt, settled: None, may_repeat: false });
    }

    /// Marks a decision as settled, unless it is already.
    pub(crate) fn settle(&self, id: DecisionId, cost: u64) -> SettleState {
        match self.kept().by_id.get_mut(&id) {
            None => SettleState::Unknown,
            Some(Entry { settled: Some(settled), may_repeat, .. }) if *settled != cost || !*may_repeat => {
                SettleState::Already(*settled)
            }
            Some(entry) => {
                (entry.settled, entry.may_repeat) = (Some(cost), false);
                SettleState::Open(Box::new(entry.receipt.clone()))
            }
        }
    }

    /// Permits a repetition at the same cost, because the settlement is incomplete.
    pub(crate) fn reopen(&self, id: DecisionId) {
        if let Some(entry) = self.kept().by_id.get_mut(&id) {
            entry.may_repeat = true;
        }
    }

    pub(crate) fn find(&self, id: DecisionId) -> Option<Receipt> {
        self.kept().by_id.get(&id).map(|entry| entry.receipt.clone())
    }

    fn kept(&self) -> MutexGuard<'_, ReceiptTable> {
        // A panic leaves at most one receipt without an entry in the order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
