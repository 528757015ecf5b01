//! Connections to upstreams that wait for their next request.
//!
//! One pool for each worker, so its locks are never waited for. The connection
//! that was used last is used first: the others grow old and are let go.
//!
//! Over HTTP/2 one connection carries many requests and is shared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::body::Progress;
use crate::connect::{Line, Sender, Shared};

/// How long a connection is kept without a request: less than most servers do,
/// so that they do not close it under the next one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// The waiting connections of one worker.
pub(crate) struct Pool {
    /// One for each upstream.
    origins: Vec<OriginConnections>,
    keep: usize,
}

#[derive(Default)]
struct OriginConnections {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Shared>>,
    /// Whether there ever was one.
    shares: AtomicBool,
}

impl OriginConnections {
    /// An HTTP/2 connection that has room for one more.
    fn least_shared(&self) -> Option<Shared> {
        let mut all = lock(&self.shared);
        all.retain(|it| !it.sender.is_closed());
        all.iter().find(|it| it.has_room()).cloned()
    }
}

struct Idle {
    line: Line,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(upstreams: usize, keep: usize) -> Self {
        Self { origins: (0..upstreams).map(|_| OriginConnections::default()).collect(), keep }
    }

    /// A connection that is ready for a request.
    pub(crate) async fn take(&self, upstream: usize, now: Instant) -> Option<Sender> {
        let origin_connections = &self.origins[upstream];
        // Read before locking: most upstreams never share.
        if origin_connections.shares.load(Ordering::Relaxed)
            && let Some(shared) = origin_connections.least_shared()
        {
            return Some(Sender::Two(shared));
        }
        loop {
            let Idle { line, since } = lock(&origin_connections.idle).pop()?;
            if line.sender.is_closed() || now.saturating_duration_since(since) > IDLE_TIMEOUT {
                continue;
            }
            // The end of its last answer may still be on the way to it: for one turn,
            // and not for as long as somebody else's upload may take.
            if !line.sender.is_ready() {
                tokio::task::yield_now().await;
            }
            if line.sender.is_ready() {
                return Some(Sender::One(line));
            }
        }
    }

    fn put(&self, upstream: usize, line: Line) {
        if line.sender.is_closed() {
            return;
        }
        let mut idle = lock(&self.origins[upstream].idle);
        // The oldest are at the front.
        let now = Instant::now();
        let is_old = |it: &&Idle| now - it.since > IDLE_TIMEOUT || it.line.sender.is_closed();
        let old = idle.iter().take_while(is_old).count();
        if old > 0 {
            idle.drain(..old);
        }
        if idle.len() < self.keep {
            idle.push(Idle { line, since: now });
        }
    }

    /// Lets others use an HTTP/2 connection too.
    pub(crate) fn share(&self, upstream: usize, shared: &Shared) {
        let origin_connections = &self.origins[upstream];
        lock(&origin_connections.shared).push(shared.clone());
        origin_connections.shares.store(true, Ordering::Relaxed);
    }

    /// Forgets the connections to an upstream that has just closed one.
    pub(crate) fn forget(&self, upstream: usize) {
        lock(&self.origins[upstream].idle).retain(|it| !it.line.sender.is_closed());
    }
}

/// A connection in use, and where it goes afterwards.
pub(crate) struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) upstream: usize,
    pub(crate) sender: Sender,
    /// The request's body, if it had one.
    pub(crate) upload: Option<Arc<Progress>>,
}

impl Lease {
    /// The answer has ended: the connection can take the next request, but for one
    /// that is still busy with the body of the last. That one is closed.
    pub(crate) fn give_back(self) {
        if let Sender::One(line) = self.sender
            && self.upload.is_none_or(|upload| Progress::is_over(&upload))
        {
            self.pool.put(self.upstream, line);
        }
    }
}

/// A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
