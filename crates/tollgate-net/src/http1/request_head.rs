//! The heads of requests that are served without hyper: a subset of HTTP/1.1 that every parser reads in the same way.
//!
//! Everything else is [`ParsedRequest::Unusual`], not an error: hyper reads it and answers. In particular: HTTP/1.0,
//! methods beyond the common ones, targets other than a path of URI characters, bare line feeds, folded lines, `Host`
//! other than once, lengths other than one canonical number, transfer encodings other than one `chunked` without a
//! length, `Connection` options other than `close` and `keep-alive`, and headers that change the connection or the body
//! (`Upgrade`, `Expect`, `TE`, `Trailer`).

use std::mem::MaybeUninit;

use httparse::{Header, Status};

use super::chunked::ChunkedDecoder;
use super::{HeaderSpace, MAX_HEADERS, plain_head};

/// The maximum number of digits of a length. With more digits, the sum could overflow.
const MAX_LENGTH_DIGITS: usize = 18;

/// The result of parsing.
#[derive(Debug)]
pub enum ParsedRequest<'h, 'b> {
    /// The head is complete. It has this number of bytes.
    Complete(RequestHead<'h, 'b>, usize),
    /// The head has not arrived completely.
    Partial,
    /// The head is malformed, or outside of the subset that is served here.
    Unusual,
}

/// The end of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// The body has this number of bytes; zero without `Content-Length`.
    Length(u64),
    /// The body is chunked.
    Chunked,
}

impl RequestBody {
    /// Returns the number of bytes of the body on the wire, if all of it is at the start of `bytes`. A malformed
    /// body is never complete.
    pub(super) fn complete_length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Length(length) => usize::try_from(length).ok().filter(|length| *length <= bytes.len()),
            Self::Chunked => ChunkedDecoder::length_of(bytes),
        }
    }
}

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead<'h, 'b> {
    /// The method, one of the common ones.
    pub method: &'b str,
    /// The path, which starts with `/`.
    pub path: &'b str,
    /// The query, which follows the `?`.
    pub query: Option<&'b str>,
    /// The value of the only `Host` header.
    pub host: &'b str,
    /// The head as received, with the empty line at its end.
    pub bytes: &'b [u8],
    /// The bytes that have arrived after the head.
    pub ahead: &'b [u8],
    /// All headers in order. A surface replaces headers that it removes by `httparse::EMPTY_HEADER`.
    pub headers: &'h mut [Header<'b>],
    /// The end of the body.
    pub body: RequestBody,
    /// The body, if all of it has arrived and it has a length.
    pub whole_body: Option<&'b [u8]>,
    /// Whether the connection ends after the response.
    pub is_last: bool,
    /// Whether the connection ends after a response that is sent before the body was read.
    pub is_last_if_answered: bool,
}

impl<'h, 'b> RequestHead<'h, 'b> {
    /// Parses the head at the start of `bytes`. `max_headers` is at most [`MAX_HEADERS`].
    pub fn parse(
        bytes: &'b [u8],
        space: &'h mut HeaderSpace<'b>,
        max_headers: usize,
    ) -> ParsedRequest<'h, 'b> {
        let HeaderSpace { plain, all } = space;
        match plain_head::parse(bytes, plain, max_headers) {
            Some((head, length)) => ParsedRequest::Complete(head, length),
            None => Self::parse_any(bytes, all, max_headers),
        }
    }

