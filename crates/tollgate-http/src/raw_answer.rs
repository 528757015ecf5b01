//! The answer to a request as bytes of HTTP/1.1, without a header map.
//!
//! It serves a server that keeps heads in buffers. The decision, what it means for the request (`conclusion`), the headers
//! and the bodies are those of the tower layer (`headers`, `rejection`).
//!
//! A request that was admitted releases its slots and settles its costs at its end, as in the tower layer (`deferred`). One
//! that has to wait is held by its server: [`RawLimit::decide`], [`RawLimit::wait`] and [`RawLimit::start`] in this order.
//!
//! Invariant: a wait that is dropped frees its place and refunds the charges of its request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tollgate::policy::HeaderSettings;
use tollgate::{
    Decision, DecisionId, DetachedPending, HoldEnd, InFlightGuard, Limiter, Request, RequestOutcome,
    SlotWait, Store,
};

use crate::conclusion::{Admission, Conclusion, Delayed, RequestForm};
use crate::deferred::Owing;
use crate::future::outcome_of;
use crate::header_lines::HeaderLines;
use crate::headers::{NameLengths, find_line, push_number, write_lines};
use crate::layer::Wiring;
use crate::meter::{MeteredParts, Meters, ResponsePart};
use crate::priority::priority_value;
use crate::raw_request::RawRequest;
use crate::rejection::{Rejection, RejectionContent};
use crate::service_timer::ServiceTimer;
use crate::slot_guard::SlotGuard;
use crate::soft::Soft;
use crate::waiting_room::{SHUTDOWN_RETRY_AFTER, SHUTTING_DOWN, ShuttingDown};

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

impl Admission for RawAdmission {
    fn deferred(&mut self) -> &mut Option<Owing> {
        &mut self.deferred
    }

    fn set_in_flight(&mut self, in_flight: Option<InFlightGuard>) {
        self.in_flight = in_flight;
    }

    fn mark(&mut self, soft: Soft, _: Duration) {
        self.soft = Some(soft.into_value());
    }
}

impl fmt::Debug for RawAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawAdmission").finish_non_exhaustive()
    }
}

/// The initial capacity of the header lines: those of three limits with ordinary names take less.
const INITIAL_HEADER_BYTES: usize = 448;

/// A request in a buffer, and the place of its response.
pub struct RawExchange<'a, H, W> {
    /// The request.
    pub request: RawRequest<'a, H>,
    /// Whether the response has no body.
    pub is_head: bool,
    /// A refusal is appended here, as a complete response.
    pub out: &'a mut Vec<u8>,
    /// Appends the header lines that every response of the server has.
    pub write_connection: W,
}

impl<H, W> fmt::Debug for RawExchange<'_, H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawExchange").field("is_head", &self.is_head).finish_non_exhaustive()
    }
}

/// The outcome of a decision for its request. A refusal was written.
pub type RawConclusion<S> = Conclusion<S, RawAdmission, ()>;

/// A request that is held before it starts. If it is dropped before, its place is free and its charges are refunded.
pub type DelayedRequest<S> = Box<Delayed<S, RawAdmission>>;

impl<S: Store> RawLimit<S> {
    /// Determines the outcome of a decision for its request, and writes the refusal.
    pub fn conclude<H: HeaderLines + Sync, W: Fn(&mut Vec<u8>)>(
        &self,
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        exchange: &mut RawExchange<'_, H, W>,
    ) -> RawConclusion<S> {
        self.0.conclude(limiter, decision, exchange)
    }

    /// Makes a decision that waits for the store, or in line for a slot.
    pub async fn decide<H: HeaderLines + Sync, W: Fn(&mut Vec<u8>)>(
        &self,
        pending: DetachedPending<S>,
        limiter: &Arc<Limiter<S>>,
        exchange: &mut RawExchange<'_, H, W>,
    ) -> RawConclusion<S> {
        let (request, hold) = (exchange.request, |wait: SlotWait| self.0.hold_for_slot(wait));
        let conclude = |decision: &Decision<'_>| self.conclude(limiter, decision, exchange);
        let concluded = pending.finish_waiting(Some(&request), hold, conclude).await;
        concluded.unwrap_or_else(|ShuttingDown| {
            RequestForm::<S>::refuse_at_shutdown(exchange, None);
            Conclusion::Refused(())
        })
    }

    /// Waits until a delayed request may start. Returns how the wait ended, for [`start`](Self::start).
    pub async fn wait(&self, delayed: &mut DelayedRequest<S>) -> Result<HoldEnd, ShuttingDown> {
        delayed.wait(&self.0).await
    }

    /// Starts a request whose wait has ended: takes its slots, if they were not taken before. `None`: the refusal was
    /// written.
    pub async fn start<H: HeaderLines + Sync, W: Fn(&mut Vec<u8>)>(
        &self,
        mut delayed: DelayedRequest<S>,
        end: Result<HoldEnd, ShuttingDown>,
        exchange: &mut RawExchange<'_, H, W>,
    ) -> Option<RawAdmission> {
        self.0.start(&mut delayed, end, exchange).await.ok()?;
        Some(delayed.into_admission())
    }
}

impl<S: Store, H: HeaderLines + Sync, W: Fn(&mut Vec<u8>)> RequestForm<S> for RawExchange<'_, H, W> {
    type Admission = RawAdmission;
    type Refusal = ();

    fn view(&self, _: &Limiter<S>) -> impl Request + Send + Sync {
        self.request
    }

    fn outer_slots(&self) -> Option<&SlotGuard> {
        None
    }

    fn admit(
        &self,
        limiter: &Limiter<S>,
        decision: &Decision<'_>,
        id: Option<DecisionId>,
        (deferred, in_flight): (Option<Owing>, Option<InFlightGuard>),
    ) -> RawAdmission {
        let (mut headers, mut lengths) = (Vec::new(), NameLengths::default());
        if let Some(id) = id {
            headers = Vec::with_capacity(INITIAL_HEADER_BYTES);
            lengths = write_lines(&mut headers, decision, id, limiter.policy().headers(), None);
        }
        let priority = priority_value(decision);
        RawAdmission { headers, lengths, priority, soft: None, deferred, in_flight }
    }

    fn refuse(&mut self, rejection: &Rejection<'_, '_>, settings: &HeaderSettings) {
        let content = rejection.content(self.request.headers, settings);
        write_rejection_head(self.out, &content);
        write_lines(self.out, rejection.decision(), rejection.id(), settings, rejection.retry_after());
        (self.write_connection)(self.out);
        write_body_with(self.out, self.is_head, |out| content.write(out));
    }

    fn refuse_at_shutdown(&mut self, admission: Option<&mut RawAdmission>) {
        write_status_and_type(self.out, StatusCode::SERVICE_UNAVAILABLE, "application/problem+json");
        write_line(self.out, "retry-after", SHUTDOWN_RETRY_AFTER);
        if let Some(admission) = admission {
            // A request that was admitted has no wait.
            admission.write_headers(self.out);
        }
        (self.write_connection)(self.out);
        write_body(self.out, SHUTTING_DOWN.as_bytes(), self.is_head);
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
    write_line(out, "content-type", content_type);
    write_line(out, "cache-control", "no-store");
}

fn write_line(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
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
