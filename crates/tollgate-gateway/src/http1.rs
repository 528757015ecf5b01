//! The HTTP/1.1 path without hyper: decides plain requests in the buffer of their connection, and forwards them over raw
//! connections to upstreams.
//!
//! ```text
//! Http1Gateway::decide ─┬─ refused: the response is written from prepared pieces
//!                       └─ admitted: the head for the upstream is written ─► forward: one task owns both connections
//! ```
//!
//! Only policies without limits that outlive their decisions, stores that never wait and upstreams without TLS and
//! HTTP/2 are served here. Everything else is left to the tower layer and `forward`, on hyper.
//!
//! Invariant: an upstream and a client see the same as through hyper, except for the order of headers.
//! `tests/gateway/parity.rs` checks this.

mod download;
mod exchange;
mod pool;
mod pump;
mod request;

use std::sync::Arc;

use tokio::time::Instant;
use tollgate::{SharedLimiter, Store};
use tollgate_http::{RawAdmission, RawRequest, client_address, conclude_raw};
use tollgate_net::http1::{
    ExchangeEnd, Http1Client, Http1Surface, OutputBuffer, RequestHead, Verdict, write_date,
};

pub(crate) use self::pool::RawPool;
use self::request::HeadLines;
use crate::forward::Worker;
use crate::head::Caller;
use crate::override_headers::OverrideHeaders;

/// The state that the connections of a worker share.
pub(crate) struct Http1Shared<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) pool: Arc<RawPool>,
    pub(crate) override_headers: Arc<OverrideHeaders>,
}

/// Serves the plain requests of one connection.
pub(crate) struct Http1Gateway<S> {
    pub(crate) shared: Arc<Http1Shared<S>>,
    pub(crate) caller: Caller,
}

/// A request that is to be forwarded.
pub(crate) struct ForwardedRequest {
    /// The head for the upstream.
    head: OutputBuffer,
    admission: RawAdmission,
    is_head: bool,
    is_idempotent: bool,
    started_at: Instant,
}

impl<S: Store> Http1Surface for Http1Gateway<S> {
    type Admitted = ForwardedRequest;

    fn decide(&self, request: &mut RequestHead<'_, '_>, out: &mut Vec<u8>) -> Verdict<ForwardedRequest> {
        let Http1Shared { limiter, worker, override_headers, .. } = &*self.shared;
        let limiter = limiter.load();
        let policy = limiter.policy();
        if policy.outlives_decisions()
            || worker.body.is_some_and(|most| request.body_length > most)
            || !request::prepare(request, override_headers)
        {
            return Verdict::HandOver;
        }
        let (is_head, is_last) = (request.method == "HEAD", request.is_last_if_answered);
        let lines = HeadLines(request.headers);
        let view = RawRequest {
            method: request.method,
            path: request.path,
            query: request.query,
            host: request.host,
            client: client_address(Some(self.caller.address), &lines, policy.client()),
            headers: &lines,
        };
        let concluded = limiter.try_admit(&view, |decision| {
            let write_lines = |out: &mut Vec<u8>| write_connection_lines(out, is_last);
            conclude_raw(&limiter, decision, (&lines, is_head), || fastrand::u32(..), (out, write_lines))
        });
        let admission = match concluded {
            Ok(Some(admission)) => admission,
            Ok(None) => return Verdict::Answered,
            // The store never waits, and no limit of the policy has a queue.
            Err(_pending) => return Verdict::HandOver,
        };
        let mut head = OutputBuffer::take();
        request::write(&mut head, request, &self.caller, worker.forwarding, (policy, &admission));
        Verdict::Admitted(ForwardedRequest {
            head,
            admission,
            is_head,
            is_idempotent: matches!(request.method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE"),
            started_at: Instant::now(),
        })
    }

    async fn forward(&self, admitted: ForwardedRequest, client: &mut Http1Client<'_>) -> ExchangeEnd {
        exchange::forward(&self.shared.worker, &self.shared.pool, admitted, client).await
    }
}

/// Appends the headers that every response of the gateway has.
fn write_connection_lines(out: &mut Vec<u8>, is_last: bool) {
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    write_date(out);
}
