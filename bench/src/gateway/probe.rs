//! Sends a single request and reads status and body, which wrk does not report.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{API_KEY, PATH};

/// Time limit of a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Head and body as received.
    pub text: String,
}

/// Sends a request on a new connection.
pub fn ask(address: SocketAddr) -> io::Result<Answer> {
    ask_for(address, PATH)
}

/// Sends a request for a path on a new connection.
pub fn ask_for(address: SocketAddr, path: &str) -> io::Result<Answer> {
    let mut stream = open(address)?;
    send(&mut stream, path, "close")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Answer::parse(&bytes)
}

/// Checks that there is a response.
pub fn answers(address: SocketAddr) -> io::Result<()> {
    ask(address).map(drop)
}

/// Checks that a connection is accepted.
pub fn accepts(address: SocketAddr) -> io::Result<()> {
    open(address).map(drop)
}

/// Sends a request on an open connection, and does not wait for the response.
pub fn ask_without_reading(stream: &mut TcpStream) -> io::Result<()> {
    send(stream, PATH, "keep-alive")
}

/// Opens a connection.
pub fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends a request on an open connection, and reads until `body` has arrived.
pub fn ask_on(stream: &mut TcpStream, body: &str) -> io::Result<()> {
    send(stream, PATH, "keep-alive")?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        let read = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..read]);
        let answer = Answer::parse(&bytes);
        if answer.as_ref().is_ok_and(|answer| answer.status == 200 && answer.text.contains(body)) {
            return Ok(());
        }
        if read == 0 || bytes.len() > piece.len() {
            return Err(io::Error::other(format!("not the upstream's answer: {answer:?}")));
        }
    }
}

fn send(stream: &mut TcpStream, path: &str, connection: &str) -> io::Result<()> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {API_KEY}\r\nConnection: {connection}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())
}

impl Answer {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not an answer: `{text}`")))?;
        Ok(Self { status, text })
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn the_status_is_read_from_the_first_line() {
        let answer = Answer::parse(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert_eq!(answer.status, 429);
        assert!(Answer::parse(b"").is_err());
        assert!(Answer::parse(b"HTTP/1.1 4").is_err());
    }
}
