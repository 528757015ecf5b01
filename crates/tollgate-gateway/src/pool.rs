//! Pools of idle connections to upstreams.
//!
//! Each worker has its own pool, so its locks are uncontended. The most recently used connection is
//! used first; the others age and are closed.
//!
//! An HTTP/2 connection is shared by many requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::body::Progress;
use crate::connect::{Line, Sender, Shared};

/// How long an idle connection is kept. It is shorter than the idle timeout of most servers, so
/// that they do not close a connection under a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// The idle connections of one worker.
pub(crate) struct Pool {
    /// The connections to each upstream.
    origins: Vec<OriginConnections>,
    keep: usize,
}

#[derive(Default)]
struct OriginConnections {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Shared>>,
    /// Whether there ever was a shared connection.
    shares: AtomicBool,
}

impl OriginConnections {
    /// Returns the HTTP/2 connection with the fewest users, if it has room.
    fn least_shared(&self) -> Option<Shared> {
        let mut all = self.shared.lock();
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

    /// Takes a connection that is ready for a request.
    pub(crate) async fn take(&self, upstream: usize, now: Instant) -> Option<Sender> {
        let origin_connections = &self.origins[upstream];
        // Checked before locking: most upstreams have no shared connection.
        if origin_connections.shares.load(Ordering::Relaxed)
            && let Some(shared) = origin_connections.least_shared()
        {
            return Some(Sender::Two(shared));
        }
        loop {
            let Idle { line, since } = origin_connections.idle.lock().pop()?;
            if line.sender.is_closed() || now.saturating_duration_since(since) > IDLE_TIMEOUT {
                continue;
            }
            // The end of the last response may not have been processed yet. Yields once, and does
            // not wait for an upload of another request.
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
        let mut idle = self.origins[upstream].idle.lock();
        // The oldest connections are at the front.
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

    /// Adds an HTTP/2 connection for other requests to share.
    pub(crate) fn share(&self, upstream: usize, shared: &Shared) {
        let origin_connections = &self.origins[upstream];
        origin_connections.shared.lock().push(shared.clone());
        origin_connections.shares.store(true, Ordering::Relaxed);
    }

    /// Drops the idle connections to an upstream that has just closed one.
    pub(crate) fn forget(&self, upstream: usize) {
        self.origins[upstream].idle.lock().retain(|it| !it.line.sender.is_closed());
    }
}

/// A connection in use, with its pool.
pub(crate) struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) upstream: usize,
    pub(crate) sender: Sender,
    /// The progress of the request body, if there is one.
    pub(crate) upload: Option<Arc<Progress>>,
}

impl Lease {
    /// Returns the connection to the pool after the response has ended. A connection that is still
    /// sending the request body is closed.
    pub(crate) fn return_to_pool(self) {
        if let Sender::One(line) = self.sender
            && self.upload.is_none_or(|upload| Progress::is_over(&upload))
        {
            self.pool.put(self.upstream, line);
        }
    }
}
