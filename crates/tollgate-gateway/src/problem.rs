//! What a caller is told when the gateway itself has to answer.
//!
//! Names of upstreams and their errors are for the log, not for callers.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tollgate_http::NotForwarded;

use crate::body::GatewayBody;

/// What went wrong.
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
                "the request has more headers than this gateway takes; send fewer",
            ),
            Self::Target => (
                StatusCode::BAD_REQUEST,
                "the target of the request is not a path; send a path such as /search",
            ),
            Self::Tunnel => {
                (StatusCode::METHOD_NOT_ALLOWED, "this is a gateway and no tunnel; `CONNECT` is not served")
            }
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is larger than this gateway takes; send less at once",
            ),
            Self::BodyLate => {
                (StatusCode::REQUEST_TIMEOUT, "the body stopped arriving; send it without long pauses")
            }
            Self::BodyBroken => (
                StatusCode::BAD_REQUEST,
                "the body is not what its head promised; mind its length or its chunks",
            ),
            Self::Unreachable => (
                StatusCode::BAD_GATEWAY,
                "the service behind this gateway cannot be reached; try again later",
            ),
            Self::BrokenOff => (
                StatusCode::BAD_GATEWAY,
                "the service behind this gateway broke off before it answered; whether it acted on the request is not known",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "this gateway has no room for another request just now; try again shortly",
            ),
            Self::Slow => (
                StatusCode::GATEWAY_TIMEOUT,
                "the service behind this gateway did not begin to answer in time; whether it acts on the request is not known",
            ),
            Self::TooSlow => (
                StatusCode::GATEWAY_TIMEOUT,
                "the service behind this gateway cannot be connected to in time; try again later",
            ),
        }
    }

    /// Whether no upstream has seen the request, and that was not the client's doing.
    const fn is_before_the_upstream(self) -> bool {
        matches!(self, Self::Unreachable | Self::Busy | Self::TooSlow)
    }

    pub(crate) fn response(self) -> Response<GatewayBody> {
        let (status, detail) = self.words();
        let title = status.canonical_reason().unwrap_or("Error");
        // Nothing in these texts needs escaping; held by the test below.
        let body = format!(
            r#"{{"type":"about:blank","title":"{title}","status":{},"detail":"{detail}"}}"#,
            status.as_u16()
        );
        let mut response = Response::new(GatewayBody::full(Bytes::from(body)));
        *response.status_mut() = status;
        if self.is_before_the_upstream() {
            response.extensions_mut().insert(NotForwarded);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            // Where its body ends is anybody's guess, and so is what comes after it.
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
