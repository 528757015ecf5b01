//! Connections to upstreams that wait for their next request.
//!
//! One pool for each worker, so its locks are never waited for. The connection
//! that was used last is used first: the others grow old and are let go.
//!
//! Over HTTP/2 one connection carries many requests and is shared.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::time::Instant;

use crate::body::Upload;
use crate::connect::{Line, Sender};

/// How long a connection is kept without a request: less than most servers do,
/// so that they do not close it under the next one.
const KEPT_FOR: Duration = Duration::from_secs(50);

/// The waiting connections of one worker.
pub(crate) struct Pool {
    /// One for each upstream.
    lanes: Vec<Lane>,
    keep: usize,
}

#[derive(Default)]
struct Lane {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Option<http2::SendRequest<Upload>>>,
}

struct Idle {
    line: Line,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(upstreams: usize, keep: usize) -> Self {
        Self { lanes: (0..upstreams).map(|_| Lane::default()).collect(), keep }
    }

    /// A connection that is ready for a request.
    pub(crate) async fn take(&self, upstream: usize, now: Instant) -> Option<Sender> {
        let lane = &self.lanes[upstream];
        let shared = lock(&lane.shared).clone();
        if let Some(sender) = shared.filter(|it| !it.is_closed()) {
            return Some(Sender::Two(sender));
        }
        loop {
            let Idle { mut line, since } = lock(&lane.idle).pop()?;
            if line.sender.is_closed() || now.saturating_duration_since(since) > KEPT_FOR {
                continue;
            }
            // The end of its last answer may still be on the way to it.
            if line.sender.is_ready() || line.sender.ready().await.is_ok() {
                return Some(Sender::One(line));
            }
        }
    }

    fn put(&self, upstream: usize, line: Line) {
        if line.sender.is_closed() {
            return;
        }
        let mut idle = lock(&self.lanes[upstream].idle);
        // The oldest are at the front.
        let now = Instant::now();
        let is_old = |it: &&Idle| now - it.since > KEPT_FOR || it.line.sender.is_closed();
        let old = idle.iter().take_while(is_old).count();
        if old > 0 {
            idle.drain(..old);
        }
        if idle.len() < self.keep {
            idle.push(Idle { line, since: now });
        }
    }

    /// Lets others use an HTTP/2 connection too.
    pub(crate) fn share(&self, upstream: usize, sender: &http2::SendRequest<Upload>) {
        *lock(&self.lanes[upstream].shared) = Some(sender.clone());
    }

    /// Forgets the connections to an upstream that has just closed one.
    pub(crate) fn forget(&self, upstream: usize) {
        lock(&self.lanes[upstream].idle).retain(|it| !it.line.sender.is_closed());
    }
}

/// A connection in use, and where it goes afterwards.
pub(crate) struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) upstream: usize,
    pub(crate) line: Line,
}

impl Lease {
    /// The answer has ended: the connection can take the next request.
    pub(crate) fn give_back(self) {
        self.pool.put(self.upstream, self.line);
    }
}

/// A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
