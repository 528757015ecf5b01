//! Refuses requests with ambiguous framing before hyper reads them.
//!
//! hyper accepts heads and bodies that other parsers refuse or end elsewhere: lines that end in LF, a length beside
//! chunks, several lengths, lengths with leading zeros, a fragment in the target, spaces after the size of a chunk, and
//! LF within trailers. A proxy in front of the server could find another request in such bytes.
//!
//! The guard follows the bytes that hyper is about to read: heads, bodies with a length, and chunked bodies. It keeps
//! none of them. A mistake in a head is replaced by NUL, so that hyper answers 400. A body ends before its mistake, and
//! the next read fails. Bytes after a request for an upgrade wait for its response, which tells whether they are HTTP.
//!
//! Not here: the requests that are served without hyper. `request_head` is stricter.
//!
//! Invariant: a request that passes ends at the same byte for the guard and for hyper.
//! Tested by `tests/gateway/differential.rs` of `tollgate-gateway`, with seeded random requests.

use std::io;

use super::chunked::ChunkedDecoder;
use super::request_head::length;

/// The length of `transfer-encoding`, the longest name that matters.
const MAX_NAME_BYTES: usize = 17;

/// More than the digits of a length. A longer value is not a length.
const MAX_VALUE_BYTES: usize = 20;

/// Follows the requests of one connection.
#[derive(Debug)]
pub(crate) struct FramingGuard {
    state: State,
    /// The byte before the next one, within a head.
    previous: u8,
    line: FramingLine,
    body: Option<Body>,
    wants_upgrade: bool,
}

#[derive(Debug)]
enum State {
    /// Before a request, or in an empty line before it.
    Start,
    RequestLine,
    /// At the start of a header line.
    LineStart,
    Name,
    /// In the value of a header that tells the end of the body.
    Value,
    /// In the value of any other header.
    OtherValue,
    /// After the carriage return of the last, empty line of a head.
    HeadEnd,
    Body(Body),
    /// After a request for an upgrade.
    AwaitsUpgrade,
    Failed,
}

/// The rest of a body.
#[derive(Clone, Copy, Debug)]
enum Body {
    Length(u64),
    Chunked(ChunkedDecoder),
}

/// The start of a header line: its name in lower case, and its value without the spaces around it.
#[derive(Debug, Default)]
struct FramingLine {
    name: [u8; MAX_NAME_BYTES],
    name_length: usize,
    value: [u8; MAX_VALUE_BYTES],
    value_length: usize,
    /// Whether a space, or the end of the line, follows the value. More text after it is a mistake.
    has_space: bool,
    /// Whether the value is too long, or contains a space.
    is_mistaken: bool,
}

