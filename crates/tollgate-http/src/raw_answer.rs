//! The answer to a request as bytes of HTTP/1.1, without a header map.
//!
//! It serves a server that keeps heads in buffers. The decision, the headers and the bodies are those of the tower
//! layer (`headers`, `rejection`).
//!
//! Invariant: the policy must not outlive its decisions ([`Policy::outlives_decisions`](tollgate::Policy)): nothing here
//! delays a request or runs at its end.

use std::fmt;

use http::StatusCode;
use tollgate::{Decision, InFlightGuard, Limiter, Store};

use crate::header_lines::HeaderLines;
use crate::headers::{PreparedHeaders, RetryAfter, is_limited, written};
use crate::priority::priority_value;
use crate::rejection::Rejection;
use crate::soft::soft_value;

/// A request that its limits admit, with the additions to its request and its response.
pub struct RawAdmission {
    headers: Option<PreparedHeaders>,
    /// The value of `Tollgate-Priority` for the upstream.
    pub priority: Option<http::HeaderValue>,
    /// The value of `Tollgate-Soft` for the upstream.
    pub soft: Option<http::HeaderValue>,
    /// Counts the request as in flight until it is dropped.
    _in_flight: Option<InFlightGuard>,
}

impl RawAdmission {
    /// Appends the lines of the rate-limit headers.
    pub fn write_headers(&self, out: &mut Vec<u8>) {
        if let Some(headers) = &self.headers {
            headers.write(out);
        }
    }

    /// Whether the rate-limit headers replace a header of the upstream. The name may have any case.
    pub fn replaces(&self, name: &str) -> bool {
        self.headers.as_ref().is_some_and(|it| it.contains(name))
    }
}

impl fmt::Debug for RawAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawAdmission").finish_non_exhaustive()
    }
}

/// Returns the admission of a decision, or appends the refusal to `out` as a complete response, with the header lines
/// that `write_lines` appends. `rng` is the source of the jitter of `Retry-After`. `is_head`: the response has no body.
pub fn conclude_raw<S: Store>(
    limiter: &Limiter<S>,
    decision: &Decision<'_>,
    (request, is_head): (&impl HeaderLines, bool),
    rng: impl FnOnce() -> u32,
    (out, write_lines): (&mut Vec<u8>, impl FnOnce(&mut Vec<u8>)),
) -> Option<RawAdmission> {
    let settings = limiter.policy().headers();
    let mut headers = None;
    if is_limited(decision) {
        let id = limiter.id_of(decision);
        let retry_after = RetryAfter::jittered(decision, settings, rng);
        if let Some(rejection) = Rejection::of(decision, id, retry_after) {
            let (status, content_type, body) = rejection.content(request, settings);
            let headers = written(decision, id, settings, rejection.retry_after());
            write_status(out, status);
            out.extend_from_slice(b"content-type: ");
            out.extend_from_slice(content_type.as_bytes());
            out.extend_from_slice(b"\r\ncache-control: no-store\r\n");
            if let Some(headers) = &headers {
                headers.write(out);
            }
            write_lines(out);
            write_body(out, &body, is_head);
            return None;
        }
        headers = written(decision, id, settings, None);
    }
    Some(RawAdmission {
        headers,
        priority: priority_value(decision),
        soft: soft_value(decision),
        _in_flight: limiter.track_in_flight(),
    })
}

/// Appends a status line.
pub fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the length of a body, the end of the head, and the body unless the request `is_head`.
pub fn write_body(out: &mut Vec<u8>, body: &[u8], is_head: bool) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    if !is_head {
        out.extend_from_slice(body);
    }
}
