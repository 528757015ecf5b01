//! The upstream behind Envoy: keeps its connections, and counts requests.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::integrations::message::Message;

/// An upstream on a free port, until the test ends.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    seen: Arc<AtomicU64>,
}

impl App {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&seen);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                thread::spawn(move || {
                    while Message::read(&mut stream).is_some() {
                        counted.fetch_add(1, Ordering::Relaxed);
                        if stream
                            .write_all(b"HTTP/1.1 200 OK\r\nX-Tokens: 40\r\nContent-Length: 5\r\n\r\nhello")
                            .is_err()
                        {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, seen }
    }

    /// Returns the number of requests.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}
