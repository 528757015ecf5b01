//! The store: a request becomes one call, or one call for each partition of a cluster.
//!
//! In: the checks of a request. Out: its answer, from the deny cache if all of its keys are cached,
//! otherwise from the dispatcher of this thread.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use tokio::time::timeout;
use tollgate_core::{Adjustment, Bucket, Outcome, Rate, Rule, Timestamp};
use tollgate_store::version_registry::{Registration, Registry, RegistryFuture, StoreGate};
use tollgate_store::{
    AdjustmentId, Answer, Check, Clock as _, NodeBoard, Outcomes, Repeatable, Store, StoreError,
    VersionRegistry,
};

use crate::batch::clash;
use crate::counters::{Counters, Counts};
use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::names::{PARTITIONS, partition};
use crate::node_board::RedisBoard;
use crate::nodes::announce;
use crate::registry;
use crate::reserve::reserve;
use crate::script::Scripts;
use crate::settings::{RedisSettings, Topology};
use crate::shared::Shared;

/// A store in Redis, shared by all nodes that use the same Redis.
///
/// It must be used inside a tokio runtime. It connects at the first request.
///
/// ```no_run
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_core::{Bucket, Rate, Rule};
/// use tollgate_redis::{RedisSettings, RedisStore};
/// use tollgate_store::{Check, Store};
///
/// let store = RedisStore::new(RedisSettings::parse(&["redis://127.0.0.1:6379"])?);
/// let rule = Rule::new("api", Bucket::new(Rate::per_minute(1))?);
/// assert!(store.decide(&[Check::new(&rule, b"alice", 1)]).await?.admitted);
/// assert!(!store.decide(&[Check::new(&rule, b"alice", 1)]).await?.admitted);
/// # Ok(()) }
/// ```
pub struct RedisStore {
    shared: Arc<Shared>,
    /// One dispatcher for each thread, up to a maximum, so that threads do not contend for a
    /// connection.
    dispatchers: Arc<[Arc<Dispatcher>]>,
}

/// The maximum number of dispatchers: Redis executes commands on one thread, so more connections do
/// not help.
const MAX_DISPATCHERS: usize = 8;

impl RedisStore {
    /// Creates a store with these settings. It connects at the first request.
    pub fn new(settings: RedisSettings) -> Self {
        Self::with_scripts(settings, Scripts::on_server_clock())
    }

    /// Creates a store for tests whose clock is in the keys of [`test_clocks`](Self::test_clocks),
    /// in microseconds.
    #[cfg(feature = "test-clock")]
    pub fn on_test_clock(settings: RedisSettings) -> Self {
        Self::with_scripts(settings, Scripts::on_test_clock())
    }

    /// The keys that hold the time of a test: one for each partition.
    #[cfg(feature = "test-clock")]
    pub fn test_clocks() -> Vec<String> {
        crate::names::test_clocks()
    }

    fn with_scripts(settings: RedisSettings, scripts: &'static Scripts) -> Self {
        let queues = if matches!(settings.topology, Topology::Cluster(_)) { PARTITIONS } else { 1 };
        // One for each core, and one for the tasks beside them.
        let threads = 1 + available_parallelism().map_or(1, usize::from).min(MAX_DISPATCHERS);
        let shared = Arc::new(Shared::new(settings, scripts));
        let dispatchers = (0..threads).map(|_| Dispatcher::new(&shared, queues)).collect();
        Self { shared, dispatchers }
    }

    /// Connects, to report problems at startup. The store works without this call and reconnects by
    /// itself.
    pub async fn connect(&self) -> Result<(), StoreError> {
        let connecting = async { self.dispatcher().router().link(0).await?.connection().await };
        match timeout(std::time::Duration::from_secs(1), connecting).await {
            Ok(connected) => connected.map(drop).map_err(StoreError::from),
            Err(_) => Err(Failure::refused("no connection within a second").into()),
        }
    }

    /// Registers this node in Redis while it is polled, and updates the number of nodes.
    pub async fn announce(&self) {
        announce(&self.shared, self.dispatcher()).await;
    }

    /// Returns the place where the nodes that share this Redis leave records about themselves.
    pub fn node_board(&self) -> Arc<dyn NodeBoard> {
        Arc::new(RedisBoard { shared: Arc::clone(&self.shared), dispatchers: Arc::clone(&self.dispatchers) })
    }

    /// Removes this node from the registries of nodes and rules, when it shuts down.
    pub async fn leave(&self) -> Result<(), StoreError> {
        Ok(registry::leave(&self.shared, self.dispatcher()).await?)
    }

    fn check_held(&self) -> Result<(), StoreError> {
        if self.is_held() {
            return Err(Failure::refused("the rules of other nodes have not been read yet").into());
        }
        Ok(())
    }

    /// Returns the counters of the store.
    pub fn counters(&self) -> Counters {
        self.shared.counters.read()
    }

