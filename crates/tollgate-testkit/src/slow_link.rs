//! A link to a server with a delay, which may be cut.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::Redis;

/// How often a link that is cut checks whether it is healed.
const CUT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A link to a server with a delay, which may be cut. It forwards bytes in both directions, and its threads
/// end with the process.
pub struct SlowLink {
    address: SocketAddr,
    state: Arc<LinkState>,
}

#[derive(Default)]
struct LinkState {
    /// The delay of requests in milliseconds.
    delay: AtomicU64,
    is_cut: AtomicBool,
}

impl SlowLink {
    /// Creates a link to Redis, without a delay.
    pub fn to(redis: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("the listener has an address");
        let state = Arc::<LinkState>::default();
        let (target, shared) = (redis.address(), Arc::clone(&state));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&target) else { continue };
                let both = near.try_clone().and_then(|near| Ok((near, far.try_clone()?)));
                let Ok((near_again, far_again)) = both else { continue };
                let [there, back] = [Arc::clone(&shared), Arc::clone(&shared)];
                thread::spawn(move || carry(near, far, &there, true));
                thread::spawn(move || carry(far_again, near_again, &back, false));
            }
        });
        Self { address, state }
    }

    /// Returns the near end.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays each request from now on, one after the other.
    pub fn delay(&self, time: Duration) {
        self.state.delay.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Cuts the link, or heals it. Bytes that are sent meanwhile arrive when it is healed.
    pub fn cut(&self, is_cut: bool) {
        self.state.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, state: &LinkState, is_delayed: bool) {
    let mut bytes = vec![0; 64 * 1024];
    let _ = to.set_nodelay(true);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_delayed {
            thread::sleep(Duration::from_millis(state.delay.load(Ordering::SeqCst)));
        }
        while state.is_cut.load(Ordering::SeqCst) {
            thread::sleep(CUT_POLL_INTERVAL);
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
