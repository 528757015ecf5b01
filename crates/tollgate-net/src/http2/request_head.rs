//! The head of a request: its pseudo-headers and headers, validated (RFC 9113, section 8).

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::header_list::HeaderList;

/// The maximum number of bytes of a `grpc-timeout`: eight digits and a unit.
const MAX_TIMEOUT_BYTES: usize = 9;

/// The headers violate HTTP/2: the stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The `grpc-timeout` of a call, as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcTimeout {
    bytes: [u8; MAX_TIMEOUT_BYTES],
    length: u8,
}

impl GrpcTimeout {
    /// Creates a timeout from the value of the header. A value that is too long counts as none.
    #[allow(clippy::cast_possible_truncation, reason = "nine at most")]
    pub fn new(value: &[u8]) -> Self {
        let mut timeout = Self::default();
        if let Some(bytes) = timeout.bytes.get_mut(..value.len()) {
            bytes.copy_from_slice(value);
            timeout.length = value.len() as u8;
        }
        timeout
    }

    /// Returns the value of the header; `None` if it was not sent.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.length)).filter(|it| !it.is_empty())
    }
}

/// The validated head of a request.
#[derive(Debug, Default)]
pub(super) struct RequestHead<'l> {
    pub(super) method: &'l [u8],
    pub(super) path: &'l [u8],
    pub(super) content_type: &'l [u8],
    pub(super) content_length: Option<u64>,
    pub(super) timeout: GrpcTimeout,
    scheme: &'l [u8],
    has_authority: bool,
}

impl<'l> RequestHead<'l> {
    pub(super) fn read(list: &'l HeaderList) -> Result<Self, Malformed> {
        let mut head = Self::default();
        let mut is_regular = false;
        for (name, value) in list.iter() {
            if !is_value(value) {
                return Err(Malformed);
            }
            let Some(pseudo) = name.strip_prefix(b":") else {
                is_regular = true;
                head.read_header(name, value)?;
                continue;
            };
            // Pseudo-headers come first, at most once, and are not empty, except for the authority.
            let slot = match pseudo {
                _ if is_regular => return Err(Malformed),
                b"method" => &mut head.method,
                b"path" => &mut head.path,
                b"scheme" => &mut head.scheme,
                b"authority" => {
                    if head.has_authority {
                        return Err(Malformed);
                    }
                    head.has_authority = true;
                    continue;
                }
                _ => return Err(Malformed),
            };
            if !slot.is_empty() || value.is_empty() {
                return Err(Malformed);
            }
            *slot = value;
        }
        let is_complete = !head.method.is_empty() && !head.scheme.is_empty();
        // CONNECT, which has no path, is not served.
        let has_path = matches!((head.path, head.method), ([b'/', ..], _) | (b"*", b"OPTIONS"));
        if is_complete && has_path { Ok(head) } else { Err(Malformed) }
    }

    fn read_header(&mut self, name: &[u8], value: &'l [u8]) -> Result<(), Malformed> {
        if !is_name(name) || is_of_connection(name) {
            return Err(Malformed);
        }
        match name {
            b"content-type" => self.content_type = value,
            b"grpc-timeout" => self.timeout = GrpcTimeout::new(value),
            b"content-length" => {
                let length = parse_length(value).ok_or(Malformed)?;
                if self.content_length.replace(length).is_some_and(|it| it != length) {
                    return Err(Malformed);
                }
            }
            b"te" if value != b"trailers" => return Err(Malformed),
            _ => {}
        }
        Ok(())
    }

    /// Creates a request with all headers. Its URI has the path only.
    pub(super) fn request<B>(&self, list: &HeaderList, body: B) -> Result<Request<B>, Malformed> {
        let mut request = Request::new(body);
        *request.version_mut() = http::Version::HTTP_2;
        *request.method_mut() = Method::from_bytes(self.method).map_err(|_| Malformed)?;
        *request.uri_mut() = Uri::try_from(self.path).map_err(|_| Malformed)?;
        if request.uri().authority().is_some() {
            return Err(Malformed);
        }
        let headers = list.iter().filter(|(name, _)| !name.starts_with(b":"));
        *request.headers_mut() = headers.map(header).collect::<Result<HeaderMap, _>>()?;
        Ok(request)
    }
}

