//! Counters of the work of a store.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the work of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The decisions and changes made by Redis.
    pub decisions: u64,
    /// The calls to Redis for these decisions and changes.
    pub calls: u64,
    /// The refusals answered by the deny cache.
    pub remembered: u64,
    /// The calls without a reply.
    pub failures: u64,
    /// The connections made.
    pub connections: u64,
}

/// Atomic counters. They are independent, so relaxed ordering is sufficient.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) decisions: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) remembered: AtomicU64,
    pub(crate) failures: AtomicU64,
    connections: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, more: usize) {
        count.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Counts a connection and returns its number.
    pub(crate) fn connected(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            decisions: read(&self.decisions),
            calls: read(&self.calls),
            remembered: read(&self.remembered),
            failures: read(&self.failures),
            connections: read(&self.connections),
        }
    }
}
