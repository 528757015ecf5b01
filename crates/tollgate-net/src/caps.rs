//! What one connection may take, and for how long.

use std::time::Duration;

/// What one connection may take, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The most bytes of a request's head.
    pub header_bytes: usize,
    /// The most headers of a request.
    pub headers: usize,
    /// The most requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// The most connections at once, on one worker. More wait to be accepted.
    pub connections: usize,
    /// How long a head, a TLS handshake or a PROXY header may take to arrive.
    pub head: Duration,
    /// How long a connection may stand idle between two requests.
    pub idle: Duration,
    /// How long a client may take nothing of an answer that is ready for it.
    pub stalled: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            header_bytes: 32 * 1024,
            headers: 100,
            streams: 128,
            connections: 20_000,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            stalled: Duration::from_secs(60),
        }
    }
}
