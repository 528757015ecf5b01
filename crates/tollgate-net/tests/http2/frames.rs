//! A client that writes frames itself.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const PROTOCOL_ERROR: u8 = 1;
pub(crate) const FLOW_CONTROL_ERROR: u8 = 3;
pub(crate) const STREAM_CLOSED: u8 = 5;
pub(crate) const FRAME_SIZE_ERROR: u8 = 6;
pub(crate) const REFUSED_STREAM: u8 = 7;
pub(crate) const COMPRESSION_ERROR: u8 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u8 = 11;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The time after which a test has failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header block of a call, without a table.
pub(crate) fn block(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    // :method POST, :scheme http, :path, content-type application/grpc
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x0f\x10\x10application/grpc");
    for (name, value) in more {
        block.extend_from_slice(&[0, u8::try_from(name.len()).unwrap()]);
        block.extend_from_slice(name.as_bytes());
        block.push(u8::try_from(value.len()).unwrap());
        block.extend_from_slice(value.as_bytes());
    }
    block
}

pub(crate) struct RawClient {
    socket: TcpStream,
    received: Vec<u8>,
}

impl RawClient {
    /// Connects without sending anything.
    pub(crate) fn silent(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self { socket, received: Vec::new() }
    }

    /// Connects, and sends the preface and settings.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut client = Self::silent(address);
        client.send(PREFACE);
        client.send(&frame(SETTINGS, 0, 0, &[]));
        client
    }

    /// Sends bytes. A server that has disconnected does not matter: its last frames are read.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    pub(crate) fn preface(&mut self) {
        self.send(PREFACE);
    }

    /// Sends a call with its message in one frame.
    pub(crate) fn call(&mut self, stream: u32, path: &str, message: &[u8]) {
        let call = [frame(HEADERS, 4, stream, &block(path, &[])), frame(DATA, 1, stream, message)];
        self.send(&call.concat());
    }

    /// Returns the next frame; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<RawFrame> {
        loop {
            if let [a, b, c, kind, flags, s0, s1, s2, s3, rest @ ..] = &self.received[..] {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let stream = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
                    let found = RawFrame { kind: *kind, flags: *flags, stream, payload: payload.to_vec() };
                    self.received.drain(..9 + length);
                    return Some(found);
                }
            }
            let mut some = [0; 4096];
            match self.socket.read(&mut some) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the next frame of this kind.
    pub(crate) fn until(&mut self, kind: u8) -> RawFrame {
        loop {
            let found = self.next().unwrap_or_else(|| panic!("the connection ended before a frame {kind}"));
            if found.kind == kind {
                return found;
            }
        }
    }

    /// Reads the response of a stream: its head, its message, and its trailers, if there are any.
    pub(crate) fn response(&mut self, stream: u32) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let (mut heads, mut message) = (Vec::new(), Vec::new());
        loop {
            let found = self.next().expect("a response");
            if found.stream != stream {
                continue;
            }
            match found.kind {
                HEADERS => heads.push(found.payload),
                DATA => message.extend_from_slice(&found.payload),
                RST_STREAM => panic!("reset: {:?}", found.payload),
                _ => continue,
            }
            if found.flags & 1 != 0 {
                let trailers = if heads.len() > 1 { heads.pop().unwrap() } else { Vec::new() };
                return (heads.pop().unwrap(), message, trailers);
            }
        }
    }

    /// Reads bytes of any protocol until the server ends the connection.
    pub(crate) fn end(&mut self) {
        let mut some = [0; 4096];
        loop {
            match self.socket.read(&mut some) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
    }

    /// Reads until the server ends the connection, and returns its reason.
    pub(crate) fn error(&mut self) -> u8 {
        let last = self.until(GOAWAY);
        assert!(self.next().is_none_or(|it| it.kind == GOAWAY), "frames after the last one");
        last.payload[7]
    }
}
