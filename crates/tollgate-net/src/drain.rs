//! Graceful shutdown without losing a request.
//!
//! A connection that is closed while its next request is on the way loses that request. Draining
//! therefore has two steps: first every response announces that its connection closes, and idle
//! connections wait for one more request; then the connections that are still idle are closed.
//! HTTP/2 clients get GOAWAY immediately.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving = 0,
    /// No connection is accepted; responses close their connection.
    Draining = 1,
    /// Idle connections are closed.
    Closing = 2,
}

/// Starts a graceful shutdown.
#[derive(Debug)]
pub struct Drainer {
    phase: watch::Sender<Phase>,
    now: DrainFlag,
    started_at: Arc<OnceLock<Instant>>,
}

/// Observes a graceful shutdown; every surface has a clone.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: watch::Receiver<Phase>,
    now: DrainFlag,
    started_at: Arc<OnceLock<Instant>>,
}

/// Whether draining has started, for code that polls often and never waits.
#[derive(Clone, Debug)]
pub(crate) struct DrainFlag(Arc<AtomicU8>);

impl DrainFlag {
    pub(crate) fn has_begun(&self) -> bool {
        // Only a hint: a response that misses it is followed by one more request.
        self.0.load(Ordering::Relaxed) >= Phase::Draining as u8
    }
}

impl Drain {
    /// Creates a pair: one to start the shutdown, one to observe it.
    #[allow(clippy::new_ret_no_self, reason = "it is a channel, and those come in pairs")]
    pub fn new() -> (Drainer, Self) {
        let now = DrainFlag(Arc::new(AtomicU8::new(Phase::Serving as u8)));
        let (sender, receiver) = watch::channel(Phase::Serving);
        let started_at = Arc::default();
        let drainer = Drainer { phase: sender, now: now.clone(), started_at: Arc::clone(&started_at) };
        (drainer, Self { phase: receiver, now, started_at })
    }

    pub(crate) fn ending(&self) -> DrainFlag {
        self.now.clone()
    }

    /// Waits until the shutdown has reached a phase. A dropped drainer counts as the last phase.
    pub(crate) async fn reached(&mut self, phase: Phase) {
        let _ = self.phase.wait_for(|now| *now >= phase).await;
    }

    /// Waits until draining starts.
    pub async fn started(&mut self) {
        self.reached(Phase::Draining).await;
    }

    /// Returns the time that is left of `patience`, the time that running requests have to finish.
    /// All of it is left until draining starts.
    pub fn time_left(&self, patience: Duration) -> Duration {
        match self.started_at.get() {
            Some(started_at) => patience.saturating_sub(started_at.elapsed()),
            None => patience,
        }
    }

    /// Waits until idle connections are to be closed.
    pub async fn closing(&mut self) {
        self.reached(Phase::Closing).await;
    }
}

impl Drainer {
    /// Stops accepting, and lets every response close its connection.
    pub fn begin(&self) {
        self.enter(Phase::Draining);
    }

    /// Closes connections without a request in progress.
    pub fn close_idle(&self) {
        self.enter(Phase::Closing);
    }

    fn enter(&self, phase: Phase) {
        self.started_at.get_or_init(Instant::now);
        self.now.0.fetch_max(phase as u8, Ordering::Relaxed);
        self.phase.send_if_modified(|now| {
            let further = phase > *now;
            *now = phase.max(*now);
            further
        });
    }
}
