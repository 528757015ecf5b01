//! Minimal HTTP messages for these tests: one request and one response per connection.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use serde_json::Value;
use tokio::net::TcpSocket;

/// The default client address.
pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Another client of the same machine.
pub(crate) const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A request or a response.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The line before the headers.
    pub(crate) first: String,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Reads one message; `None` if the peer closes before its end.
    pub(crate) fn read(stream: &mut TcpStream) -> Option<Self> {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        loop {
            if let Some(message) = Self::parse(&bytes) {
                return Some(message);
            }
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                _ => return None,
            }
        }
    }

    /// Parses a message, once its head and the announced body are complete.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut message = Self::head(bytes)?;
        let length = message.header("content-length").map_or(0, |it| it.parse().unwrap());
        (message.body.len() >= length).then(|| {
            message.body.truncate(length);
            message
        })
    }

    /// Parses a head, with the rest as the body.
    fn head(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n").map(str::to_owned);
        let first = lines.next()?;
        let fields = lines.filter_map(|line| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        let fields: Vec<_> = fields.collect();
        let chunked = fields.iter().any(|(name, _)| name == "transfer-encoding");
        assert!(!chunked, "these tests know no chunks: {head}");
        Some(Self { first, fields, body: bytes[end + 4..].to_vec() })
    }

    /// Returns all values of a header.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let values = self.fields.iter().filter(|(known, _)| known == name);
        values.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the value of a header that occurs at most once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let values = self.headers(name);
        assert!(values.len() < 2, "{name} comes twice: {self:?}");
        values.first().copied()
    }

    /// Returns the status of a response.
    #[track_caller]
    pub(crate) fn status(&self) -> u16 {
        let status = self.first.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status in {self:?}"))
    }

    /// Returns the method and target of a request: `GET /search`.
    pub(crate) fn request(&self) -> &str {
        self.first.trim_end_matches(" HTTP/1.1").trim_end_matches(" HTTP/1.0")
    }

    /// Returns the body of a response as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A request to send.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) from: IpAddr,
    /// The method and target: `GET /search`.
    pub(crate) request: &'a str,
    /// Further headers, each with its line end.
    pub(crate) headers: &'a str,
    pub(crate) body: &'a [u8],
}

impl Ask<'_> {
    /// Returns a minimal request.
    pub(crate) const fn new(request: &str) -> Ask<'_> {
        Ask { from: CLIENT, request, headers: "", body: b"" }
    }

    /// Sends the request, and waits for the response.
    #[track_caller]
    pub(crate) fn send(self, to: SocketAddr) -> Message {
        let mut stream = connect(self.from, to);
        let Self { request, headers, body, .. } = self;
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{request} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{headers}{length}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        // Reads to the end and not to the announced length, because a response to HEAD announces a
        // body that it does not have.
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Message::head(&answer).unwrap_or_else(|| panic!("no answer to {request}"))
    }
}

/// Connects from a given source address, which the standard library does not support.
fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}
