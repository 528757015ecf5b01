//! The heads of responses of upstreams, and where their bodies end (RFC 9112, 6.3).
//!
//! The caller writes every header again, so a line feed without a carriage return is harmless. A response whose end two
//! parsers may find at different places is an error.

use httparse::{Header, Status};

use super::request_head::{is_name, length};
use super::{HeaderSpace, MAX_HEADERS};

/// The maximum number of headers of a response.
pub const MAX_RESPONSE_HEADERS: usize = MAX_HEADERS;

/// The reason why a response cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseHeadError {
    /// The head is not HTTP.
    #[error("the response is malformed")]
    Malformed,
    /// The body has a transfer encoding other than `chunked`, several lengths or an invalid one.
    #[error("the response has no clear end")]
    Framing,
    /// The upstream switches protocols without being asked to.
    #[error("the upstream switches protocols without being asked")]
    Upgrade,
}

/// Where the body of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// There is no body.
    None,
    /// The body has this number of bytes.
    Length(u64),
    /// The body is chunked.
    Chunked,
    /// The body ends when the upstream closes the connection.
    UntilClose,
}

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead<'h, 'b> {
    /// The status, at least 100.
    pub status: u16,
    /// The reason phrase as received.
    pub reason: &'b str,
    /// All headers in order.
    pub headers: &'h [Header<'b>],
    /// Where the body ends.
    pub body: ResponseBody,
    /// Whether the connection can be used again after the body.
    pub is_reusable: bool,
}

impl<'h, 'b> ResponseHead<'h, 'b> {
    /// Parses the head at the start of `bytes`, and returns it with its length. `None`: it has not arrived completely.
    pub fn parse(
        bytes: &'b [u8],
        space: &'h mut HeaderSpace<'b>,
        to_head_request: bool,
    ) -> Result<Option<(Self, usize)>, ResponseHeadError> {
        let mut response = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let length = match parser.parse_response_with_uninit_headers(&mut response, bytes, &mut space.all) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(ResponseHeadError::Malformed),
        };
        Self::of(response, to_head_request).map(|head| Some((head, length)))
    }

    fn of(response: httparse::Response<'h, 'b>, to_head_request: bool) -> Result<Self, ResponseHeadError> {
        let httparse::Response { version, code, reason, headers } = response;
        let (Some(version), Some(status)) = (version, code) else {
            return Err(ResponseHeadError::Malformed);
        };
        match status {
            101 => return Err(ResponseHeadError::Upgrade),
            100.. => {}
            _ => return Err(ResponseHeadError::Malformed),
        }
        let (mut body_length, mut is_chunked, mut is_reusable) = (None, false, version == 1);
        for header in headers.iter() {
            let is = |known: &str| is_name(header.name, known);
            match header.name.len() {
                10 if is("connection") => is_reusable &= !has_option(header.value, b"close"),
                14 if is("content-length") => {
                    let length = length(header.value).ok_or(ResponseHeadError::Framing)?;
                    if body_length.replace(length).is_some_and(|earlier| earlier != length) {
                        return Err(ResponseHeadError::Framing);
                    }
                }
                17 if is("transfer-encoding") => {
                    if is_chunked || version == 0 || !header.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(ResponseHeadError::Framing);
                    }
                    is_chunked = true;
                }
                _ => {}
            }
        }
        let body = match (body_length, is_chunked) {
            _ if to_head_request || matches!(status, 100..200 | 204 | 304) => ResponseBody::None,
            (length, true) => {
                // The encoding takes precedence, but another parser may disagree.
                is_reusable &= length.is_none();
                ResponseBody::Chunked
            }
            (Some(0), false) => ResponseBody::None,
            (Some(length), false) => ResponseBody::Length(length),
            (None, false) => ResponseBody::UntilClose,
        };
        is_reusable &= body != ResponseBody::UntilClose;
        Ok(Self { status, reason: reason.unwrap_or_default(), headers, body, is_reusable })
    }
}

/// Whether a list contains an option, in any case.
fn has_option(list: &[u8], option: &[u8]) -> bool {
    list.split(|it| *it == b',').any(|it| it.trim_ascii().eq_ignore_ascii_case(option))
}

#[cfg(test)]
mod tests {
    use super::super::header_space;
    use super::*;

    #[track_caller]
    fn check(head: &str, to_head_request: bool, expected: Result<(ResponseBody, bool), ResponseHeadError>) {
        let mut space = header_space();
        let found = ResponseHead::parse(head.as_bytes(), &mut space, to_head_request);
        let found = found.map(|it| it.map(|(head, _)| (head.body, head.is_reusable)));
        assert_eq!(found, expected.map(Some), "{head:?}");
    }

    #[test]
    fn the_end_of_a_response_is_clear_or_an_error() {
        use ResponseBody::{Chunked, Length, None, UntilClose};
        use ResponseHeadError::{Framing, Malformed, Upgrade};
        let ok = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        check(&ok("content-length: 5\r\n"), false, Ok((Length(5), true)));
        check(&ok("content-length: 5\r\ncontent-length: 5\r\n"), false, Ok((Length(5), true)));
        check(&ok("content-length: 5\r\nConnection: Close\r\n"), false, Ok((Length(5), false)));
        check(&ok("content-length: 0\r\n"), false, Ok((None, true)));
        check(&ok("content-length: 5\r\n"), true, Ok((None, true)));
        check(&ok("Transfer-Encoding: Chunked\r\n"), false, Ok((Chunked, true)));
        check(&ok("transfer-encoding: chunked\r\ncontent-length: 5\r\n"), false, Ok((Chunked, false)));
        check(&ok(""), false, Ok((UntilClose, false)));
        check("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", false, Ok((Length(5), false)));
        check("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", false, Ok((None, true)));
        check("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", false, Ok((None, true)));
        check(&ok("content-length: 5\r\ncontent-length: 6\r\n"), false, Err(Framing));
        check(&ok("content-length: x\r\n"), false, Err(Framing));
        check(&ok("transfer-encoding: gzip, chunked\r\n"), false, Err(Framing));
        check(&ok("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"), false, Err(Framing));
        check("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", false, Err(Framing));
        check("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", false, Err(Upgrade));
        check("HTTP/1.1 099 x\r\n\r\n", false, Err(Malformed));
        check("nonsense\r\n\r\n", false, Err(Malformed));
    }
}
