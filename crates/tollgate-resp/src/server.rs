//! The server: what all its connections share.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tollgate::{Clock as _, Store, SystemClock, Timestamp};
use tollgate_http::SharedLimiter;
use tollgate_net::{Drain, StreamServer, Tls};

use crate::connection;
use crate::metrics::Counters;
use crate::settings::RespSettings;

/// Serves the Redis protocol. Clones are the same server: one for each worker.
pub struct Resp<S>(Arc<Inner<S>>);

/// What all connections share.
pub(crate) struct Inner<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) settings: RespSettings,
    pub(crate) counters: Counters,
    pub(crate) clock: SystemClock,
    pub(crate) begun: Timestamp,
}

impl<S: Store> Resp<S> {
    /// A server that asks this limiter.
    pub fn new(limiter: SharedLimiter<S>, settings: RespSettings) -> Self {
        let clock = SystemClock::new();
        let begun = clock.now();
        Self(Arc::new(Inner { limiter, settings, counters: Counters::default(), clock, begun }))
    }

    /// Serves every connection that arrives, until draining has ended.
    pub async fn serve(self, listener: TcpListener, tls: Option<Tls>, drain: Drain) -> io::Result<()> {
        let RespSettings { connections, handshake, .. } = self.0.settings;
        let server = StreamServer { connections, handshake, tls };
        let serve = move |stream, drain| connection::serve(stream, drain, Arc::clone(&self.0));
        server.serve(listener, serve, drain).await
    }

    /// What was asked and what came of it, in the text format of Prometheus.
    pub fn metrics(&self, out: &mut String) {
        self.0.counters.write(out);
    }
}

impl<S> Clone for Resp<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
