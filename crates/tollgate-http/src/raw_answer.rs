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
use crate::headers::{NameLengths, RetryAfter, find_line, is_limited, push_number, write_lines};
use crate::priority::priority_value;
use crate::rejection::{Rejection, RejectionContent};
use crate::soft::soft_value;

/// A request that its limits admit, with the additions to its request and its response.
pub struct RawAdmission {
    /// The lines of the rate-limit headers, and the lengths of their names.
    headers: Vec<u8>,
    lengths: NameLengths,
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
        out.extend_from_slice(&self.headers);
    }

    /// Whether the rate-limit headers replace a header of the upstream. The name may have any case.
    pub fn replaces(&self, name: &str) -> bool {
        self.lengths.may_contain(name.len()) && find_line(&self.headers, name).is_some()
    }
}

impl fmt::Debug for RawAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawAdmission").finish_non_exhaustive()
    }
}

/// The initial capacity of the header lines: those of three limits with ordinary names take less.
const INITIAL_HEADER_BYTES: usize = 448;

/// Returns the admission of a decision, or appends the refusal to `out` as a complete response, with the header lines
/// that `write_connection` appends. `rng` is the source of the jitter of `Retry-After`. `is_head`: the response has no body.
pub fn conclude_raw<S: Store>(
    limiter: &Limiter<S>,
    decision: &Decision<'_>,
    (request, is_head): (&impl HeaderLines, bool),
    rng: impl FnOnce() -> u32,
    (out, write_connection): (&mut Vec<u8>, impl FnOnce(&mut Vec<u8>)),
) -> Option<RawAdmission> {
    let settings = limiter.policy().headers();
    let (mut headers, mut lengths) = (Vec::new(), NameLengths::default());
    if is_limited(decision) {
        let id = limiter.id_of(decision);
        let retry_after = RetryAfter::jittered(decision, settings, rng);
        if let Some(rejection) = Rejection::of(decision, id, retry_after) {
            let content = rejection.content(request, settings);
            write_rejection_head(out, &content);
            write_lines(out, decision, id, settings, rejection.retry_after());
            write_connection(out);
            write_body_with(out, is_head, |out| content.write(out));
            return None;
        }
        headers = Vec::with_capacity(INITIAL_HEADER_BYTES);
        lengths = write_lines(&mut headers, decision, id, settings, None);
    }
    Some(RawAdmission {
        headers,
        lengths,
        priority: priority_value(decision),
        soft: soft_value(decision),
        _in_flight: limiter.track_in_flight(),
    })
}

/// The first lines of the most frequent refusal.
const PLAIN_QUOTA_HEAD: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n";

/// Appends the status line of a refusal, and the headers that depend on nothing else.
fn write_rejection_head(out: &mut Vec<u8>, content: &RejectionContent<'_, '_, '_>) {
    if content.is_plain_quota() {
        out.extend_from_slice(PLAIN_QUOTA_HEAD);
    } else {
        write_status_and_type(out, content.status(), content.content_type());
    }
}

fn write_status_and_type(out: &mut Vec<u8>, status: StatusCode, content_type: &str) {
    write_status(out, status);
    out.extend_from_slice(b"content-type: ");
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(b"\r\ncache-control: no-store\r\n");
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
    push_number(out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    if !is_head {
        out.extend_from_slice(body);
    }
}

/// Appends the same as [`write_body`] for a body that `write` appends, and returns its result. The length is written after
/// the body, in the place of three digits.
pub fn write_body_with<T>(out: &mut Vec<u8>, is_head: bool, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    const DIGITS: usize = 3;
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    out.extend_from_slice(b"content-length: 000\r\n\r\n");
    let place = out.len() - END_OF_HEAD.len() - DIGITS;
    let start = out.len();
    let result = write(out);
    let end = out.len();
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(end - start).as_bytes();
    match digits.len().checked_sub(DIGITS) {
        Some(0) => {}
        Some(more) => {
            out.resize(end + more, 0);
            out.copy_within(place + DIGITS..end, place + digits.len());
        }
        None => {
            out.copy_within(place + DIGITS..end, place + digits.len());
            out.truncate(end + digits.len() - DIGITS);
        }
    }
    out[place..place + digits.len()].copy_from_slice(digits);
    if is_head {
        out.truncate(place + digits.len() + END_OF_HEAD.len());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prepared_head_is_the_one_that_would_be_written() {
        let mut written = Vec::new();
        write_status_and_type(&mut written, StatusCode::TOO_MANY_REQUESTS, "application/problem+json");
        assert_eq!(PLAIN_QUOTA_HEAD.escape_ascii().to_string(), written.escape_ascii().to_string());
    }

    #[test]
    fn a_body_has_its_length_before_it_whatever_its_size() {
        for length in [0, 7, 99, 100, 999, 1_000, 65_536] {
            for is_head in [false, true] {
                let body = vec![b'a'; length];
                let (mut expected, mut found) = (b"before".to_vec(), b"before".to_vec());
                write_body(&mut expected, &body, is_head);
                write_body_with(&mut found, is_head, |out| out.extend_from_slice(&body));
                assert_eq!(found, expected, "{length} bytes, HEAD: {is_head}");
            }
        }
    }
}
