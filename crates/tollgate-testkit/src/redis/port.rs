//! Free ports that nobody gets by chance.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below the ports that the system gives to clients. A client that keeps
/// knocking at a dead server's port could otherwise be given that very port
/// for its own end, connect to itself, and keep the server from coming back.
const FIRST_PORT: u64 = 10_000;
const PORT_COUNT: u64 = 22_000;

/// Starts anywhere, so that processes rarely meet, and never repeats soon.
static NEXT_PORT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0) / 2));

/// A free port of 127.0.0.1 outside of the range that clients are given.
pub(super) fn quiet_port() -> u16 {
    loop {
        let port = FIRST_PORT + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % PORT_COUNT;
        let port = u16::try_from(port).expect("the range fits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
