//! Many requests from several clients, each on a persistent connection.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::integrations::message::Message;

/// The number of clients.
pub(crate) const CLIENTS: u64 = 8;

/// The number of responses by status. A connection that ends without a response fails the test.
pub(crate) type Statuses = BTreeMap<u16, u64>;

/// The progress and the target of a load.
pub(crate) struct Load {
    sent: AtomicU64,
    end: AtomicU64,
}

impl Load {
    /// Creates a load of this many requests.
    pub(crate) const fn of(requests: u64) -> Self {
        Self { sent: AtomicU64::new(0), end: AtomicU64::new(requests) }
    }

    /// Waits until this many more requests are in flight.
    pub(crate) fn wait_for(&self, more: u64) {
        let wanted = self.sent.load(Ordering::Relaxed) + more;
        while self.sent.load(Ordering::Relaxed) < wanted {
            thread::yield_now();
        }
    }

    /// Ends the load after this many requests, or now if there were more.
    pub(crate) fn end_at(&self, requests: u64) {
        self.end.store(requests, Ordering::Relaxed);
    }
}

/// Sends requests for a path, from all clients together.
pub(crate) fn send(to: SocketAddr, path: &str, load: &Load) -> Statuses {
    let clients: Vec<Statuses> = thread::scope(|scope| {
        let run = || client(to, path, load);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        clients.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut all = Statuses::new();
    for (status, count) in clients.into_iter().flatten() {
        *all.entry(status).or_default() += count;
    }
    all
}

fn client(to: SocketAddr, path: &str, load: &Load) -> Statuses {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut statuses = Statuses::new();
    while load.sent.fetch_add(1, Ordering::Relaxed) < load.end.load(Ordering::Relaxed) {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: app\r\n\r\n").unwrap();
        let answer = Message::read(&mut stream).expect("Envoy keeps the connection and answers");
        *statuses.entry(answer.status()).or_default() += 1;
    }
    statuses
}
