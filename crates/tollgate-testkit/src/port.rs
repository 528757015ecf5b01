//! Free ports outside the range of client ports.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first port of the range, which is below the ephemeral ports of the system. A client that
/// retries the port of a dead server could otherwise get that port for its own end, connect to
/// itself, and block the restart of the server.
const FIRST_PORT: u64 = 10_000;
const PORT_COUNT: u64 = 22_000;

/// Starts at a random port, so that processes rarely collide, and does not repeat soon.
static NEXT_PORT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0) / 2));

/// Returns a port of 127.0.0.1 that was free a moment ago, for programs that cannot choose a port themselves.
///
/// It is outside the ephemeral range, and a process gets the same port again only after all others: some proxies
/// listen with `SO_REUSEPORT`, and two of them on one port would share its connections.
pub fn free_port() -> u16 {
    loop {
        let port = FIRST_PORT + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % PORT_COUNT;
        let port = u16::try_from(port).expect("the range fits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
