//! TCP keep-alive, to detect vanished peers.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The idle time before the first probe, and the interval of probes.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Enables TCP keep-alive. A peer that vanished would otherwise hold a tunnel forever.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE_IDLE).with_interval(KEEP_ALIVE_INTERVAL))
}
