//! The store: a request becomes a part of a transaction.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_core::{Adjustment, Bucket, Outcome, Rate, Rule};
use tollgate_store::version_registry::{Registration, Registry, RegistryFuture, StoreGate};
use tollgate_store::{
    AdjustmentId, Answer, Check, Clock as _, NodeBoard, Outcomes, Repeatable, Store, StoreError,
    VersionRegistry,
};

use crate::counters::Counters;
use crate::failure::Failure;
use crate::node_board::PostgresBoard;
use crate::nodes::{announce, leave};
use crate::pool::{DecisionClock, Pool};
use crate::registry;
use crate::request::{OwnedChange, OwnedCheck, Reply, Work};
use crate::settings::PostgresSettings;
use crate::states::stored_key;

/// A store in PostgreSQL, shared by all nodes that use the same database and prefix.
///
/// It must be used inside a tokio runtime. It connects at the first request.
///
/// ```no_run
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_core::{Bucket, Rate, Rule};
/// use tollgate_postgres::{PostgresSettings, PostgresStore};
/// use tollgate_store::{Check, Store};
///
/// let store = PostgresStore::new(PostgresSettings::parse("postgres://tollgate@127.0.0.1/shop")?);
/// let rule = Rule::new("api", Bucket::new(Rate::per_minute(1))?);
/// assert!(store.decide(&[Check::new(&rule, b"alice", 1)]).await?.admitted);
/// assert!(!store.decide(&[Check::new(&rule, b"alice", 1)]).await?.admitted);
/// # Ok(()) }
/// ```
pub struct PostgresStore {
    pool: Arc<Pool>,
}

impl PostgresStore {
    /// Creates a store with these settings. It connects at the first request.
    pub fn new(settings: PostgresSettings) -> Self {
        Self::with_clock(settings, DecisionClock::Server)
    }

    /// Creates a store for tests that decides at the time in `micros`, in microseconds since 1970.
    #[cfg(feature = "test-clock")]
    pub fn on_test_clock(settings: PostgresSettings, micros: Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self::with_clock(settings, DecisionClock::Test(micros))
    }

    fn with_clock(settings: PostgresSettings, clock: DecisionClock) -> Self {
        Self { pool: Pool::new(settings, clock) }
    }

    /// Connects, creates missing tables, and checks privileges, to report problems at startup. The
    /// store works without this call and reconnects by itself.
    pub async fn connect(&self) -> Result<(), StoreError> {
        let (connection, _slot) = self.pool.background_connection().await?;
        self.pool.keep(connection);
        Ok(())
    }

    /// Registers this node, updates the number of nodes, and deletes expired rows, while it is
    /// polled.
    pub async fn announce(&self) {
        announce(&self.pool).await;
    }

    /// Returns the place where the nodes that share this database leave records about themselves.
    pub fn node_board(&self) -> Arc<dyn NodeBoard> {
        Arc::new(PostgresBoard(Arc::clone(&self.pool)))
    }

    fn check_held(&self) -> Result<(), StoreError> {
        if self.is_held() {
            return Err(Failure::refused("the rules of other nodes have not been read yet").into());
        }
        Ok(())
    }

    /// Removes this node from the nodes that are counted and registered, because it is about to stop.
    pub async fn leave(&self) -> Result<(), StoreError> {
        Ok(leave(&self.pool).await?)
    }

    /// Returns the counters of the store.
    pub fn counters(&self) -> Counters {
        self.pool.counters.read()
    }

    /// Returns the settings of the store.
    pub fn settings(&self) -> &PostgresSettings {
        &self.pool.settings
    }

    async fn change(
        &self,
        (rule, key): (&Rule, &[u8]),
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
    ) -> Result<Outcome, StoreError> {
        self.check_held()?;
        let change = OwnedChange { rule: rule.clone(), key: stored_key(key), adjustment, id };
        match self.pool.submit(Work::Change(Box::new(change))).wait(self.pool.settings.deadline).await? {
            Reply::Changed(outcome) => Ok(outcome),
            Reply::Decided(_) => Err(Failure::failed("a decision answers a change").into()),
        }
    }
}

impl VersionRegistry for PostgresStore {
    fn register<'r>(&'r self, registration: &'r Registration<'r>) -> RegistryFuture<'r, Option<Registry>> {
        Box::pin(async move { Ok(registry::register(&self.pool, registration).await?) })
    }

    fn registered_rules(&self, digest: u64) -> RegistryFuture<'_, Option<Vec<u8>>> {
        Box::pin(async move { Ok(registry::rules(&self.pool, digest).await?) })
    }

    fn gate(&self) -> &StoreGate {
        &self.pool.gate
    }

    fn is_held(&self) -> bool {
        self.pool.gate.is_closed(|| self.pool.local_clock.now())
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("settings", self.settings())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        if checks.is_empty() {
            return Ok(Answer { admitted: true, at: self.pool.local_clock.now(), outcomes: Outcomes::new() });
        }
        self.check_held()?;
        let work = Work::Decide(checks.iter().map(OwnedCheck::of).collect());
        match self.pool.submit(work).wait(self.pool.settings.deadline).await? {
            Reply::Decided(decided) => Ok(decided.answer),
            Reply::Changed(_) => Err(Failure::failed("a change answers a decision").into()),
        }
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.change((rule, key), adjustment, None).await
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        self.change((rule, key), once.adjustment, Some(once.id)).await
    }

    fn recognizes_adjustments(&self) -> bool {
        true
    }

    /// Charges a key of its own: a standby, a full disk and a missing privilege refuse that.
    async fn probe(&self) -> Result<(), StoreError> {
        let Ok(quota) = Bucket::new(Rate::per_second(1_000)) else { return Ok(()) };
        let rule = Rule::new("tollgate-probe", quota);
        self.decide(&[Check::new(&rule, b"probe", 1)]).await.map(drop)
    }

    fn nodes(&self) -> usize {
        self.pool.nodes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_can_be_shared_and_printed_without_its_password() {
        const fn is_shareable<T: Send + Sync>(_: &T) {}
        let settings = PostgresSettings::parse("postgres://ann:hunter2@127.0.0.1:1/shop").unwrap();
        let store = PostgresStore::new(settings);
        is_shareable(&store);
        let printed = format!("{store:?} {store:#?}");
        assert!(printed.contains("postgres://ann:***@127.0.0.1:1/shop"), "{printed}");
        assert!(!printed.contains("hunter"), "{printed}");
    }
}
