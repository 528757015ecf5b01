//! Stopping without losing a request.
//!
//! A connection that is closed while its next request is on the way loses that
//! request. So draining has two steps: first every answer says that the
//! connection closes after it, and connections between two requests wait for
//! one more; then those that are still idle are closed. HTTP/2 has a frame for
//! this and is told at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::watch;

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving = 0,
    /// Nothing new is accepted; answers close their connection.
    Draining = 1,
    /// Idle connections are closed.
    Closing = 2,
}

/// Says when to stop.
#[derive(Debug)]
pub struct Drainer {
    phase: watch::Sender<Phase>,
    now: DrainFlag,
}

/// Is told when to stop. Every surface has a clone.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: watch::Receiver<Phase>,
    now: DrainFlag,
}

/// Whether the end has begun, for those who ask often and never wait for it.
#[derive(Clone, Debug)]
pub(crate) struct DrainFlag(Arc<AtomicU8>);

impl DrainFlag {
    pub(crate) fn has_begun(&self) -> bool {
        // Only a hint: an answer that misses it is followed by one more request.
        self.0.load(Ordering::Relaxed) >= Phase::Draining as u8
    }
}

impl Drain {
    /// A pair: one to say when, one to be told.
    #[allow(clippy::new_ret_no_self, reason = "it is a channel, and those come in pairs")]
    pub fn new() -> (Drainer, Self) {
        let now = DrainFlag(Arc::new(AtomicU8::new(Phase::Serving as u8)));
        let (sender, receiver) = watch::channel(Phase::Serving);
        (Drainer { phase: sender, now: now.clone() }, Self { phase: receiver, now })
    }

    pub(crate) fn ending(&self) -> DrainFlag {
        self.now.clone()
    }

    /// Waits for the end to come this far. A drainer that is gone has ended everything.
    pub(crate) async fn reached(&mut self, phase: Phase) {
        let _ = self.phase.wait_for(|now| *now >= phase).await;
    }

    /// Waits until the end begins.
    pub async fn begun(&mut self) {
        self.reached(Phase::Draining).await;
    }

    /// Waits until connections that nothing is running on are to be closed.
    pub async fn closing(&mut self) {
        self.reached(Phase::Closing).await;
    }
}

impl Drainer {
    /// Stops accepting, and lets every answer close its connection.
    pub fn begin(&self) {
        self.enter(Phase::Draining);
    }

    /// Closes connections that no request is running on.
    pub fn close_idle(&self) {
        self.enter(Phase::Closing);
    }

    fn enter(&self, phase: Phase) {
        self.now.0.fetch_max(phase as u8, Ordering::Relaxed);
        self.phase.send_if_modified(|now| {
            let further = phase > *now;
            *now = phase.max(*now);
            further
        });
    }
}
