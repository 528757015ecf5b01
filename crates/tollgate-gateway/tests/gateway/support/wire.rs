//! One end of a raw connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::{Message, TEST_TIMEOUT};

/// One end of a raw connection.
pub(crate) struct Wire {
    stream: TcpStream,
    /// Bytes that were read but not consumed.
    ahead: Vec<u8>,
}

impl Wire {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, ahead: Vec::new() }
    }

    /// Clones this end for another thread.
    pub(crate) fn twin(&self) -> Self {
        Self { stream: self.stream.try_clone().unwrap(), ahead: Vec::new() }
    }

    /// Sends bytes; ignores that the other end may be closed.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes and returns whether the other end still accepts them.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Closes the sending side.
    pub(crate) fn stop_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Makes the end of the connection a reset.
    pub(crate) fn reset_on_close(&self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Reads once. `false`: the other end has closed.
    #[track_caller]
    fn read_more(&mut self) -> bool {
        let mut some = [0; 16 * 1024];
        match self.stream.read(&mut some) {
            Ok(0) => false,
            Ok(count) => {
                self.ahead.extend_from_slice(&some[..count]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!(
                    "nothing came within {TEST_TIMEOUT:?}, after {:?}",
                    String::from_utf8_lossy(&self.ahead)
                )
            }
            // A reset counts as closed.
            Err(_) => false,
        }
    }

    /// Reads up to and including the mark; `None` if the connection ends first.
    #[track_caller]
    pub(crate) fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.ahead.windows(mark.len()).position(|it| it == mark) {
                return Some(self.ahead.drain(..at + mark.len()).collect());
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// Reads this number of bytes, or fewer if the connection ends first.
    #[track_caller]
    pub(crate) fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.ahead.len() < count && self.read_more() {}
        let count = count.min(self.ahead.len());
        self.ahead.drain(..count).collect()
    }

    /// Reads to the end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.ahead)
    }

    /// Waits until the other end closes, without receiving more bytes.
    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// Reads the head of the next message.
    #[track_caller]
    pub(crate) fn head(&mut self) -> Option<Message> {
        self.until(b"\r\n\r\n").map(|head| Message::from_head(&head))
    }

    /// Reads the status of the next response; `None` if the connection ends or nothing comes.
    pub(crate) fn try_status(&mut self) -> Option<u16> {
        let mut line = [0; 12];
        self.stream.read_exact(&mut line).ok()?;
        std::str::from_utf8(&line[9..]).ok()?.parse().ok()
    }

    /// Reads the next request with its body.
    #[track_caller]
    pub(crate) fn request(&mut self) -> Option<Message> {
        let mut message = self.head()?;
        if message.frames_its_body() {
            self.read_body(&mut message);
        }
        Some(message)
    }

    /// Reads the next response with its body.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Message {
        let mut message = self.head().expect("an answer, and not the end of the connection");
        let bare = message.status() < 200 || matches!(message.status(), 204 | 304);
        if !bare {
            self.read_rest(&mut message);
        }
        message
    }

    /// Reads the body of a response.
    #[track_caller]
    pub(crate) fn read_rest(&mut self, message: &mut Message) {
        if message.frames_its_body() {
            self.read_body(message);
        } else {
            message.body = self.rest();
        }
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Message {
        self.send(request);
        self.answer()
    }

    /// Sends a `GET` request and reads its response.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.ask(format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n"))
    }

    #[track_caller]
    fn read_body(&mut self, message: &mut Message) {
        if let Some(length) = message.find("content-length") {
            let length = length.parse().unwrap();
            message.body = self.exactly(length);
            message.is_whole = message.body.len() == length;
            return;
        }
        message.is_whole = false;
        loop {
            let Some(size) = self.until(b"\r\n") else { return };
            let size = String::from_utf8(size).unwrap();
            let size = usize::from_str_radix(size.split(';').next().unwrap().trim(), 16).unwrap();
            if size == 0 {
                break;
            }
            let chunk = self.exactly(size);
            let short = chunk.len() < size;
            message.body.extend(chunk);
            if short || self.exactly(2) != b"\r\n" {
                return;
            }
        }
        while let Some(line) = self.until(b"\r\n") {
            if line == b"\r\n" {
                message.is_whole = true;
                return;
            }
            message.trailers.push(Message::header_of(&line));
        }
    }
}
