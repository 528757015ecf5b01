//! What `/readyz` tells: which policy is in force, how the store is doing, and what went
//! wrong since.
//!
//! A node whose store gives no answers is ready all the same: it decides as its limits'
//! `on_outage` says, and one that is sent no requests decides nothing.
//!
//! Anybody may ask whether a node is ready, and how it is. Where its store is, and what
//! went wrong in words, may name machines and files: that is for those who may read.
//!
//! The binary writes it when it loads, fails to load, and stops; requests read it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tollgate::{Health, Timestamp};

/// What `/readyz` tells. Shared: all of it changes behind a shared reference.
///
/// ```
/// # use tollgate::Timestamp;
/// # use tollgate_server::Status;
/// let status = Status::new();
/// assert!(!status.is_ready());                       // no policy yet
/// status.loaded(Timestamp::from_secs(1_772_366_400));
/// status.reload_failed("error: unknown key `lmits`");
/// assert!(status.is_ready());                        // the old policy serves on
/// status.drain();
/// assert!(!status.is_ready());
/// ```
#[derive(Debug, Default)]
pub struct Status {
    version: AtomicU64,
    draining: AtomicBool,
    last: Mutex<LastReload>,
}

#[derive(Debug, Default)]
struct LastReload {
    store: Option<String>,
    loaded_at: Option<Timestamp>,
    reload_error: Option<String>,
}

/// Instead of what went wrong, to whoever may not read it.
const ERROR_WITHHELD: &str = "only those who may read are told why: show a token";

/// Status as JSON.
#[derive(Serialize)]
struct StatusView {
    ready: bool,
    draining: bool,
    policy_version: u64,
    policy_loaded_at: Option<String>,
    reload_error: Option<String>,
    store: StoreView,
}

/// How the store is doing, as JSON.
#[derive(Serialize)]
pub(crate) struct StoreView {
    address: Option<String>,
    state: &'static str,
    since: Option<String>,
    error: Option<String>,
    failures: u64,
    degraded_decisions: u64,
    ledger_keys: usize,
}

impl StoreView {
    fn of(health: &Health, address: Option<String>) -> Self {
        let is_degraded = health.is_degraded();
        Self {
            address,
            state: if is_degraded { "degraded" } else { "ok" },
            since: health.since.and_then(date),
            // What is over is in the counts.
            error: health.error.clone().filter(|_| is_degraded),
            failures: health.failures,
            degraded_decisions: health.degraded.total(),
            ledger_keys: health.ledger_keys,
        }
    }
}

/// What stands for the parts of a key that are not shown, as answers spell it.
pub(crate) fn tag(tag: u64) -> String {
    format!("{tag:016x}")
}

pub(crate) fn date(at: Timestamp) -> Option<String> {
    let micros = i64::try_from(at.as_micros()).ok()?;
    jiff::Timestamp::from_microsecond(micros).ok().map(|at| at.to_string())
}

impl Status {
    /// Nothing loaded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the store is, as anybody may see it: without a password.
    pub fn stored_at(&self, address: impl Into<String>) {
        self.last().store = Some(address.into());
    }

    /// A policy was put in force at this time.
    pub fn loaded(&self, at: Timestamp) {
        let mut last = self.last();
        last.loaded_at = Some(at);
        last.reload_error = None;
        // Under the lock, so that a version and its time are read together.
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// A policy was refused, for these reasons; the one before stays in force.
    pub fn reload_failed(&self, why: impl Into<String>) {
        self.last().reload_error = Some(why.into());
    }

    /// No more requests should come: this server is about to stop.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// How many policy files were put in force so far. (The number of the policy counts
    /// switches too: `Limiter::version`.)
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Whether requests should be sent here.
    pub fn is_ready(&self) -> bool {
        self.version() > 0 && !self.draining.load(Ordering::Relaxed)
    }

    /// All of it, or what is for everybody.
    pub(crate) fn to_json(&self, policy_version: u64, health: &Health, in_full: bool) -> Vec<u8> {
        let last = self.last();
        let told = |why: Option<String>| if in_full { why } else { why.map(|_| ERROR_WITHHELD.to_owned()) };
        let store = StoreView::of(health, last.store.clone().filter(|_| in_full));
        let told = StatusView {
            ready: self.is_ready(),
            draining: self.draining.load(Ordering::Relaxed),
            policy_version,
            policy_loaded_at: last.loaded_at.and_then(date),
            reload_error: told(last.reload_error.clone()),
            store: StoreView { error: told(store.error), ..store },
        };
        serde_json::to_vec(&told).unwrap_or_default()
    }

    /// How the store is doing.
    pub(crate) fn store(&self, health: &Health) -> StoreView {
        StoreView::of(health, self.last().store.clone())
    }

    /// When the policy in force was loaded, and why the last one was refused.
    pub(crate) fn loading(&self) -> (Option<String>, Option<String>) {
        let last = self.last();
        (last.loaded_at.and_then(date), last.reload_error.clone())
    }

    fn last(&self) -> MutexGuard<'_, LastReload> {
        // A thread that panicked left options behind, all fit to be read.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
