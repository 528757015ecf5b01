//! An upstream that follows a script.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::{Message, TEST_TIMEOUT, Wire};

/// A valid response.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An upstream on a free port, with one thread for each connection.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Message>>>,
}

/// The input of a script: its connection, the number of the connection (from 0), and the record of
/// requests.
pub(crate) struct Turn {
    pub(crate) wire: Wire,
    pub(crate) number: usize,
    seen: Arc<Mutex<Vec<Message>>>,
}

impl Turn {
    /// Reads and records the next request.
    pub(crate) fn request(&mut self) -> Option<Message> {
        let request = self.wire.request()?;
        self.seen.lock().unwrap().push(request.clone());
        Some(request)
    }

    /// Answers every request with the same response.
    pub(crate) fn always(&mut self, answer: &str) {
        while self.request().is_some() {
            self.wire.send(answer);
        }
    }
}

impl Upstream {
    /// Creates an upstream that follows the script on every connection.
    pub(crate) fn script(script: impl Fn(&mut Turn) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// Creates an upstream on a given listener.
    pub(crate) fn on(listener: TcpListener, script: impl Fn(&mut Turn) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (count, notes, script) = (Arc::clone(&connections), Arc::clone(&seen), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let mut turn = Turn { wire: Wire::new(stream.unwrap()), number, seen: Arc::clone(&notes) };
                let script = Arc::clone(&script);
                thread::spawn(move || script(&mut turn));
            }
        });
        Self { address, connections, seen }
    }

    /// Creates an upstream that answers `ok`.
    pub(crate) fn ok() -> Self {
        Self::always(OK)
    }

    /// Creates an upstream that answers one request for each message.
    pub(crate) fn released() -> (Self, mpsc::Sender<()>) {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let upstream = Self::script(move |turn| {
            while turn.request().is_some() {
                may_go_on.lock().unwrap().recv().unwrap();
                turn.wire.send(OK);
            }
        });
        (upstream, go_on)
    }

    /// Creates an upstream with a fixed response.
    pub(crate) fn always(answer: impl Into<String>) -> Self {
        let answer = answer.into();
        Self::script(move |turn| turn.always(&answer))
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The recorded requests, complete or not.
    pub(crate) fn seen(&self) -> Vec<Message> {
        self.seen.lock().unwrap().clone()
    }

    /// The only recorded request.
    #[track_caller]
    pub(crate) fn only(&self) -> Message {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0)
    }
}

/// Waits for an event, and fails the test after a timeout.
#[track_caller]
#[allow(
    clippy::disallowed_methods,
    reason = "another thread is waited for, which cannot say when it is done"
)]
pub(crate) fn eventually(what: &str, happened: impl Fn() -> bool) {
    let step = Duration::from_millis(2);
    let mut waited = Duration::ZERO;
    while !happened() {
        assert!(waited < TEST_TIMEOUT, "{what}: not within {TEST_TIMEOUT:?}");
        thread::sleep(step);
        waited += step;
    }
}
