//! Noticing that the other end of a quiet connection is gone.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// After how much quiet the kernel asks, and how often.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Lets the kernel ask a quiet peer whether it still lives: one that vanished
/// without a word would otherwise hold a tunnel for ever.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE_IDLE).with_interval(KEEP_ALIVE_INTERVAL))
}
