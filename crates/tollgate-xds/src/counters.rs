//! Counters of the client, and its state for operators.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of a client at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdsStatus {
    /// Whether a stream is open and has been answered.
    pub connected: bool,
    /// Whether a configuration is in force.
    pub configured: bool,
    /// The version of the last accepted response.
    pub version: String,
    /// The number of accepted responses.
    pub accepted: u64,
    /// The number of rejected responses.
    pub rejected: u64,
    /// The number of streams that failed or could not be opened.
    pub failures: u64,
    /// The number of streams without an answer for a minute.
    pub silences: u64,
    /// The reason of the last rejection or failure, until a response is accepted.
    pub problem: Option<String>,
}

/// The shared state of a client.
#[derive(Debug, Default)]
pub struct XdsCounters {
    connected: AtomicBool,
    configured: AtomicBool,
    accepted: AtomicU64,
    rejected: AtomicU64,
    failures: AtomicU64,
    silences: AtomicU64,
    /// The version and the problem.
    texts: Mutex<(String, Option<String>)>,
}

impl XdsCounters {
    /// Returns the state.
    pub fn status(&self) -> XdsStatus {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (version, problem) = self.texts.lock().map(|it| it.clone()).unwrap_or_default();
        XdsStatus {
            connected: self.connected.load(Ordering::Relaxed),
            configured: self.is_configured(),
            version,
            accepted: count(&self.accepted),
            rejected: count(&self.rejected),
            failures: count(&self.failures),
            silences: count(&self.silences),
            problem,
        }
    }

    /// Whether a configuration is in force.
    pub fn is_configured(&self) -> bool {
        self.configured.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    pub(crate) fn accept(&self, version: &str) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.configured.store(true, Ordering::Relaxed);
        self.set(|texts| *texts = (version.to_owned(), None));
    }

    pub(crate) fn reject(&self, reason: &str) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.set(|texts| texts.1 = Some(reason.to_owned()));
    }

    pub(crate) fn fail(&self, reason: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.set(|texts| texts.1 = Some(reason.to_owned()));
    }

    pub(crate) fn note_silence(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }

    fn set(&self, change: impl FnOnce(&mut (String, Option<String>))) {
        if let Ok(mut texts) = self.texts.lock() {
            change(&mut texts);
        }
    }
}
