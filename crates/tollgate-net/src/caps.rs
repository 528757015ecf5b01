//! Caps and timeouts of a connection.

use std::time::Duration;

/// The caps and timeouts of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The maximum number of bytes of a request head.
    pub header_bytes: usize,
    /// The maximum number of headers of a request.
    pub headers: usize,
    /// The maximum number of concurrent requests on an HTTP/2 connection.
    pub streams: u32,
    /// The maximum number of connections of a worker. Further connections wait to be accepted.
    pub connections: usize,
    /// The timeout of a request head, a TLS handshake or a PROXY header.
    pub head: Duration,
    /// The maximum idle time between two requests.
    pub idle: Duration,
    /// The maximum time that a client may take to read bytes that are ready for it.
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
