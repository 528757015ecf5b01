//! Error responses of the gateway itself.
//!
//! Names of upstreams and their errors go to the log, not to callers.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tollgate_http::{NotForwarded, OwnResponse, Unmeasured, write_body, write_status};

use crate::body::GatewayBody;

/// The problem type without semantics beyond the status (RFC 9457, 4.2.1).
const ABOUT_BLANK: &str = "about:blank";

/// An error that the gateway answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    NoHost,
    ManyHosts,
    BadHost,
    Encoding,
    Tunnel,
    ManyHeaders,
    Target,
    BodyTooLarge,
    BodyLate,
    BodyBroken,
    Unreachable,
    BrokenOff,
    Busy,
    Slow,
    TooSlow,
}

impl Problem {
    const fn words(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoHost => (StatusCode::BAD_REQUEST, "the request names no host; send one `Host` header"),
            Self::ManyHosts => (StatusCode::BAD_REQUEST, "the request has several `Host` headers; send one"),
            Self::BadHost => (
                StatusCode::BAD_REQUEST,
                "the `Host` header is not a host; send a name or an address, with a port if need be",
            ),
            Self::Encoding => (
                StatusCode::NOT_IMPLEMENTED,
                "the body comes in a transfer encoding other than `chunked`; send it plain or chunked",
            ),
            Self::ManyHeaders => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the request has more headers than this gateway accepts; send fewer",
            ),
            Self::Target => (
                StatusCode::BAD_REQUEST,
                "the target of the request is not a path; send a path such as /search",
            ),
            Self::Tunnel => (StatusCode::METHOD_NOT_ALLOWED, "this gateway does not support `CONNECT`"),
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is larger than this gateway accepts; send less at once",
            ),
            Self::BodyLate => {
                (StatusCode::REQUEST_TIMEOUT, "the body stopped arriving; send it without long pauses")
            }
            Self::BodyBroken => (
                StatusCode::BAD_REQUEST,
                "the body does not match its head; check `Content-Length` or the chunks",
            ),
            Self::Unreachable => {
                (StatusCode::BAD_GATEWAY, "the upstream service cannot be reached; try again later")
            }
            Self::BrokenOff => (
                StatusCode::BAD_GATEWAY,
                "the upstream service closed the connection before it answered; it is not known whether it processed the request",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "this gateway cannot take another request at the moment; try again shortly",
            ),
            Self::Slow => (
                StatusCode::GATEWAY_TIMEOUT,
                "the upstream service did not start its response in time; it is not known whether it processes the request",
            ),
            Self::TooSlow => (
                StatusCode::GATEWAY_TIMEOUT,
                "the upstream service did not accept a connection in time; try again later",
            ),
        }
    }

    /// Whether the request did not reach an upstream, for a reason that is not the client's.
    pub(crate) const fn is_before_the_upstream(self) -> bool {
        matches!(self, Self::Unreachable | Self::Busy | Self::TooSlow)
    }

    /// Whether the answer says something about the load of the upstream.
    pub(crate) const fn is_measured(self) -> bool {
        matches!(self, Self::Unreachable | Self::BrokenOff | Self::Slow | Self::TooSlow)
    }

    pub(crate) const fn status(self) -> StatusCode {
        self.words().0
    }

    fn body(self) -> (StatusCode, String) {
        let (status, detail) = self.words();
        let title = status.canonical_reason().unwrap_or("Error");
        // These texts need no escaping; the test below checks that.
        let body = format!(
            r#"{{"type":"{ABOUT_BLANK}","title":"{title}","status":{},"detail":"{detail}"}}"#,
            status.as_u16()
        );
        (status, body)
    }

    /// Appends the response as bytes of HTTP/1.1, with the header lines that `write_lines` appends. Only problems of
    /// forwarded requests are answered so.
    pub(crate) fn write(self, out: &mut Vec<u8>, is_head: bool, write_lines: impl FnOnce(&mut Vec<u8>)) {
        let (status, body) = self.body();
        write_status(out, status);
        out.extend_from_slice(b"content-type: application/problem+json\r\n");
        if self == Self::Busy {
            out.extend_from_slice(b"retry-after: 1\r\n");
        }
        write_lines(out);
        write_body(out, body.as_bytes(), is_head);
    }

    pub(crate) fn response(self) -> Response<GatewayBody> {
        let (status, body) = self.body();
        let mut response = Response::new(GatewayBody::full(Bytes::from(body)));
        *response.status_mut() = status;
        response.extensions_mut().insert(OwnResponse);
        if self.is_before_the_upstream() {
            response.extensions_mut().insert(NotForwarded);
        }
        if !self.is_measured() {
            response.extensions_mut().insert(Unmeasured);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            // The end of the body is unknown, so the connection cannot be reused.
            Self::Encoding => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
            Self::Busy => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            Self::Tunnel => drop(
                headers
                    .insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
            ),
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_needs_escaping() {
        use Problem::{
            BadHost, BodyBroken, BodyLate, BodyTooLarge, BrokenOff, Busy, Encoding, ManyHeaders, ManyHosts,
            NoHost, Slow, Target, TooSlow, Tunnel, Unreachable,
        };
        for problem in [
            NoHost,
            ManyHosts,
            BadHost,
            Encoding,
            Tunnel,
            ManyHeaders,
            Target,
            BodyTooLarge,
            BodyLate,
            BodyBroken,
            Unreachable,
            BrokenOff,
            Busy,
            Slow,
            TooSlow,
        ] {
            assert!(!problem.words().1.contains(['"', '\\']), "{problem:?}");
        }
    }
}
