//! Counters of the work of a store.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the work of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The decisions and changes made in PostgreSQL.
    pub decisions: u64,
    /// The transactions for these decisions and changes.
    pub transactions: u64,
    /// The transactions that failed, and the attempts to connect that failed.
    pub failures: u64,
    /// The connections made.
    pub connections: u64,
    /// The expired rows that this node has deleted.
    pub expired: u64,
}

/// Atomic counters. They are independent, so relaxed ordering is sufficient.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) decisions: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) expired: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            decisions: read(&self.decisions),
            transactions: read(&self.transactions),
            failures: read(&self.failures),
            connections: read(&self.connections),
            expired: read(&self.expired),
        }
    }
}
