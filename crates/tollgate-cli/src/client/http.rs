//! A minimal blocking HTTP/1.1 client: one request and one response per connection.
//!
//! It has no redirects and no pool. Responses are bounded in size and time, so that a server that does
//! not speak HTTP causes an error and not a hang.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tollgate::{Clock, Span, SystemClock, Timestamp};
use tollgate_daemon::Failure;
use tollgate_daemon::io_error::{Attempt, reason};

use super::server::Question;
use super::tls::{self, Tls};
use super::url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_BODY_BYTES: usize = 8 << 20;

/// A status and a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// The reason why there is no response.
#[derive(Debug)]
enum RequestError {
    Io(io::Error),
    Odd(&'static str),
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Sends a request, over TLS if configured, and waits at most `patience` for the response.
pub(super) fn ask(
    url: &Url,
    tls: Option<&Tls>,
    token: Option<&str>,
    question: &Question,
    patience: Span,
) -> Result<Answer, Failure> {
    let stream = connect(url)?;
    let request = request(url, token, question);
    let answer = match tls {
        None => exchange(&mut Wire::new(stream, patience), &request),
        Some(tls) => exchange(&mut Wire::new(tls.wrap(url, stream)?, patience), &request),
    };
    let help = "is this the API of a Tollgate? `--api URL` names another, with https:// if it speaks TLS";
    answer.map_err(|trouble| match trouble {
        RequestError::Io(error) if is_timeout(&error) => {
            Failure::new(format_args!("{url} gave no answer within {} seconds", patience.as_secs_ceil()))
        }
        RequestError::Io(error) => tls::explain(url, &error).unwrap_or_else(|| {
            Failure::with_help(
                format_args!("{url} gave no answer: {}", reason(&error, Attempt::Connect)),
                help,
            )
        }),
        RequestError::Odd(what) => {
            Failure::with_help(format_args!("{url} gave an answer that is not HTTP: {what}"), help)
        }
    })
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn connect(url: &Url) -> Result<TcpStream, Failure> {
    let unreachable = |error: &io::Error| {
        let why = reason(error, Attempt::Connect);
        Failure::with_help(
            format_args!("cannot reach a Tollgate at {url}: {why}"),
            "start one with `tollgate serve`, or name another with `--api URL` or TOLLGATE_API",
        )
    };
    let addresses = url.authority.to_socket_addrs().map_err(|error| unreachable(&error))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(&last))
}

fn request(url: &Url, token: Option<&str>, question: &Question) -> String {
    let Url { authority, prefix, .. } = url;
    let Question { method, path, body, .. } = question;
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let body = body.as_ref().map(ToString::to_string).unwrap_or_default();
    let content = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    };
    format!(
        "{method} {prefix}{path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: tollgate/{}\r\nAccept: application/json\r\n\
         {content}Connection: close\r\n{authorization}\r\n{body}",
        env!("CARGO_PKG_VERSION"),
    )
}

fn exchange<S: Deadline + Read + Write>(wire: &mut Wire<S>, request: &str) -> Result<Answer, RequestError> {
    wire.hurry()?;
    wire.stream.write_all(request.as_bytes())?;
    wire.stream.flush()?;
    loop {
        let head = Head::read(wire)?;
        // An interim response is followed by the final one.
        if !(100..=199).contains(&head.status) {
            let body = match head.body {
                Framing::Length(0) => Vec::new(),
                Framing::Length(length) => wire.exactly(length)?,
                Framing::Chunked => chunks(wire)?,
                Framing::UntilClosed => wire.rest()?,
            };
            return Ok(Answer { status: head.status, body });
        }
    }
}

/// The framing of a body (RFC 9112, section 6).
#[derive(Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

struct Head {
    status: u16,
    body: Framing,
}

impl Head {
    fn read<S: Deadline + Read>(wire: &mut Wire<S>) -> Result<Self, RequestError> {
        let mut left = MAX_HEAD_BYTES;
        let first = wire.line(&mut left)?;
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.ok_or(RequestError::Odd("no status line"))?;
        let mut body = if matches!(status, 204 | 304) { Framing::Length(0) } else { Framing::UntilClosed };
        loop {
            let line = wire.line(&mut left)?;
            if line.is_empty() {
                return Ok(Self { status, body });
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(RequestError::Odd("a bad header"));
            };
            if name.eq_ignore_ascii_case("transfer-encoding")
                && value.to_ascii_lowercase().contains("chunked")
            {
                body = Framing::Chunked;
            } else if name.eq_ignore_ascii_case("content-length") && body == Framing::UntilClosed {
                let length = value.trim().parse().map_err(|_| RequestError::Odd("a bad length"))?;
                body = Framing::Length(length);
            }
        }
    }
}

fn chunks<S: Deadline + Read>(wire: &mut Wire<S>) -> Result<Vec<u8>, RequestError> {
    let mut body = Vec::new();
    loop {
        let mut left = MAX_HEAD_BYTES;
        let size = wire.line(&mut left)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| RequestError::Odd("a bad chunk"))?;
        if size == 0 {
            return Ok(body);
        }
        if size > MAX_BODY_BYTES - body.len() {
            return Err(RequestError::Odd("it is too large"));
        }
        body.extend(wire.exactly(size)?);
        if !wire.line(&mut left)?.is_empty() {
            return Err(RequestError::Odd("a bad chunk"));
        }
    }
}

