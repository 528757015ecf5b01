//! The way of a decision through all that is counted and remembered.
//!
//! ```text
//! decision ─► counts ─► per limit: at zero? who spent? ─► refused: top keys, record
//!                                                       └ admitted: one in a while, record and routes
//! ```

use std::sync::Arc;

use tollgate::{DecisionId, Event, Observer, Policy, Span, Timestamp, Watch};

use crate::at_zero::{AtZero, ZeroKeys};
use crate::counts::{Counters, PolicyCounters};
use crate::record::Record;
use crate::ring::Ring;
use crate::series::History;
use crate::settings::WatchSettings;
use crate::spenders::Spenders;
use crate::top::{HotRoute, Top, TopKey};

/// Counts and remembers what was decided. Clones are the same.
#[derive(Clone)]
pub struct Watcher(Arc<Inner>);

struct Inner {
    counters: Counters,
    history: History,
    ring: Ring,
    spenders: Spenders,
    top: Top,
    zero: ZeroKeys,
}

impl Watcher {
    /// Knows nothing yet.
    pub fn new(settings: &WatchSettings) -> Self {
        Self(Arc::new(Inner {
            counters: Counters::new(),
            history: History::new(),
            ring: Ring::new(settings.records),
            spenders: Spenders::new(),
            top: Top::new(),
            zero: ZeroKeys::new(settings.at_zero_for),
        }))
    }

    /// A second has passed. To be called once in each, by whoever has a timer.
    pub fn tick(&self, now: Timestamp) {
        self.0.history.tick(now);
    }

    /// The record of a decision, while it is remembered.
    pub fn record(&self, id: DecisionId) -> Option<Arc<Record>> {
        self.0.ring.find(id)
    }

    /// The oldest records after `seq`, at most so many, and how many are gone already.
    pub fn records_after(&self, seq: u64, most: usize) -> (Vec<Arc<Record>>, u64) {
        self.0.ring.after(seq, most)
    }

    /// The keys refused most in the last minutes, the most first.
    pub fn top_keys(&self, now: Timestamp, most: usize) -> Vec<TopKey> {
        self.0.top.keys(now, most)
    }

    /// The routes asked for most in the last minutes, the most first.
    pub fn hot_routes(&self, now: Timestamp, most: usize) -> Vec<HotRoute> {
        self.0.top.routes(now, most)
    }

    /// Keys that have had nothing left for long, the longest first.
    pub fn alerts(&self, now: Timestamp) -> Vec<AtZero> {
        self.0.zero.alerts(now)
    }
}

impl Observer for Watcher {
    fn watch(&self, policy: &Arc<Policy>, version: u64) -> Arc<dyn Watch> {
        let counters = self.0.counters.of(policy);
        Arc::new(PolicyWatch { policy: Arc::clone(policy), version, counters, all: Arc::clone(&self.0) })
    }
}

/// Watches what one policy decides.
struct PolicyWatch {
    policy: Arc<Policy>,
    version: u64,
    counters: Arc<PolicyCounters>,
    all: Arc<Inner>,
}

impl Watch for PolicyWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        self.counters.count(event);
        let _ = (&self.policy, self.version);
    }

    fn asked(&self, took: Span, answered: bool) {
        self.all.counters.asked(took, answered);
    }
}
