//! What all threads of a store share.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_store::{Clock as _, SystemClock};

use crate::refusals::Refusals;
use crate::script::Scripts;
use crate::settings::{RedisSettings, Topology};

pub(crate) struct Shared {
    pub(crate) settings: RedisSettings,
    pub(crate) scripts: &'static Scripts,
    pub(crate) refusals: Refusals,
    pub(crate) counters: Counts,
    pub(crate) clock: SystemClock,
    /// How far Redis' clock is ahead of ours, in microseconds, as last seen.
    ahead: AtomicI64,
    /// How many nodes were last known, this one included.
    pub(crate) nodes: AtomicUsize,
}

/// What a store has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Decisions and changes made by Redis.
    pub decisions: u64,
    /// Calls that these took.
    pub calls: u64,
    /// Decisions made by what was remembered of a refusal.
    pub remembered: u64,
    /// Calls that brought no answer.
    pub failures: u64,
    /// Connections made.
    pub connections: u64,
}

/// Counts, each by itself: nothing else is ordered by them.
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

    /// A connection was made; its number.
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

/// On a cluster, what one request reserved and will give back is seen by others for a
/// moment, so a refusal there is not worth remembering for long.
const ON_A_CLUSTER: Duration = Duration::from_millis(100);

fn remembered_for(settings: &RedisSettings) -> Duration {
    match settings.topology {
        Topology::Cluster(_) => settings.deny_cache.min(ON_A_CLUSTER),
        Topology::Standalone(_) | Topology::Sentinel { .. } => settings.deny_cache,
    }
}

impl Shared {
    pub(crate) fn new(settings: RedisSettings, scripts: &'static Scripts) -> Self {
        Self {
            refusals: Refusals::new(remembered_for(&settings)),
            settings,
            scripts,
            counters: Counts::default(),
            clock: SystemClock::new(),
            ahead: AtomicI64::new(0),
            nodes: AtomicUsize::new(1),
        }
    }

    /// What Redis' clock is believed to show.
    pub(crate) fn redis_now(&self) -> Timestamp {
        let (now, ahead) = (self.clock.now(), self.ahead.load(Ordering::Relaxed));
        let by = Span::from_micros(ahead.unsigned_abs());
        if ahead >= 0 { now + by } else { now.before(by) }
    }

    /// Redis' clock showed this a moment ago.
    pub(crate) fn redis_showed(&self, time: Timestamp) {
        let signed = |time: Timestamp| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.ahead.store(signed(time).saturating_sub(signed(self.clock.now())), Ordering::Relaxed);
    }
}