    /// Returns the rest of the head, whose headers are kept elsewhere.
    pub fn without_headers<'n>(self) -> RequestHead<'n, 'b> {
        RequestHead {
            method: self.method,
            path: self.path,
            query: self.query,
            host: self.host,
            bytes: self.bytes,
            ahead: self.ahead,
            headers: &mut [],
            body: self.body,
            whole_body: self.whole_body,
            is_last: self.is_last,
            is_last_if_answered: self.is_last_if_answered,
        }
    }

    /// Parses the head at the start of `bytes`, whatever it looks like.
    pub(super) fn parse_any(
        bytes: &'b [u8],
        space: &'h mut [MaybeUninit<Header<'b>>],
        max_headers: usize,
    ) -> ParsedRequest<'h, 'b> {
        // httparse skips empty lines before a request.
        if !bytes.first().is_some_and(u8::is_ascii_uppercase) {
            return ParsedRequest::Unusual;
        }
        let mut request = httparse::Request::new(&mut []);
        let space = &mut space[..max_headers.min(MAX_HEADERS)];
        let length = match request.parse_with_uninit_headers(bytes, space) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return ParsedRequest::Partial,
            Err(_) => return ParsedRequest::Unusual,
        };
        match Self::of(request, bytes.split_at(length)) {
            Some(head) => ParsedRequest::Complete(head, length),
            None => ParsedRequest::Unusual,
        }
    }

    /// Returns `None` if the head is outside of the subset.
    fn of(request: httparse::Request<'h, 'b>, (bytes, ahead): (&'b [u8], &'b [u8])) -> Option<Self> {
        let httparse::Request { method, path: target, version, headers } = request;
        let (method, target) = (method?, target?);
        if version? != 1 || !is_common(method) || !has_only_crlf(bytes) {
            return None;
        }
        if !target.starts_with('/') || !target.bytes().all(is_target_byte) {
            return None;
        }
        // Targets are short: a plain loop beats a search that is optimized for long texts.
        let (path, query) = match target.bytes().position(|byte| byte == b'?') {
            Some(end) => (&target[..end], Some(&target[end + 1..])),
            None => (target, None),
        };
        let mut framing = Framing::default();
        for header in headers.iter() {
            framing.add(header, |value| std::str::from_utf8(value).ok())?;
        }
        let Framing { host, body, is_last } = framing;
        Some(Self {
            method,
            path,
            query,
            host: host?,
            bytes,
            ahead,
            headers,
            body: body.unwrap_or(RequestBody::Length(0)),
            whole_body: None,
            is_last,
            is_last_if_answered: is_last,
        })
    }
}

/// The headers of a request that concern its connection and the end of its body.
#[derive(Default)]
pub(super) struct Framing<'b> {
    pub(super) host: Option<&'b str>,
    pub(super) body: Option<RequestBody>,
    pub(super) is_last: bool,
}

impl<'b> Framing<'b> {
    /// Reads a header. `to_text` converts its value. `None`: the request is outside of the subset.
    #[inline]
    pub(super) fn add(
        &mut self,
        header: &Header<'b>,
        to_text: impl FnOnce(&'b [u8]) -> Option<&'b str>,
    ) -> Option<()> {
        let is = |known: &str| is_name(header.name, known);
        match header.name.len() {
            4 if is("host") => {
                let value = to_text(header.value)?;
                self.host.replace(value).is_none().then_some(())
            }
            14 if is("content-length") => {
                let length = RequestBody::Length(length(header.value)?);
                self.body.replace(length).is_none().then_some(())
            }
            17 if is("transfer-encoding") => {
                // Beside a length, two parsers may find different ends.
                let is_chunked = header.value.eq_ignore_ascii_case(b"chunked");
                (is_chunked && self.body.replace(RequestBody::Chunked).is_none()).then_some(())
            }
            10 if is("connection") => {
                self.is_last |= closes(header.value)?;
                Some(())
            }
            // Headers that change the connection or the body in a way that is left to hyper.
            2 if is("te") => None,
            6 if is("expect") => None,
            7 if is("upgrade") || is("trailer") => None,
            14 if is("http2-settings") => None,
            _ => Some(()),
        }
    }
}

/// Whether a name of the same length is this one, which is in lower case. No other character of a name becomes a letter,
/// a digit or `-` by this bit.
pub(super) fn is_name(name: &str, known: &str) -> bool {
    name.bytes().zip(known.bytes()).fold(0, |differs, (byte, known)| differs | ((byte | 0x20) ^ known)) == 0
}

fn is_common(method: &str) -> bool {
    matches!(method, "GET" | "POST" | "PUT" | "DELETE" | "PATCH" | "HEAD" | "OPTIONS")
}

/// Whether every line ends in CRLF: httparse also accepts LF.
fn has_only_crlf(head: &[u8]) -> bool {
    // No early end: the loop handles many bytes at once.
    let pairs = head.iter().zip(head.iter().skip(1));
    let bare = pairs.map(|(&before, &byte)| u8::from(byte == b'\n') & u8::from(before != b'\r'));
    bare.fold(0, |any, bare| any | bare) == 0 && head.first() != Some(&b'\n')
}

/// Whether a byte may be in the path or the query of a URI (RFC 3986, 3.3 and 3.4).
pub(super) const fn is_target_byte(byte: u8) -> bool {
    const TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let allowed = b"-._~!$&'()*+,;=:@/?%";
        let mut at = 0;
        while at < 256 {
            #[allow(clippy::cast_possible_truncation, reason = "less than 256")]
            let byte = at as u8;
            table[at] = byte.is_ascii_alphanumeric();
            at += 1;
        }
        at = 0;
        while at < allowed.len() {
            table[allowed[at] as usize] = true;
            at += 1;
        }
        table
    };
    TABLE[byte as usize]
}

