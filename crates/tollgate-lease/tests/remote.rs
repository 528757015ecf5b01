//! A store that answers only calls that wait, as one behind a network does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tollgate_core::{Adjustment, Outcome, Rule, Timestamp};
use tollgate_lease::Leased;
use tollgate_store::{Answer, Check, ManualClock, MemoryStore, Store, StoreError};

/// May 17, 2026.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_779_021_296_789_012);

/// A store in memory that several nodes share, and that may be silent.
#[derive(Clone)]
pub(crate) struct Remote(Arc<Server>);

struct Server {
    store: MemoryStore<ManualClock>,
    is_silent: AtomicBool,
    nodes: usize,
    calls: AtomicUsize,
}

impl Remote {
    pub(crate) fn new(clock: &ManualClock, nodes: usize) -> Self {
        let store = MemoryStore::with_seed(1_000, clock.clone(), 7);
        Self(Arc::new(Server { store, is_silent: AtomicBool::new(false), nodes, calls: AtomicUsize::new(0) }))
    }

    /// A node with this store, on the same clock.
    pub(crate) fn node(&self, clock: &ManualClock, seed: u64) -> Leased<Self, ManualClock> {
        Leased::with_clock(self.clone(), clock.clone(), seed)
    }

    pub(crate) fn silence(&self, is_silent: bool) {
        self.0.is_silent.store(is_silent, Ordering::SeqCst);
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// The store itself, without the network.
    pub(crate) fn inside(&self) -> &MemoryStore<ManualClock> {
        &self.0.store
    }

    fn call(&self) -> Result<(), StoreError> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        if self.0.is_silent.load(Ordering::SeqCst) {
            return Err(StoreError::TimedOut(std::time::Duration::from_millis(50)));
        }
        Ok(())
    }
}

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.call()?;
        Ok(self.0.store.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.call()?;
        Ok(self.0.store.adjust_now(rule, key, adjustment))
    }

    fn nodes(&self) -> usize {
        self.0.nodes
    }
}
