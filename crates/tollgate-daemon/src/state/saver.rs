//! Saves the usage of a store in memory while requests are served, and when they have ended.
//!
//! A snapshot is written on a thread of its own. Requests do not wait for it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tollgate::{Policy, SharedLimiter};

use super::State;
use super::usage::{RuleHistory, SavedUsage};
use crate::store::AnyStore;

/// Opens a store in memory that continues with the saved usage. Returns the policy whose limits continue
/// it, the rules that counted it, and a warning if it cannot be used.
pub(crate) fn open_store(
    state: &State,
    policy: Policy,
) -> (Option<Arc<AnyStore>>, Policy, RuleHistory, Option<String>) {
    match state.read_usage(&policy) {
        Ok(None) => (None, policy, RuleHistory::default(), None),
        Err(warning) => (None, policy, RuleHistory::default(), Some(warning)),
        Ok(Some(SavedUsage { store, rules, age })) => {
            tracing::info!(keys = store.usage().keys, age = %age, "continuing with the saved usage");
            let policy = policy.carry_over_from_sets(&rules);
            (Some(Arc::new(AnyStore::Memory(store))), policy, RuleHistory::new(rules), None)
        }
    }
}

/// Saves the usage of a store in memory.
pub(crate) struct UsageSaver {
    state: Arc<State>,
    store: Arc<AnyStore>,
    limiter: SharedLimiter<AnyStore>,
    interval: Duration,
    progress: Mutex<Progress>,
}

/// Locked while a snapshot is written, so that two never write the same file.
struct Progress {
    rules: RuleHistory,
    has_failed: bool,
}

impl UsageSaver {
    pub(crate) fn new(
        state: &Arc<State>,
        store: &Arc<AnyStore>,
        limiter: &SharedLimiter<AnyStore>,
        interval: Duration,
        rules: RuleHistory,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Arc::clone(state),
            store: Arc::clone(store),
            limiter: limiter.clone(),
            interval,
            progress: Mutex::new(Progress { rules, has_failed: false }),
        })
    }

    /// Saves periodically, until dropped.
    pub(crate) async fn run(saver: Option<Arc<Self>>) {
        let Some(saver) = saver else { return pending().await };
        loop {
            sleep(saver.interval).await;
            Self::save(&saver).await;
        }
    }

    /// Saves now. A failure is logged once, until it works again.
    pub(crate) async fn save(saver: &Arc<Self>) {
        let saver = Arc::clone(saver);
        let _panicked = spawn_blocking(move || saver.write()).await;
    }

    fn write(&self) {
        let AnyStore::Memory(store) = &*self.store else { return };
        let mut progress = self.progress.lock();
        let written = self.state.write_usage(store, progress.rules.with(self.limiter.load().policy()));
        let had_failed = std::mem::replace(&mut progress.has_failed, written.is_err());
        match (written, had_failed) {
            (Ok(_), true) => tracing::info!("usage is saved again"),
            (Err(error), false) => {
                tracing::error!("usage cannot be saved, and is forgotten with the next restart: {error}");
            }
            (Ok(_), false) | (Err(_), true) => {}
        }
    }
}