impl Default for FramingGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl FramingGuard {
    /// Creates a guard at the start of a request.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            previous: 0,
            line: FramingLine::default(),
            body: None,
            wants_upgrade: false,
        }
    }

    /// Checks the next bytes. Returns how many of them hyper may read. These are all bytes, unless there is a mistake or
    /// a request for an upgrade ends before.
    pub(crate) fn check(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let used = match &mut self.state {
                State::Failed | State::AwaitsUpgrade => return at,
                State::Body(body) => body.take(rest),
                State::OtherValue => Some(self.skip_value(rest)),
                _ => self.step(rest[0]).then_some(1),
            };
            match (used, &self.state) {
                (Some(used), _) => at += used,
                (None, State::Body(_)) => self.state = State::Failed,
                (None, _) => {
                    bytes[at] = 0;
                    self.state = State::Failed;
                    return at + 1;
                }
            }
            if let State::Body(body) = &self.state
                && body.is_done()
            {
                let wants_upgrade = std::mem::take(&mut self.wants_upgrade);
                self.state = if wants_upgrade { State::AwaitsUpgrade } else { State::Start };
            }
        }
        at
    }

    /// Whether the next bytes wait for the response to a request for an upgrade.
    pub(crate) fn awaits_upgrade(&self) -> bool {
        matches!(self.state, State::AwaitsUpgrade)
    }

    /// Continues with the next request: an upgrade was refused.
    pub(crate) fn resume(&mut self) {
        if self.awaits_upgrade() {
            self.state = State::Start;
        }
    }

    /// Returns the error of a read after a mistake.
    pub(crate) fn error(&self) -> Option<io::Error> {
        matches!(self.state, State::Failed)
            .then(|| io::Error::new(io::ErrorKind::InvalidData, "the framing of a request is ambiguous"))
    }

    /// Skips the rest of a value, without the line feed at its end. Returns the number of bytes.
    fn skip_value(&mut self, rest: &[u8]) -> usize {
        let count = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        if let Some(last) = count.checked_sub(1) {
            self.previous = rest[last];
        }
        if count == 0 {
            // The line feed is next.
            self.state = State::Value;
            self.line = FramingLine::default();
        }
        count
    }

    /// Takes a byte of a head. Returns whether it is valid here.
    fn step(&mut self, byte: u8) -> bool {
        let previous = std::mem::replace(&mut self.previous, byte);
        // Lines end in CRLF, and neither byte is anywhere else.
        if (byte == b'\n') != (previous == b'\r') {
            return false;
        }
        let next = match (&self.state, byte) {
            // A fragment is no part of a target: hyper would drop it, and other parsers would not.
            (State::RequestLine, b'#')
            // A folded line, and a line without a colon.
            | (State::LineStart, b' ' | b'\t')
            | (State::Name, b'\r' | b'\n')
            | (State::OtherValue | State::Body(_) | State::AwaitsUpgrade | State::Failed, _) => return false,
            (State::Start, b'\r' | b'\n') => State::Start,
            (State::RequestLine, b'\n') => State::LineStart,
            (State::Start | State::RequestLine, _) => State::RequestLine,
            (State::LineStart, b'\r') => State::HeadEnd,
            (State::LineStart, _) => {
                self.line = FramingLine::default();
                self.line.push_name(byte)
            }
            (State::Name, b':') if self.line.is_framing() => State::Value,
            (State::Name, b':') => {
                self.wants_upgrade |= self.line.name() == b"upgrade";
                State::OtherValue
            }
            (State::Name, _) => self.line.push_name(byte),
            (State::Value, b'\n') => return self.end_line(),
            (State::Value, _) => {
                self.line.push_value(byte);
                State::Value
            }
            (State::HeadEnd, _) => {
                self.previous = 0;
                State::Body(self.body.take().unwrap_or(Body::Length(0)))
            }
        };
        self.state = next;
        true
    }

    /// Reads a complete header line. Returns whether it is valid after the lines before.
    fn end_line(&mut self) -> bool {
        self.state = State::LineStart;
        let body = match self.line.name() {
            b"content-length" => match self.line.value().and_then(length) {
                Some(length) => Body::Length(length),
                None => return false,
            },
            // hyper or the surface refuses a coding other than `chunked`.
            b"transfer-encoding" => Body::Chunked(ChunkedDecoder::new()),
            _ => return true,
        };
        self.body.replace(body).is_none()
    }
}

impl FramingLine {
    /// Appends a byte of the name. Returns the next state.
    fn push_name(&mut self, byte: u8) -> State {
        // A longer name is none of the known ones.
        if let Some(place) = self.name.get_mut(self.name_length) {
            *place = byte.to_ascii_lowercase();
        }
        self.name_length += 1;
        State::Name
    }

    fn name(&self) -> &[u8] {
        self.name.get(..self.name_length).unwrap_or_default()
    }

    fn is_framing(&self) -> bool {
        matches!(self.name(), b"content-length" | b"transfer-encoding")
    }

    fn push_value(&mut self, byte: u8) {
        if matches!(byte, b' ' | b'\t' | b'\r') {
            self.has_space |= self.value_length > 0;
            return;
        }
        match self.value.get_mut(self.value_length) {
            Some(place) if !self.has_space => *place = byte,
            _ => self.is_mistaken = true,
        }
        self.value_length += 1;
    }

    /// Returns the value; `None` if it is too long or contains a space.
    fn value(&self) -> Option<&[u8]> {
        self.value.get(..self.value_length).filter(|_| !self.is_mistaken)
    }
}

