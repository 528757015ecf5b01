//! Idle connections to upstreams that are used without hyper.
//!
//! Each worker has its own pool, as for the connections of hyper (`crate::pool`). The two pools are bounded separately.
//! No task watches an idle connection: it is checked when it is taken, and the sweep closes those that are old or closed.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long an idle connection is kept. It is shorter than the idle timeout of most servers, so
/// that they do not close a connection under a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// The interval at which idle connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// A connection to an upstream, used by one request at a time.
pub(super) struct RawConnection {
    pub(super) stream: TcpStream,
    /// The timer of the exchange. It is reused between requests, because resetting it is cheaper than creating one.
    pub(super) timer: Pin<Box<Sleep>>,
    /// Whether the connection was used before.
    pub(super) is_reused: bool,
}

struct Idle {
    connection: RawConnection,
    since: Instant,
}

impl Idle {
    /// Whether the connection can carry a request: it is young, and the upstream has sent and closed nothing.
    fn is_usable(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) <= IDLE_TIMEOUT
            && self
                .connection
                .stream
                .try_read(&mut [0])
                .is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The idle connections of one worker.
pub(crate) struct RawPool {
    /// The connections to each upstream, the most recently used one last.
    origins: Vec<Mutex<Vec<Idle>>>,
    keep: usize,
}

impl RawPool {
    pub(crate) fn new(upstreams: usize, keep: usize) -> Self {
        Self { origins: (0..upstreams).map(|_| Mutex::default()).collect(), keep }
    }

    /// Takes a connection that is ready for a request.
    pub(super) fn take(&self, upstream: usize, now: Instant) -> Option<RawConnection> {
        let mut idle = self.origins[upstream].lock();
        loop {
            let found = idle.pop()?;
            if found.is_usable(now) {
                return Some(RawConnection { is_reused: true, ..found.connection });
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(&self, upstream: usize, connection: RawConnection, now: Instant) {
        let mut idle = self.origins[upstream].lock();
        if idle.len() < self.keep {
            idle.push(Idle { connection, since: now });
        }
    }

    /// Closes the idle connections to an upstream that the upstream has closed.
    pub(super) fn forget(&self, upstream: usize, now: Instant) {
        self.origins[upstream].lock().retain(|it| it.is_usable(now));
    }

    /// Closes old and closed connections from time to time, forever.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let now = Instant::now();
            (0..self.origins.len()).for_each(|upstream| self.forget(upstream, now));
        }
    }
}