fn header((name, value): (&[u8], &[u8])) -> Result<(HeaderName, HeaderValue), Malformed> {
    let name = HeaderName::from_bytes(name).map_err(|_| Malformed)?;
    Ok((name, HeaderValue::from_bytes(value).map_err(|_| Malformed)?))
}

/// Checks the trailers of a request, which are not used.
pub(super) fn check_trailers(list: &HeaderList) -> Result<(), Malformed> {
    let is_valid =
        list.iter().all(|(name, value)| is_name(name) && is_value(value) && !is_of_connection(name));
    if is_valid { Ok(()) } else { Err(Malformed) }
}

/// The bytes of a header name: those of a token, in lower case.
#[allow(clippy::cast_possible_truncation, reason = "the index of a byte")]
static NAME_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let (mut at, others) = (0, b"!#$%&'*+-.^_`|~");
    while at < 256 {
        bytes[at] = matches!(at as u8, b'a'..=b'z' | b'0'..=b'9');
        at += 1;
    }
    at = 0;
    while at < others.len() {
        bytes[others[at] as usize] = true;
        at += 1;
    }
    bytes
};

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|it| NAME_BYTES[usize::from(*it)])
}

/// Whether this is the name of a header of a connection, which HTTP/2 has not (RFC 9113, section 8.2.2).
fn is_of_connection(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade")
}

/// Whether these bytes are a header value: no controls, and no space at an end.
#[allow(clippy::needless_bitwise_bool, reason = "no early exit, so that the loop is vectorized")]
fn is_value(value: &[u8]) -> bool {
    let has_control =
        value.iter().fold(false, |any, it| any | ((*it < b' ' && *it != b'\t') | (*it == 0x7f)));
    let is_space = |it: Option<&u8>| matches!(it, Some(b' ' | b'\t'));
    !has_control && !is_space(value.first()) && !is_space(value.last())
}

/// Parses a `content-length`: digits only.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), (":authority", "x")];

    fn check(headers: &[(&str, &str)], is_valid: bool) {
        let mut list = HeaderList::default();
        list.reset(16_384, 100);
        for (name, value) in headers {
            list.push(name.as_bytes(), value.as_bytes());
        }
        let head = RequestHead::read(&list);
        assert_eq!(head.is_ok(), is_valid, "{headers:?}");
        if let Ok(head) = head {
            let request = head.request(&list, ()).unwrap();
            assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/a.B/C"));
        }
    }

    #[test]
    fn heads_that_violate_http_2_are_malformed() {
        let with =
            |more: &[(&'static str, &'static str)], is_valid| check(&[&CALL[..], more].concat(), is_valid);
        with(&[], true);
        with(&[("content-type", "application/grpc"), ("te", "trailers"), ("x", "")], true);
        with(&[("content-length", "3"), ("content-length", "3")], true);
        for (name, value) in [
            ("Upper", "x"),
            ("", "x"),
            ("with space", "x"),
            ("x", "a\nb"),
            ("x", "a\0"),
            ("x", " a"),
            ("x", "a "),
            ("te", "gzip"),
            ("connection", "close"),
            ("keep-alive", "x"),
            ("proxy-connection", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-length", "+3"),
            ("content-length", ""),
            ("content-length", "99999999999999999999"),
            (":status", "200"),
            (":protocol", "websocket"),
            (":method", "POST"),
            (":path", "/a.B/C"),
            (":authority", "x"),
        ] {
            with(&[(name, value)], false);
        }
        with(&[("content-length", "3"), ("content-length", "4")], false);
        with(&[("x", "y"), (":scheme", "http")], false);
        check(&CALL[1..], false);
        check(&[CALL[0], CALL[2]], false);
        check(&CALL[..2], false);
        check(&[CALL[0], CALL[1], (":path", "a")], false);
        check(&[CALL[0], CALL[1], (":path", "")], false);
        check(&[(":method", "CONNECT"), (":authority", "x")], false);
    }

    #[test]
    fn a_timeout_of_more_than_nine_bytes_counts_as_none() {
        assert_eq!(GrpcTimeout::new(b"20m").as_bytes(), Some(&b"20m"[..]));
        assert_eq!(GrpcTimeout::new(b"12345678m").as_bytes(), Some(&b"12345678m"[..]));
        assert_eq!(GrpcTimeout::new(b"123456789m").as_bytes(), None);
        assert_eq!(GrpcTimeout::default().as_bytes(), None);
    }
}
