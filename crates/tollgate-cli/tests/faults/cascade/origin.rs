//! An origin that counts requests, and serves few at a time.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// The number of requests that it serves at once.
const WORKERS: usize = 2;
/// The service time: a hundred requests a second in total.
const WORK_TIME: Duration = Duration::from_millis(20);

/// The origin of one test. Its threads end with the process.
pub(super) struct Origin {
    address: SocketAddr,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    busy: usize,
    waiting: usize,
    longest: usize,
    served: usize,
}

impl Origin {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, desk) = (listener.local_addr().unwrap(), Arc::<Desk>::default());
        let shared = Arc::clone(&desk);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = Arc::clone(&shared);
                thread::spawn(move || desk.serve(stream));
            }
        });
        Self { address, desk }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn served(&self) -> usize {
        self.desk.state.lock().unwrap().served
    }

    /// Returns the maximum number of requests that waited at once.
    pub(super) fn longest_queue(&self) -> usize {
        self.desk.state.lock().unwrap().longest
    }
}

impl Desk {
    /// Answers every request of a connection, until it ends.
    fn serve(&self, stream: TcpStream) {
        let Ok(mut writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            // The requests of these tests have no bodies: an empty line ends one.
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
            }
            self.work();
            if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }

    fn work(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state.longest = state.longest.max(state.waiting);
        while state.busy >= WORKERS {
            state = self.freed.wait(state).unwrap();
        }
        state.waiting -= 1;
        state.busy += 1;
        state.served += 1;
        drop(state);
        thread::sleep(WORK_TIME);
        self.state.lock().unwrap().busy -= 1;
        self.freed.notify_one();
    }
}
