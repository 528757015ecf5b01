//! The server, and the state that its connections share.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Clock as _, SharedLimiter, Span, Store, SystemClock, Timestamp};
use tollgate_net::{Drain, StreamServer, Tls};

use crate::connection;
use crate::metrics::Counters;
use crate::settings::RespSettings;

/// The minimum time between two warnings about wrong passwords.
const WARNING_INTERVAL: Span = Span::from_secs(60);

/// A server for the Redis protocol.
///
/// Clones share the same server: use one for each worker.
pub struct Resp<S>(Arc<Inner<S>>);

/// The state that all connections share.
pub(crate) struct Inner<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) settings: RespSettings,
    pub(crate) counters: Counters,
    pub(crate) clock: SystemClock,
    pub(crate) started_at: Timestamp,
    /// The time of the last warning about a wrong password, in microseconds.
    warned: AtomicU64,
}

impl<S> Inner<S> {
    pub(crate) fn new(limiter: SharedLimiter<S>, settings: RespSettings) -> Self {
        let clock = SystemClock::new();
        let (started_at, warned) = (clock.now(), AtomicU64::new(0));
        Self { limiter, settings, counters: Counters::default(), clock, started_at, warned }
    }

    /// Counts a wrong password, and logs a warning at most once in [`WARNING_INTERVAL`].
    pub(crate) fn wrong_password(&self, peer: SocketAddr) {
        self.counters.wrong_password();
        let now = self.clock.now().as_micros();
        // No other memory depends on it: at worst two threads log the same warning.
        let last = self.warned.load(Ordering::Relaxed);
        if last != 0 && now.saturating_sub(last) < WARNING_INTERVAL.as_micros() {
            return;
        }
        self.warned.store(now, Ordering::Relaxed);
        tracing::warn!(%peer, "a wrong password was given over the Redis protocol; more are only counted for a minute");
    }
}

impl<S: Store> Resp<S> {
    /// Creates a server that decides with this limiter.
    pub fn new(limiter: SharedLimiter<S>, settings: RespSettings) -> Self {
        Self(Arc::new(Inner::new(limiter, settings)))
    }

    /// Serves all connections of a listener until draining has ended.
    pub async fn serve(self, listener: TcpListener, tls: Option<Tls>, drain: Drain) -> io::Result<()> {
        let RespSettings { connections, handshake, .. } = self.0.settings;
        let server = StreamServer { connections, handshake, tls };
        let serve = move |stream, drain| connection::serve(stream, drain, Arc::clone(&self.0));
        server.serve(listener, serve, drain).await
    }

    /// Appends the metrics in the Prometheus text format.
    pub fn metrics(&self, out: &mut String) {
        self.0.counters.write(out);
    }
}

impl<S> Clone for Resp<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
