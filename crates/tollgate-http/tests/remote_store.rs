//! A store that never answers immediately, like a remote store.

use tollgate::store::{Answer, Check};
use tollgate::{Adjustment, ManualClock, MemoryStore, Outcome, Rule, Store, StoreError};

pub(crate) struct RemoteStore(pub(crate) MemoryStore<ManualClock>);

impl Store for RemoteStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        tokio::task::yield_now().await;
        self.0.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        self.0.adjust(rule, key, adjustment).await
    }
}
