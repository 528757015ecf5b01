//! Raw bytes to a server and back, for clients that no library supports.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A timeout that only failing tests reach.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Returns the next line, without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Returns all data until the server closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A server that does not read everything may reset the connection.
        let _ = self.0.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Sends until the server accepts nothing for this long; returns the number of accepted bytes, at
    /// most `most`.
    pub(crate) fn stuff(&mut self, bytes: &[u8], most: usize, patience: Duration) -> usize {
        self.0.get_ref().set_write_timeout(Some(patience)).unwrap();
        let mut sent = 0;
        while sent < most {
            match self.0.get_mut().write(&bytes[sent % bytes.len()..]) {
                Ok(some) => sent += some,
                Err(_) => break,
            }
        }
        sent
    }
}

/// Encodes a command as an array of bulk strings.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}
