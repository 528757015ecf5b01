//! A client that sends requests at a rate, and counts the answers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Requests on each connection per second, so that answers of a busy proxy do not delay requests.
const PER_CONNECTION: u32 = 100;

/// A client that sends requests at a rate over several connections, until dropped.
///
/// It falls behind on a busy machine, and ends when the server ends its connections.
pub struct PacedClient {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    admitted: AtomicU64,
    refused: AtomicU64,
    ends: AtomicBool,
}

impl PacedClient {
    /// Starts sending requests with this header line.
    pub fn start(to: SocketAddr, per_second: u32, header: &str) -> Self {
        let (counts, connections) = (Arc::<Counts>::default(), per_second.div_ceil(PER_CONNECTION));
        let request = format!("GET / HTTP/1.1\r\nHost: app\r\n{header}\r\n\r\n");
        let interval = Duration::from_secs(1) * connections / per_second;
        let send = |at: u32| {
            let (counts, request) = (Arc::clone(&counts), request.clone());
            let first = Instant::now() + interval * at / connections;
            thread::spawn(move || run(to, request.as_bytes(), first, interval, &counts))
        };
        let threads = (0..connections).map(send).collect();
        Self { counts, threads }
    }

    /// Returns the number of answers with status 200.
    pub fn admitted(&self) -> u64 {
        self.counts.admitted.load(Ordering::Relaxed)
    }

    /// Returns the number of other answers.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Drop for PacedClient {
    fn drop(&mut self) {
        self.counts.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

fn run(to: SocketAddr, request: &[u8], first: Instant, interval: Duration, counts: &Counts) {
    let Ok(mut stream) = TcpStream::connect(to) else { return };
    let (mut due, mut buffer) = (first, Vec::new());
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while !counts.ends.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due += interval;
        if stream.write_all(request).is_err() {
            return;
        }
        let Some(status) = read_status(&mut stream, &mut buffer) else { return };
        let count = if status == 200 { &counts.admitted } else { &counts.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a response with a length, and returns its status.
fn read_status(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<u16> {
    buffer.clear();
    let mut chunk = [0; 4_096];
    loop {
        if let Some(head) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
            let length = text.lines().find_map(|it| it.strip_prefix("content-length:"));
            let length: usize = length.map_or(Some(0), |it| it.trim().parse().ok())?;
            if buffer.len() >= head + 4 + length {
                return text.split(' ').nth(1)?.parse().ok();
            }
        }
        match stream.read(&mut chunk).ok()? {
            0 => return None,
            read => buffer.extend_from_slice(&chunk[..read]),
        }
    }
}
