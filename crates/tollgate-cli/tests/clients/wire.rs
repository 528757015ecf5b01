//! Minimal HTTP for these tests: one request and one response per connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Serves on a free port until the test ends.
pub(crate) fn serve(answer: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                // A client that closes early gets no response, and the test notices.
                if let Ok(request) = read_message(&mut stream) {
                    let _gone = stream.write_all(&answer(request));
                }
            });
        }
    });
    address
}

/// Sends a request, and reads until the peer closes.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&with_close(request))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Adds `Connection: close` to a message.
pub(crate) fn with_close(message: &[u8]) -> Vec<u8> {
    let (head, body) = split(message);
    let kept = head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut changed: Vec<u8> = kept.collect::<Vec<_>>().join("\r\n").into_bytes();
    changed.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    changed.extend_from_slice(body);
    changed
}

/// Returns the value of a header.
pub(crate) fn header<'m>(message: &'m [u8], name: &str) -> Option<&'m str> {
    let lines = split(message).0.split("\r\n").skip(1);
    let mut fields = lines.filter_map(|line| line.split_once(": "));
    fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

pub(crate) fn status(answer: &[u8]) -> u16 {
    let status = split(answer).0.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {:?}", String::from_utf8_lossy(answer)))
}

fn split(message: &[u8]) -> (&str, &[u8]) {
    let end = head_end(message).unwrap_or(message.len());
    let body = message.get(end + 4..).unwrap_or_default();
    (std::str::from_utf8(&message[..end]).unwrap_or_default(), body)
}

fn head_end(message: &[u8]) -> Option<usize> {
    message.windows(4).position(|it| it == b"\r\n\r\n")
}

/// Reads a head and the announced body.
fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut message, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = head_end(&message) {
            assert!(header(&message, "transfer-encoding").is_none(), "a client sends chunks");
            let body = header(&message, "content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
            if message.len() >= end + 4 + body {
                return Ok(message);
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => message.extend_from_slice(&buffer[..count]),
        }
    }
}
