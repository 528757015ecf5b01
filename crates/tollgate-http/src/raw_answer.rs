//! The answer to a request as bytes of HTTP/1.1, without a header map.
//!
//! It serves a server that keeps heads in buffers. The decision, the headers and the bodies are those of the tower
//! layer (`headers`, `rejection`).
//!
//! A request that was admitted releases its slots and settles its costs at its end, as in the tower layer (`deferred`).
//!
//! Invariant: the policy must not delay requests ([`Policy::delays_requests`](tollgate::Policy)): nothing here holds a
//! request back.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use tollgate::{Decision, InFlightGuard, Limiter, RequestOutcome, Store};

use crate::deferred::{Deferred, Owing};
use crate::future::outcome_of;
use crate::header_lines::HeaderLines;
use crate::headers::{NameLengths, RetryAfter, find_line, is_limited, push_number, write_lines};
use crate::layer::Wiring;
use crate::meter::{MeteredParts, Meters, ResponsePart};
use crate::priority::priority_value;
use crate::rejection::{Rejection, RejectionContent};
use crate::service_timer::ServiceTimer;
use crate::slot_guard::SlotGuard;
use crate::soft::soft_value;

/// The limits of a [`LimitLayer`](crate::LimitLayer), for a server that keeps heads in buffers
/// ([`LimitLayer::raw`](crate::LimitLayer::raw)).
pub struct RawLimit<S>(pub(crate) Arc<Wiring<S>>);

impl<S> fmt::Debug for RawLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLimit").finish_non_exhaustive()
    }
}

/// A request that its limits admit, with the additions to its request and its response. It holds the slots of the
/// request until it is dropped.
pub struct RawAdmission {
    /// The lines of the rate-limit headers, and the lengths of their names.
    headers: Vec<u8>,
    lengths: NameLengths,
    /// The value of `Tollgate-Priority` for the upstream.
    pub priority: Option<http::HeaderValue>,
    /// The value of `Tollgate-Soft` for the upstream.
    pub soft: Option<http::HeaderValue>,
    /// Releases slots, settles costs, and measures the upstream for limits with a learned number of slots.
    deferred: Option<Owing>,
    /// Counts the request as in flight until it is dropped.
    in_flight: Option<InFlightGuard>,
}

impl RawAdmission {
    /// Records that the request is about to be forwarded.
    pub fn start(&mut self) {
        if let Some(deferred) = &mut self.deferred {
            deferred.start();
        }
    }

    /// Returns a guard of the slots that outlive their caller, if there are any.
    pub fn slot_guard(&self) -> Option<SlotGuard> {
        match &self.deferred {
            Some(Owing::Shared(guard)) => Some(guard.clone()),
            _ => None,
        }
    }

    /// Returns the timer of the upstream, if a limit with a learned number of slots measures it.
    pub fn service_timer(&self) -> Option<ServiceTimer> {
        self.deferred.as_ref()?.service_timer()
    }

    /// Records the status of the response. `None`: the response says nothing about the load of the upstream.
    pub fn answered(&self, status: Option<StatusCode>) {
        if let Some(deferred) = &self.deferred {
            deferred.complete(status.map_or(RequestOutcome::Ignored, outcome_of));
        }
    }

    /// Returns the parts of the response that are to be passed to [`observe_part`](Self::observe_part).
    pub fn metered(&self) -> MeteredParts {
        self.deferred.as_ref().map_or(MeteredParts::None, Owing::metered)
    }

    /// Reads a part of the response of the upstream, so that a cost in it is settled.
    pub fn observe_part<H: HeaderLines>(&mut self, part: &ResponsePart<'_, H>) {
        self.with_meters(|meters| meters.part(part));
    }

    /// Records that the request never reached the upstream: limits that settle their cost refund the reserve
    /// ([`NotForwarded`](crate::NotForwarded)).
    pub fn was_not_forwarded(&mut self) {
        self.with_meters(Meters::was_not_reached);
    }

    fn with_meters(&mut self, call: impl FnOnce(&mut Meters)) {
        if let Some(deferred) = &mut self.deferred {
            deferred.with_meters(call);
        }
    }

    /// Ends the request: settles its costs and releases its slots, unless a [guard](Self::slot_guard) still holds them.
    pub fn end(&mut self) {
        (self.deferred, self.in_flight) = (None, None);
    }

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

impl<S: Store> RawLimit<S> {
    /// Returns the admission of a decision, or appends the refusal to `out` as a complete response, with the header
    /// lines that `write_connection` appends. `is_head`: the response has no body.
    pub fn conclude(
        &self,
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        (request, is_head): (&impl HeaderLines, bool),
        (out, write_connection): (&mut Vec<u8>, impl FnOnce(&mut Vec<u8>)),
    ) -> Option<RawAdmission> {
        let settings = limiter.policy().headers();
        let (mut headers, mut lengths) = (Vec::new(), NameLengths::default());
        if is_limited(decision) {
            let id = limiter.id_of(decision);
            let retry_after = RetryAfter::jittered(decision, settings, &*self.0.rng);
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
        let Wiring { limiter: in_force, clock, spawn, .. } = &*self.0;
        Some(RawAdmission {
            headers,
            lengths,
            priority: priority_value(decision),
            soft: soft_value(decision),
            deferred: Deferred::of(limiter, decision, (in_force, clock, spawn), None, false),
            in_flight: limiter.track_in_flight(),
        })
    }
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
