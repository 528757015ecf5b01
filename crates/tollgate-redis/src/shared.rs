//! State that all threads of a store share.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_store::node_board::NodeId;
use tollgate_store::version_registry::StoreGate;
use tollgate_store::{Clock as _, SystemClock};

use crate::counters::Counts;
use crate::deny_cache::DenyCache;
use crate::redis_clock::RedisClock;
use crate::script::Scripts;
use crate::settings::{RedisSettings, Topology};

pub(crate) struct Shared {
    pub(crate) settings: RedisSettings,
    pub(crate) scripts: &'static Scripts,
    pub(crate) deny_cache: DenyCache,
    pub(crate) counters: Counts,
    /// The local clock.
    pub(crate) clock: SystemClock,
    pub(crate) redis_clock: RedisClock,
    /// The id of this node.
    pub(crate) node: NodeId,
    /// The last known number of nodes, including this one.
    pub(crate) nodes: AtomicUsize,
    /// Whether requests wait for the rules of other nodes (`registry`).
    pub(crate) gate: StoreGate,
}

/// The maximum lifetime of cached refusals on a cluster. It is short because other requests can
/// briefly see units that a request reserved and will release.
const MAX_CLUSTER_DENY_CACHE: Duration = Duration::from_millis(100);

fn deny_cache_lifetime(settings: &RedisSettings) -> Duration {
    match settings.topology {
        Topology::Cluster(_) => settings.deny_cache.min(MAX_CLUSTER_DENY_CACHE),
        Topology::Standalone(_) | Topology::Sentinel { .. } => settings.deny_cache,
    }
}

impl Shared {
    pub(crate) fn new(settings: RedisSettings, scripts: &'static Scripts) -> Self {
        Self {
            deny_cache: DenyCache::new(deny_cache_lifetime(&settings)),
            settings,
            scripts,
            counters: Counts::default(),
            clock: SystemClock::new(),
            redis_clock: RedisClock::default(),
            node: NodeId(RandomState::new().hash_one(0_u8)),
            nodes: AtomicUsize::new(1),
            gate: StoreGate::default(),
        }
    }

    /// The estimated time of the clock of Redis.
    pub(crate) fn redis_now(&self) -> Timestamp {
        self.redis_clock.estimate(self.clock.now())
    }
}
