//! A request that waits before it is forwarded: for the store (Redis, PostgreSQL or another node), in the queue of a limit,
//! in line for a slot, or in the tarpit.
//!
//! The head stays in a copy of its bytes, because the buffer of the connection reads on. It is parsed again when the wait
//! ends, which costs less than the wait by far.
//!
//! Invariant: a client that leaves ends the wait. Its request is not forwarded, frees its places, and is refunded if its
//! decision was made. `tests/gateway/waiting.rs` checks this.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use httparse::Header;
use tollgate::{DetachedPending, HoldEnd, Limiter, Store};
use tollgate_http::{DelayedRequest, RawConclusion, RawExchange, ShuttingDown};
use tollgate_net::http1::{
    ExchangeEnd, Http1Client, MAX_HEADERS, OutputBuffer, ParsedRequest, ReadAhead, RequestHead, header_space,
};

use super::request::{self, HeadLines};
use super::{ForwardedRequest, Http1Gateway, exchange, write_connection_lines};

/// A request that is not forwarded yet.
pub(crate) struct WaitingRequest<S> {
    wait: Wait<S>,
    /// The limiter that the request was matched by.
    limiter: Arc<Limiter<S>>,
    /// The head as received, in a copy of its size: an unused buffer of the thread may have grown for a response.
    head: Box<[u8]>,
    /// Whether the connection ends after a refusal: the body has not arrived completely, or the client asked for it.
    is_last_if_refused: bool,
}

/// The reason why a request waits.
pub(super) enum Wait<S> {
    /// The decision waits for the store, or in line for a slot.
    Decision(Box<DetachedPending<S>>),
    /// The request was admitted, and is held.
    Start(DelayedRequest<S>),
}

/// A step after a wait.
enum Step<S> {
    Decide(Box<DetachedPending<S>>),
    Start(DelayedRequest<S>, Result<HoldEnd, ShuttingDown>),
}

/// The outcome of a step.
enum Outcome<S> {
    Forward(Box<ForwardedRequest>),
    Hold(DelayedRequest<S>),
    /// The refusal was written.
    Refused,
}

impl<S: Store> WaitingRequest<S> {
    pub(super) fn new(wait: Wait<S>, limiter: Arc<Limiter<S>>, request: &RequestHead<'_, '_>) -> Self {
        Self { wait, limiter, head: request.bytes.into(), is_last_if_refused: request.is_last_if_answered }
    }

    /// Waits for the start of the request. Sends the refusal, or returns the request that is to be forwarded. A client that
    /// leaves ends the wait.
    pub(super) async fn finish(
        self,
        gateway: &Http1Gateway<S>,
        client: &mut Http1Client<'_>,
    ) -> Result<Box<ForwardedRequest>, ExchangeEnd> {
        let Self { mut wait, limiter, head, is_last_if_refused } = self;
        // Has no memory before the refusal is written.
        let (shared, mut refusal) = (&gateway.shared, OutputBuffer::default());
        let is_last = AtomicBool::new(is_last_if_refused);
        let mut presence = Presence { ahead: client.read_ahead(), client, is_last: &is_last };
        loop {
            let step = match wait {
                Wait::Decision(pending) => Step::Decide(pending),
                Wait::Start(mut delayed) => {
                    let end = presence.during(shared.limit.wait(&mut delayed)).await?;
                    Step::Start(delayed, end)
                }
            };
            // Boxed, so that a request that is held stays small.
            let taken = Box::pin(gateway.take_step(step, (&limiter, &head), &mut refusal, &is_last));
            match presence.during(taken).await?? {
                Outcome::Forward(forwarded) => return Ok(forwarded),
                Outcome::Hold(delayed) => wait = Wait::Start(delayed),
                Outcome::Refused => break,
            }
        }
        let is_last = is_last.load(Ordering::Relaxed) || !client.skip_body();
        Err(exchange::send(&shared.worker, client, &refusal, is_last).await)
    }
}

/// The client of a request that waits.
struct Presence<'p, 'c> {
    client: &'p mut Http1Client<'c>,
    ahead: ReadAhead,
    /// Whether the connection ends after a refusal.
    is_last: &'p AtomicBool,
}

