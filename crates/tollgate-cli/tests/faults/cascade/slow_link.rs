//! A link to Redis with an optional delay.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testkit::Redis;

/// Forwards bytes in both directions. Its threads end with the process.
pub(super) struct SlowLink {
    address: SocketAddr,
    /// The delay in milliseconds.
    delay: Arc<AtomicU64>,
}

impl SlowLink {
    pub(super) fn to(redis: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, delay) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
        let (target, shared) = (redis.address(), Arc::clone(&delay));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&target) else { continue };
                let both = near.try_clone().and_then(|near| Ok((near, far.try_clone()?)));
                let Ok((near_again, far_again)) = both else { continue };
                let delay = Arc::clone(&shared);
                thread::spawn(move || carry(near, far, Some(&delay)));
                thread::spawn(move || carry(far_again, near_again, None));
            }
        });
        Self { address, delay }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays each request from now on, one after the other.
    pub(super) fn delay(&self, time: Duration) {
        self.delay.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Option<&AtomicU64>) {
    let mut bytes = vec![0; 64 * 1024];
    let _ = to.set_nodelay(true);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(delay) = delay {
            thread::sleep(Duration::from_millis(delay.load(Ordering::SeqCst)));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