/// Returns a length without sign, leading zero or list.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let is_canonical = value == b"0" || value.first().is_some_and(|it| (b'1'..=b'9').contains(it));
    if !is_canonical || value.len() > MAX_LENGTH_DIGITS {
        return None;
    }
    value
        .iter()
        .try_fold(0_u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
}

/// Whether `Connection` contains `close`; `None` if it contains anything but `close` and `keep-alive`.
fn closes(value: &[u8]) -> Option<bool> {
    let mut closes = false;
    for option in value.split(|it| *it == b',').map(<[u8]>::trim_ascii) {
        if option.eq_ignore_ascii_case(b"close") {
            closes = true;
        } else if !option.eq_ignore_ascii_case(b"keep-alive") {
            return None;
        }
    }
    Some(closes)
}

#[cfg(test)]
mod tests {
    use super::super::header_space;
    use super::*;

    #[track_caller]
    fn check(head: &str, expected: &str) {
        let mut space = header_space();
        let found = match RequestHead::parse(head.as_bytes(), &mut space, MAX_HEADERS) {
            ParsedRequest::Complete(head, length) => {
                format!(
                    "{} {} {:?} {} {:?} {} {length}",
                    head.method, head.path, head.query, head.host, head.body, head.is_last
                )
            }
            ParsedRequest::Partial => "partial".to_owned(),
            ParsedRequest::Unusual => "unusual".to_owned(),
        };
        assert_eq!(found, expected, "{head:?}");
    }

    #[test]
    fn plain_requests_are_served_here() {
        check("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "GET / None a Length(0) false 27");
        check(
            "GET /a?b=%20?c HTTP/1.1\r\nHost: a:80\r\nConnection: Keep-Alive\r\n\r\nrest",
            "GET /a Some(\"b=%20?c\") a:80 Length(0) false 63",
        );
        check(
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 12\r\nconnection: Close\r\n\r\n",
            "POST / None a Length(12) true 67",
        );
        check(
            "POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n",
            "POST / None a Chunked false 56",
        );
        check("GET / HTTP/1.1\r\nhost: a\r\n", "partial");
        check("GE", "partial");
    }

    #[test]
    fn everything_else_is_left_to_hyper() {
        for line in [
            "host: b",
            "content-length: 1\r\ncontent-length: 1",
            "content-length: 01",
            "content-length: +1",
            "content-length: 1, 1",
            "content-length: ",
            "content-length: 9999999999999999999",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 5",
            "content-length: 5\r\ntransfer-encoding: chunked",
            "content-length: 0\r\ntransfer-encoding: chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: chunked;q=1",
            "transfer-encoding: \"chunked\"",
            "transfer-encoding: xchunked",
            "transfer-encoding: identity",
            "transfer-encoding:",
            "transfer-encoding:\x0bchunked",
            "connection: upgrade",
            "connection: close, x-private",
            "connection:",
            "upgrade: websocket",
            "expect: 100-continue",
            "te: trailers",
            "trailer: x",
            "http2-settings: x",
            "x: a\r\n b",
            "x: a\nb: c",
            "x : a",
            "x: a\0b",
        ] {
            check(&format!("GET / HTTP/1.1\r\nhost: a\r\n{line}\r\n\r\n"), "unusual");
        }
        for start in [
            "GET / HTTP/1.0",
            "GET http://a/ HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "CONNECT a:1 HTTP/1.1",
            "BREW / HTTP/1.1",
            "get / HTTP/1.1",
            "\r\nGET / HTTP/1.1",
            "GET  / HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET /{a} HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "PRI * HTTP/2.0",
            "GET / HTTP/1.1\n",
        ] {
            check(&format!("{start}\r\nhost: a\r\n\r\n"), "unusual");
        }
        check("GET / HTTP/1.1\r\n\r\n", "unusual");
        check("GET / HTTP/1.1\nhost: a\n\n", "unusual");
    }
}