impl Presence<'_, '_> {
    /// Waits until `wait` ends, or the client leaves.
    async fn during<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, ExchangeEnd> {
        let mut wait = pin!(wait);
        poll_fn(|cx| {
            // A drain may have started.
            self.is_last.fetch_or(self.client.is_last(), Ordering::Relaxed);
            match wait.as_mut().poll(cx) {
                Poll::Ready(end) => Poll::Ready(Ok(end)),
                Poll::Pending => {
                    self.client.poll_left_ahead(&mut self.ahead, cx).map(|()| Err(ExchangeEnd::Abort))
                }
            }
        })
        .await
    }
}

impl<S: Store> Http1Gateway<S> {
    /// Makes the decision about a request, or starts it. `is_last`: the connection ends after a refusal.
    async fn take_step(
        &self,
        step: Step<S>,
        (limiter, head): (&Arc<Limiter<S>>, &[u8]),
        refusal: &mut OutputBuffer,
        is_last: &AtomicBool,
    ) -> Result<Outcome<S>, ExchangeEnd> {
        let (limit, policy) = (&self.shared.limit, limiter.policy());
        let (mut request, mut headers) = self.parse(head).ok_or(ExchangeEnd::Abort)?;
        request.headers = &mut headers;
        let lines = HeadLines(request.headers);
        let mut exchange = RawExchange {
            request: self.view(&request, &lines, policy),
            is_head: request.method == "HEAD",
            out: refusal,
            write_connection: |out: &mut Vec<u8>| {
                write_connection_lines(out, is_last.load(Ordering::Relaxed));
            },
        };
        let concluded = match step {
            Step::Decide(pending) => limit.decide(*pending, limiter, &mut exchange).await,
            Step::Start(delayed, end) => match limit.start(delayed, end, &mut exchange).await {
                Some(admission) => RawConclusion::Passes(admission),
                None => RawConclusion::Refused(()),
            },
        };
        Ok(match concluded {
            RawConclusion::Passes(admission) => Outcome::Forward(self.forwarded(&request, policy, admission)),
            RawConclusion::Delayed(delayed) => Outcome::Hold(delayed),
            RawConclusion::Refused(()) => Outcome::Refused,
        })
    }

    /// Parses a head again, and returns its headers beside it, in no more memory than they need. The bytes were parsed
    /// before, so `None` is not returned.
    fn parse<'h, 'b>(&self, head: &'b [u8]) -> Option<(RequestHead<'h, 'b>, Vec<Header<'b>>)> {
        let mut space = header_space();
        let ParsedRequest::Complete(mut request, _) = RequestHead::parse(head, &mut space, MAX_HEADERS)
        else {
            return None;
        };
        if !request::prepare(&mut request, &self.shared.override_headers) {
            return None;
        }
        let headers = request.headers.to_vec();
        Some((request.without_headers(), headers))
    }
}

#[cfg(test)]
mod tests {
    use tollgate::Call;

    use super::*;

    #[test]
    fn a_request_that_waits_keeps_no_buffer_that_grew_for_a_response() {
        const LARGE: usize = 60_000;
        let policy = "limits: [{by: global, slots: 1, queue: {length: 1, wait: 1m}}]";
        let limiter = Arc::new(Limiter::from_policy(policy).unwrap());
        let admit = || limiter.try_admit(&Call::new("GET", "/"), |_| ());
        assert!(admit().is_ok(), "it takes the slot");
        let pending = admit().unwrap_err().detach();
        let mut space = header_space();
        let ParsedRequest::Complete(request, _) =
            RequestHead::parse(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", &mut space, MAX_HEADERS)
        else {
            panic!("a plain request");
        };
        let mut response = OutputBuffer::take();
        response.reserve(LARGE);
        drop(response);
        let _waiting = WaitingRequest::new(Wait::Decision(Box::new(pending)), Arc::clone(&limiter), &request);
        assert!(OutputBuffer::take().capacity() >= LARGE, "the next response uses it");
    }
}
