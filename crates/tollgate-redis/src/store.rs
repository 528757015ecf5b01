//! The store.

use tollgate_core::{Adjustment, Outcome, Rule};
use tollgate_store::{Answer, Check, Store, StoreError};

use crate::settings::RedisSettings;

/// State in Redis. Nothing is connected before the first question.
pub struct RedisStore {
    settings: RedisSettings,
}

/// What a store has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Decisions made by Redis.
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

impl RedisStore {
    /// A store at this place. Must be used inside a tokio runtime.
    pub fn new(settings: RedisSettings) -> Self {
        Self { settings }
    }

    /// Connects, or says why not: for whoever wants to tell at start. The store
    /// works without, and tries again by itself.
    pub async fn connect(&self) -> Result<(), StoreError> {
        Err(StoreError::Refused("not yet".into()))
    }

    /// Announces this node in Redis for as long as it is polled, and learns how
    /// many others there are.
    pub async fn announce(&self) {
        std::future::pending().await
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// How it was set up.
    pub const fn settings(&self) -> &RedisSettings {
        &self.settings
    }
}

impl Store for RedisStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Refused("not yet".into()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Refused("not yet".into()))
    }
}
