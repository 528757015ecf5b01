//! Sends requests at given times, each on a connection of its own, and measures their responses.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::stopwatch;

/// The path of the requests, to which the limit applies.
pub const PATH: &str = "/limited";
/// Time limit of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The response to one request.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// The time from the request to the first byte of the response.
    pub delay: Duration,
    /// The time by which the request was sent too late. A queue that it joins later delays it less.
    pub late: Duration,
}

/// Sends a request at each of these times, in milliseconds from now, and returns the responses in their order.
pub fn send(address: SocketAddr, arrivals: &[u64]) -> io::Result<Vec<Response>> {
    let connect = |_| {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let streams: Vec<TcpStream> = arrivals.iter().map(connect).collect::<io::Result<_>>()?;
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: all\r\nConnection: close\r\n\r\n");
    let mut readers = Vec::new();
    // Threads and connections are ready before the first request.
    let start = stopwatch::mark() + Duration::from_millis(50);
    for (mut stream, &millis) in streams.into_iter().zip(arrivals) {
        let twin = stream.try_clone()?;
        let reader = thread::spawn(move || first_byte(twin));
        let due = start + Duration::from_millis(millis);
        wait_until(due);
        stream.write_all(request.as_bytes())?;
        // Read afterwards: the thread may have lost its core in between.
        let sent = stopwatch::mark();
        readers.push((due, sent, stream, reader));
    }
    let each = readers.into_iter().map(|(due, sent, stream, reader)| {
        let (status, at) = reader.join().map_err(|_| io::Error::other("a reader has panicked"))??;
        drop(stream);
        let late = sent.saturating_duration_since(due);
        Ok(Response { status, delay: at.saturating_duration_since(sent), late })
    });
    each.collect()
}

/// Reads the status of a response, and the time of its first bytes.
fn first_byte(mut stream: TcpStream) -> io::Result<(u16, Instant)> {
    let mut head = [0; 512];
    let read = stream.read(&mut head)?;
    let at = stopwatch::mark();
    let text = String::from_utf8_lossy(head.get(..read).unwrap_or_default()).into_owned();
    let status = text.split(' ').nth(1).and_then(|it| it.parse().ok());
    Ok((status.ok_or_else(|| io::Error::other(format!("no status: {text:?}")))?, at))
}

/// Sleeps, and then spins for the last part: a sleep may take a millisecond longer.
fn wait_until(then: Instant) {
    const SPIN: Duration = Duration::from_millis(1);
    let left = then.saturating_duration_since(stopwatch::mark());
    stopwatch::pause(left.saturating_sub(SPIN));
    while stopwatch::mark() < then {
        std::hint::spin_loop();
    }
}
