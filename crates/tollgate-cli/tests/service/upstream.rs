//! An upstream whose behavior depends on the path.
//!
//! - `/large`: sixteen megabytes, more than the kernel buffers for a client that does not read
//! - `/wait/MS`: responds after this many milliseconds
//! - `/pause/MS`: pauses that long in the middle of its body
//! - any other path: `ok`

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// The content of `/large`.
static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
const PIECES: usize = 256;

/// An upstream of the gateway.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    /// Receives a message for every request that waits or pauses, once it has been read.
    pub(crate) waiting: Receiver<()>,
}

impl Upstream {
    /// Serves on a free port until the test ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let (waits, waiting) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let waits = waits.clone();
                // A client that closes early gets no response, and the test notices.
                thread::spawn(move || drop(serve(stream, &waits)));
            }
        });
        Self { address, waiting }
    }

    /// Returns the `gateway` section for this upstream, with additional settings.
    pub(crate) fn section(&self, more: &str) -> String {
        format!("gateway: {{upstream: \"http://{}\", {more}}}\n", self.address)
    }
}

fn serve(stream: TcpStream, waits: &Sender<()>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(path) = read_request(&mut stream)? {
        let stream = stream.get_mut();
        let time = path.rsplit('/').next().and_then(|it| it.parse().ok()).map(Duration::from_millis);
        if path.starts_with("/large") {
            stream.write_all(head(PIECES * PIECE.len()).as_bytes())?;
            for _ in 0..PIECES {
                stream.write_all(&PIECE)?;
            }
        } else if path.starts_with("/wait/") {
            let _nobody_listens = waits.send(());
            thread::sleep(time.unwrap_or_default());
            stream.write_all(format!("{}done", head(4)).as_bytes())?;
        } else if path.starts_with("/pause/") {
            stream.write_all(format!("{}half", head(8)).as_bytes())?;
            let _nobody_listens = waits.send(());
            thread::sleep(time.unwrap_or_default());
            stream.write_all(b"half")?;
        } else {
            stream.write_all(format!("{}ok", head(2)).as_bytes())?;
        }
    }
    Ok(())
}

fn head(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

/// Reads a request, and returns its path; `None` if the connection has ended.
fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    stream.read_exact(&mut vec![0; length])?;
    Ok(Some(path))
}
