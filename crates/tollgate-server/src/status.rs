//! The state that `/readyz` reports: the policy in force, the health of the store, and the last reload
//! error.
//!
//! A node whose store does not answer is ready: it decides by the `on_outage` rules of its limits.
//!
//! Readiness is public. The address of the store and the texts of errors may name machines and files,
//! so they are shown only to readers.
//!
//! The binary updates the state when it loads a policy, fails to load one, and stops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate::{Health, Timestamp};
use tollgate_api::{Readiness, StoreHealth};

/// The state that `/readyz` reports. All methods take a shared reference.
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

/// Replaces the text of an error for callers without the reader role.
const ERROR_WITHHELD: &str = "the reason is shown to readers only: send a token";

/// Returns the JSON view of the store's health.
fn store_health(health: &Health, address: Option<String>) -> StoreHealth {
    let is_degraded = health.is_degraded();
    StoreHealth {
        address,
        state: if is_degraded { "degraded" } else { "ok" }.to_owned(),
        since: health.since.map(date),
        // A past error is visible only in the counts.
        error: health.error.clone().filter(|_| is_degraded),
        failures: health.failures,
        degraded_decisions: health.degraded.total(),
        ledger_keys: health.ledger_keys as u64,
    }
}

/// Formats a tag, which identifies the hidden part of a key.
pub(crate) fn tag(tag: u64) -> String {
    format!("{tag:016x}")
}

/// Formats a time. A time after the end of the calendar is shown as its end.
pub(crate) fn date(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).to_string()
}

impl Status {
    /// Creates a status without a policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the address of the store, without a password.
    pub fn stored_at(&self, address: impl Into<String>) {
        self.last.lock().store = Some(address.into());
    }

    /// Records that a policy came into force at this time.
    pub fn loaded(&self, at: Timestamp) {
        let mut last = self.last.lock();
        last.loaded_at = Some(at);
        last.reload_error = None;
        // Under the lock, so that a version and its time are read together.
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a policy was rejected; the previous one stays in force.
    pub fn reload_failed(&self, why: impl Into<String>) {
        self.last.lock().reload_error = Some(why.into());
    }

    /// Marks the server as about to stop, so that it is no longer ready.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Returns the number of policy files that came into force. (`Limiter::version` also counts mode
    /// changes.)
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Whether requests should be sent to this server.
    pub fn is_ready(&self) -> bool {
        self.version() > 0 && !self.draining.load(Ordering::Relaxed)
    }

    /// Returns the status as JSON, with details if `in_full`.
    pub(crate) fn to_json(&self, policy_version: u64, health: &Health, in_full: bool) -> Vec<u8> {
        let last = self.last.lock();
        let disclosed =
            |why: Option<String>| if in_full { why } else { why.map(|_| ERROR_WITHHELD.to_owned()) };
        let store = store_health(health, last.store.clone().filter(|_| in_full));
        let readiness = Readiness {
            ready: self.is_ready(),
            draining: self.draining.load(Ordering::Relaxed),
            policy_version,
            policy_loaded_at: last.loaded_at.map(date),
            reload_error: disclosed(last.reload_error.clone()),
            store: StoreHealth { error: disclosed(store.error), ..store },
        };
        serde_json::to_vec(&readiness).unwrap_or_default()
    }

    /// Returns the health of the store.
    pub(crate) fn store(&self, health: &Health) -> StoreHealth {
        store_health(health, self.last.lock().store.clone())
    }

    /// Returns the load time of the policy in force, and the error of the last reload.
    pub(crate) fn loading(&self) -> (Option<String>, Option<String>) {
        let last = self.last.lock();
        (last.loaded_at.map(date), last.reload_error.clone())
    }
}