    /// Returns the settings of the store.
    pub fn settings(&self) -> &RedisSettings {
        &self.shared.settings
    }

    /// The dispatcher of this thread.
    fn dispatcher(&self) -> &Arc<Dispatcher> {
        dispatcher_of_this_thread(&self.dispatchers)
    }

    fn queue(&self, key: &[u8]) -> usize {
        if matches!(self.shared.settings.topology, Topology::Cluster(_)) { partition(key) } else { 0 }
    }

    async fn change(
        &self,
        rule: &Rule,
        key: &[u8],
        change: (Adjustment, Option<AdjustmentId>),
    ) -> Result<Outcome, StoreError> {
        self.check_held()?;
        self.shared.deny_cache.forget(rule.id, key, self.shared.clock.now());
        let outcome = self.dispatcher().change(self.queue(key), (rule, key), change).await;
        Ok(outcome.map_err(|_| ended())??)
    }

    fn recall(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<Timestamp> {
        let at = self.shared.deny_cache.recall(checks, self.shared.clock.now(), outcomes)?;
        Counts::add(&self.shared.counters.remembered, 1);
        Some(at)
    }
}

impl VersionRegistry for RedisStore {
    fn register<'r>(&'r self, registration: &'r Registration<'r>) -> RegistryFuture<'r, Option<Registry>> {
        Box::pin(async move { Ok(registry::register(&self.shared, self.dispatcher(), registration).await?) })
    }

    fn registered_rules(&self, digest: u64) -> RegistryFuture<'_, Option<Vec<u8>>> {
        Box::pin(async move { Ok(registry::rules(&self.shared, self.dispatcher(), digest).await?) })
    }

    fn gate(&self) -> &StoreGate {
        &self.shared.gate
    }

    fn is_held(&self) -> bool {
        self.shared.gate.is_closed(|| self.shared.clock.now())
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("settings", self.settings())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let mut outcomes = Outcomes::new();
        if let Some(at) = self.recall(checks, &mut outcomes) {
            return Ok(Answer { admitted: false, at, outcomes });
        }
        self.decide_uncached(checks).await
    }

    async fn decide_uncached(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.check_held()?;
        let Some(first) = checks.first() else {
            return Ok(Answer { admitted: true, at: self.shared.redis_now(), outcomes: Outcomes::new() });
        };
        let queue = self.queue(first.key);
        // A caller that cancels while its slot or its place is being acquired could not release it.
        let takes_place = checks.iter().any(Check::takes_place);
        let in_parts = |(at, check): (usize, &Check<'_>)| {
            self.queue(check.key) != queue || checks[..at].iter().any(|other| clash(check, other))
        };
        if takes_place || checks.iter().enumerate().skip(1).any(in_parts) {
            return reserve(self.dispatcher(), checks, |key| self.queue(key)).await;
        }
        let reply = self.dispatcher().decide(queue, checks).await;
        Ok(reply.map_err(|_| ended())??.answer)
    }

    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        self.recall(checks, outcomes).map(|at| (false, at))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.change(rule, key, (adjustment, None)).await
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        self.change(rule, key, (once.adjustment, Some(once.id))).await
    }

    fn recognizes_adjustments(&self) -> bool {
        true
    }

    /// Resets an unused key: a replica or a read-only server refuses that. Each probe uses another
    /// key, so that every part of a cluster is probed in turn.
    async fn probe(&self) -> Result<(), StoreError> {
        static NEXT_PROBE: AtomicU8 = AtomicU8::new(0);
        let Ok(quota) = Bucket::new(Rate::per_minute(1)) else { return Ok(()) };
        let (rule, key) = (Rule::new("tollgate-probe", quota), [NEXT_PROBE.fetch_add(1, Ordering::Relaxed)]);
        self.adjust(&rule, &key, Adjustment::Reset).await.map(drop)
    }

    fn nodes(&self) -> usize {
        self.shared.nodes.load(Ordering::Relaxed)
    }
}

/// Returns the dispatcher of this thread.
pub(crate) fn dispatcher_of_this_thread(dispatchers: &[Arc<Dispatcher>]) -> &Arc<Dispatcher> {
    thread_local!(static NUMBER: Cell<usize> = Cell::new(NEXT_THREAD.fetch_add(1, Ordering::Relaxed)));
    static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);
    &dispatchers[NUMBER.get() % dispatchers.len()]
}

/// The runtime of the request has shut down.
pub(crate) fn ended() -> StoreError {
    Failure::failed("the runtime of the request has shut down").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_can_be_shared_and_printed_without_its_password() {
        const fn is_shareable<T: Send + Sync>(_: &T) {}
        let store = RedisStore::new(RedisSettings::parse(&["redis://ann:hunter2@127.0.0.1:1"]).unwrap());
        is_shareable(&store);
        let printed = format!("{store:?} {store:#?}");
        assert!(printed.contains("redis://ann:***@127.0.0.1:1") && !printed.contains("hunter"), "{printed}");
    }
}