impl Body {
    /// Takes bytes of the body. Returns their number; `None` before a mistake.
    fn take(&mut self, rest: &[u8]) -> Option<usize> {
        match self {
            Self::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                *left -= count as u64;
                Some(count)
            }
            Self::Chunked(decoder) => decoder.decode(rest).ok().map(|(used, _)| used),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.is_done(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that pass, if they arrive in pieces of `size` bytes.
    fn passed(sent: &[u8], size: usize) -> Vec<u8> {
        let (mut guard, mut passed) = (FramingGuard::new(), Vec::new());
        for piece in sent.chunks(size) {
            let mut piece = piece.to_vec();
            let count = guard.check(&mut piece);
            passed.extend_from_slice(&piece[..count]);
            assert_eq!(count < piece.len() || piece.contains(&0), guard.error().is_some());
        }
        passed
    }

    #[track_caller]
    fn check(sent: &str, expected: &[u8]) {
        for size in 1..=sent.len() {
            let found = passed(sent.as_bytes(), size);
            // A larger piece of a chunked body ends at an earlier byte.
            let is_same =
                if sent.contains("chunked") { expected.starts_with(&found) } else { found == expected };
            let is_cut = found.len() == sent.len() && !found.contains(&0);
            assert!(is_same, "{size}: {sent:?} became {:?}", String::from_utf8_lossy(&found));
            assert_eq!(is_cut, expected == sent.as_bytes(), "{size}: {sent:?}");
        }
    }

    #[test]
    fn unambiguous_requests_pass_unchanged() {
        for sent in [
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
            "\r\n\r\nBREW * HTTP/1.1\r\nx-a: b: c#d\r\nempty:\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: \t 12 \r\n\r\nGET /\n\n#\r\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\n\n#\r\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 0\r\ncontent-lengths: 1\r\nx-transfer-encoding: y\r\n\r\nGET",
        ] {
            check(sent, sent.as_bytes());
        }
    }

    #[test]
    fn a_mistake_in_a_head_is_replaced_and_ends_the_input() {
        for (before, rest) in [
            ("", "\nGET / HTTP/1.1\r\n\r\n"),
            ("GET / HTTP/1.1", "\nhost: a\n\n"),
            ("GET /a", "#b HTTP/1.1\r\n\r\n"),
            ("GET / HTTP/1.1\r\nhost: a", "\n\r\n"),
            ("GET / HTTP/1.1\r\nx: y\r\n", " z\r\n\r\n"),
            ("GET / HTTP/1.1\r\nhost: a\r\n", "\n"),
            ("GET / HTTP/1.1\r\nhost: a\r\n\r", "x"),
            ("POST / HTTP/1.1\r\ncontent-length: 01\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: 1 1\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: 1, 1\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: +1\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length:\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: 111111111111111111111111\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: 1\r\nx: y\r\nContent-Length: 1\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: 1\r\nTransfer-Encoding: x\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ntransfer-encoding: x\r\ncontent-length: 1\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ntransfer-encoding: x\r\ntransfer-encoding: x\r", "\n\r\na"),
            ("POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\naGET / HTTP/1.1", "\n\r\n"),
        ] {
            check(&format!("{before}{rest}"), &[before.as_bytes(), b"\0"].concat());
        }
    }

    #[test]
    fn bytes_after_a_request_for_an_upgrade_wait() {
        let request = b"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n";
        let (mut guard, mut sent) = (FramingGuard::new(), [&request[..], b"\n\0"].concat());
        assert_eq!(guard.check(&mut sent), request.len());
        assert!(guard.awaits_upgrade() && guard.error().is_none());
        assert_eq!(guard.check(&mut sent), 0);
        guard.resume();
        assert_eq!(guard.check(&mut sent[request.len()..]), 1, "not an empty line");
        assert!(guard.error().is_some());
    }

    #[test]
    fn a_chunked_body_ends_before_its_mistake() {
        let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        for (before, rest) in [
            ("3", " \r\nabc\r\n0\r\n\r\n"),
            ("3", "\nabc\r\n0\r\n\r\n"),
            ("3\r\nabc\r\n0\r\nx: y", "\n\nGET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            ("3\r\nabc", "d\r\n0\r\n\r\n"),
        ] {
            check(&format!("{head}{before}{rest}"), format!("{head}{before}").as_bytes());
        }
    }
}
