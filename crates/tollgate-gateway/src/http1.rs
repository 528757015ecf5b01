//! The HTTP/1.1 path without hyper: decides plain requests in the buffer of their connection, and forwards them over raw
//! connections to upstreams.
//!
//! ```text
//! Http1Gateway::decide ─┬─ refused: the response is written from prepared pieces
//!                       ├─ admitted: the head for the upstream is written ─► forward: one task owns both connections
//!                       └─ it waits for the store, in a queue, in line for a slot or in the tarpit: the head is copied
//!                          ─► waiting: the same task awaits the decision and the start of the request
//! ```
//!
//! Only upstreams without TLS, HTTP/2 and a throttle are served here. Everything else is left to the tower layer and
//! `forward`, on hyper. What a decision means for its request is the same code for both (`tollgate_http`).
//!
//! Invariant: an upstream and a client see the same as through hyper, except for the order of headers, and for the
//! connection after a refused chunked request: hyper closes it, and it stays open here if the end of the body has
//! arrived. `tests/gateway/parity.rs` checks this.

mod abandoned;
mod download;
mod exchange;
mod metering;
mod pool;
mod pump;
mod request;
mod waiting;

use std::sync::Arc;

use tokio::time::Instant;
use tollgate::{Policy, SharedLimiter, Store};
use tollgate_http::{RawAdmission, RawConclusion, RawExchange, RawLimit, RawRequest, client_address};
use tollgate_net::http1::{
    ChunkedDecoder, ExchangeEnd, Http1Client, Http1Surface, OutputBuffer, RequestBody, RequestHead, Verdict,
    write_date,
};

use self::metering::ResponseMeter;
pub(crate) use self::pool::RawPool;
pub use self::request::HeadLines;
use self::waiting::{Wait, WaitingRequest};
use crate::detached::HeldSlots;
use crate::forward::Worker;
use crate::head::Caller;
use crate::override_headers::OverrideHeaders;

/// The state that the connections of a worker share.
pub(crate) struct Http1Shared<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) limit: RawLimit<S>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) pool: Arc<RawPool>,
    pub(crate) override_headers: Arc<OverrideHeaders>,
}

/// Serves the plain requests of one connection.
pub(crate) struct Http1Gateway<S> {
    pub(crate) shared: Arc<Http1Shared<S>>,
    pub(crate) caller: Caller,
}

/// A request that was not refused.
pub(crate) enum OpenRequest<S> {
    /// Boxed: it is moved several times before it is forwarded, and an idle connection keeps room for it.
    Admitted(Box<ForwardedRequest>),
    /// The decision waits for the store, or the request is held.
    Waiting(Box<WaitingRequest<S>>),
}

/// A request that is to be forwarded.
pub(crate) struct ForwardedRequest {
    /// The head for the upstream.
    head: OutputBuffer,
    admission: RawAdmission,
    /// The slots that a client that leaves does not release, until the upstream has finished the request.
    slots: Option<HeldSlots>,
    /// Reads the response, if the cost of the request may be in it. Boxed: few policies settle.
    meter: Option<Box<ResponseMeter>>,
    is_head: bool,
    is_idempotent: bool,
    started_at: Instant,
}

impl ForwardedRequest {
    /// Records whether an upstream may have seen the request.
    fn set_sent(&self, is_sent: bool) {
        if let Some(slots) = &self.slots {
            slots.set_sent(is_sent);
        }
    }

    /// Ends the request: its upstream has answered it, or has closed the connection.
    fn end(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.release();
        }
        self.admission.end();
    }
}

impl<S: Store> Http1Surface for Http1Gateway<S> {
    type Admitted = OpenRequest<S>;

    fn decide(&self, request: &mut RequestHead<'_, '_>, out: &mut Vec<u8>) -> Verdict<OpenRequest<S>> {
        let Http1Shared { limiter, limit, worker, override_headers, .. } = &*self.shared;
        let limiter = limiter.load();
        let policy = limiter.policy();
        // hyper refuses the request before the upstream sees a part of it.
        let is_too_large = |most: u64| match request.body {
            RequestBody::Length(length) => length > most,
            RequestBody::Chunked => ChunkedDecoder::data_length_of(request.ahead) > most,
        };
        if worker.body.is_some_and(is_too_large) || !request::prepare(request, override_headers) {
            return Verdict::HandOver;
        }
        let (is_head, is_last) = (request.method == "HEAD", request.is_last_if_answered);
        let lines = HeadLines(request.headers);
        let view = self.view(request, &lines, policy);
        let write_connection = |out: &mut Vec<u8>| write_connection_lines(out, is_last);
        let mut exchange = RawExchange { request: view, is_head, out, write_connection };
        let concluded =
            limiter.try_admit(&view, |decision| limit.conclude(&limiter, decision, &mut exchange));
        let wait = match concluded {
            Ok(RawConclusion::Passes(admission)) => {
                let forwarded = self.forwarded(request, policy, admission);
                return Verdict::Admitted(OpenRequest::Admitted(forwarded));
            }
            Ok(RawConclusion::Refused(())) => return Verdict::Answered,
            Ok(RawConclusion::Delayed(delayed)) => Wait::Start(delayed),
            Err(pending) => Wait::Decision(Box::new(pending.detach())),
        };
        let waiting = WaitingRequest::new(wait, Arc::clone(&limiter), request);
        Verdict::Admitted(OpenRequest::Waiting(Box::new(waiting)))
    }

    async fn forward(&self, request: OpenRequest<S>, client: &mut Http1Client<'_>) -> ExchangeEnd {
        let admitted = match request {
            OpenRequest::Admitted(admitted) => admitted,
            // Boxed: most requests do not wait, and the state is large.
            OpenRequest::Waiting(waiting) => match Box::pin(waiting.finish(self, client)).await {
                Ok(admitted) => admitted,
                Err(end) => return end,
            },
        };
        exchange::forward(&self.shared.worker, &self.shared.pool, admitted, client).await
    }
}

impl<S> Http1Gateway<S> {
    /// Returns the request as a policy reads it.
    fn view<'a, 'h, 'b>(
        &self,
        request: &RequestHead<'_, 'b>,
        lines: &'a HeadLines<'h, 'b>,
        policy: &Policy,
    ) -> RawRequest<'a, HeadLines<'h, 'b>>
    where
        'b: 'a,
    {
        RawRequest {
            method: request.method,
            path: request.path,
            query: request.query,
            host: request.host,
            client: client_address(Some(self.caller.address), lines, policy.client()),
            headers: lines,
        }
    }

    /// Writes the head of an admitted request for its upstream.
    fn forwarded(
        &self,
        request: &RequestHead<'_, '_>,
        policy: &Policy,
        admission: RawAdmission,
    ) -> Box<ForwardedRequest> {
        let (mut head, worker) = (OutputBuffer::take(), &self.shared.worker);
        let meter = ResponseMeter::of(policy, &admission);
        let additions = (policy, &admission, meter.as_deref());
        request::write(&mut head, request, &self.caller, worker.forwarding, additions);
        Box::new(ForwardedRequest {
            head,
            slots: admission.slot_guard().map(|guard| HeldSlots::new(guard, &worker.detached)),
            meter,
            admission,
            is_head: request.method == "HEAD",
            is_idempotent: matches!(request.method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE"),
            started_at: Instant::now(),
        })
    }
}

/// Appends the headers that every response of the gateway has.
fn write_connection_lines(out: &mut Vec<u8>, is_last: bool) {
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    write_date(out);
}

/// Appends a header line. The name is in lower case.
fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    // The parts find room without another call.
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