/// A stream with a read timeout.
trait Deadline {
    fn give_up_after(&self, patience: Duration) -> io::Result<()>;
}

impl Deadline for TcpStream {
    fn give_up_after(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Deadline for tls::Stream {
    fn give_up_after(&self, patience: Duration) -> io::Result<()> {
        self.sock.give_up_after(patience)
    }
}

/// A buffered reader of the connection.
struct Wire<S> {
    stream: S,
    clock: SystemClock,
    end: Timestamp,
    ahead: Vec<u8>,
    at: usize,
}

impl<S: Deadline> Wire<S> {
    fn new(stream: S, patience: Span) -> Self {
        let clock = SystemClock::new();
        Self { end: clock.now() + patience, clock, stream, ahead: Vec::new(), at: 0 }
    }

    /// Limits the next read to the remaining time.
    fn hurry(&self) -> io::Result<()> {
        let left = self.end.since(self.clock.now());
        if left == Span::ZERO {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.give_up_after(Duration::from_micros(left.as_micros()))
    }
}

impl<S: Deadline + Read> Wire<S> {
    /// Reads more data; false at the end.
    fn more(&mut self) -> io::Result<bool> {
        self.hurry()?;
        self.ahead.drain(..self.at);
        self.at = 0;
        let mut block = [0; 8192];
        let count = self.stream.read(&mut block)?;
        self.ahead.extend_from_slice(&block[..count]);
        Ok(count > 0)
    }

    fn line(&mut self, left: &mut usize) -> Result<String, RequestError> {
        loop {
            let unread = &self.ahead[self.at..];
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                *left = left.checked_sub(end).ok_or(RequestError::Odd("its head is too large"))?;
                let line = String::from_utf8_lossy(&unread[..end]).trim_end_matches('\r').to_owned();
                self.at += end + 1;
                return Ok(line);
            }
            if unread.len() > *left {
                return Err(RequestError::Odd("its head is too large"));
            }
            if !self.more()? {
                return Err(RequestError::Odd("it ends too early"));
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, RequestError> {
        if length > MAX_BODY_BYTES {
            return Err(RequestError::Odd("it is too large"));
        }
        while self.ahead.len() - self.at < length {
            if !self.more()? {
                return Err(RequestError::Odd("it ends too early"));
            }
        }
        let body = self.ahead[self.at..self.at + length].to_vec();
        self.at += length;
        Ok(body)
    }

    fn rest(&mut self) -> Result<Vec<u8>, RequestError> {
        while self.more()? {
            if self.ahead.len() - self.at > MAX_BODY_BYTES {
                return Err(RequestError::Odd("it is too large"));
            }
        }
        Ok(self.ahead.split_off(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with a fixed response, read one byte at a time.
    struct ScriptedServer<'s>(&'s [u8]);

    impl Read for ScriptedServer<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    impl Write for ScriptedServer<'_> {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Deadline for ScriptedServer<'_> {
        fn give_up_after(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn answer(said: &str) -> Result<(u16, String), String> {
        let mut wire = Wire::new(ScriptedServer(said.as_bytes()), Span::from_secs(30));
        match exchange(&mut wire, "") {
            Ok(Answer { status, body }) => Ok((status, String::from_utf8(body).unwrap())),
            Err(RequestError::Odd(what)) => Err(what.to_owned()),
            Err(RequestError::Io(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn every_framing_of_a_body_is_supported() {
        for (said, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}trailing", 200, "{}"),
            ("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end"),
            (
                "HTTP/1.1 429 \r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
                429,
                "abc",
            ),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        ] {
            assert_eq!(answer(said), Ok((status, body.to_owned())), "{said}");
        }
    }

    #[test]
    fn a_response_that_is_not_http_is_an_error() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEAD_BYTES));
        for (said, expected) in [
            ("", "it ends too early"),
            ("SSH-2.0-OpenSSH_9.2\r\n", "no status line"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "it ends too early"),
            ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc", "a bad length"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nabc", "it is too large"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "it is too large"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "a bad chunk"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "a bad chunk"),
            ("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "a bad header"),
            (&long, "its head is too large"),
        ] {
            assert_eq!(answer(said), Err(expected.to_owned()), "{said:.80}");
        }
    }
}
