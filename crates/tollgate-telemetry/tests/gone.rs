//! A store that does not answer.

use std::time::Duration;

use tollgate::store::{Answer, Check};
use tollgate::{Adjustment, Outcome, Rule, Store, StoreError};

/// A store that does not answer.
pub(crate) struct UnreachableStore;

impl Store for UnreachableStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::TimedOut(Duration::from_millis(50)))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::TimedOut(Duration::from_millis(50)))
    }
}
