//! Commands that a store answers immediately allocate nothing, neither for the request nor for the
//! reply.
#![allow(clippy::unwrap_used, reason = "this is how a test fails")]
#![allow(unsafe_code, reason = "a global allocator that counts must implement an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::{Limiter, SharedLimiter};
use tollgate_net::{Drain, Sockets};
use tollgate_resp::{Resp, RespSettings};

struct Counting;

/// Counts the allocations of all threads, including the server's.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn commands_that_are_answered_immediately_allocate_nothing() {
    let limiter = Limiter::from_policy("limits: []").unwrap();
    let resp = Resp::new(SharedLimiter::from(limiter), RespSettings::default());
    let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
    let address = sockets.address();
    let listener = sockets.into_listeners().into_iter().next().unwrap();
    let (drainer, drain) = Drain::new();
    let server = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(resp.serve(listener, None, drain)).unwrap();
    });
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    // Sixteen commands at a time on a key with sufficient units. The replies have equal lengths
    // while the counts have.
    let call = b"*5\r\n$11\r\nCL.THROTTLE\r\n$5\r\nkey:1\r\n$6\r\n899999\r\n$1\r\n1\r\n$3\r\n100\r\n";
    let pipeline = call.repeat(16);
    let mut replies = [0; 2048];
    let mut ask = |rounds: usize| {
        for _ in 0..rounds {
            client.write_all(&pipeline).unwrap();
            let mut lines = 0;
            while lines < 16 * 6 {
                let some = client.read(&mut replies).unwrap();
                assert!(some > 0);
                lines += replies[..some].iter().map(|byte| usize::from(*byte == b'\n')).sum::<usize>();
            }
        }
    };
    ask(50);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    ask(500);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // Eight thousand commands; a buffer may have grown, a timer may have fired.
    assert!(allocations < 40, "{allocations} allocations");
    drop(client);
    drainer.begin();
    drainer.close_idle();
    server.join().unwrap();
}
