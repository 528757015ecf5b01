//! A request whose decision waits for the store: Redis, PostgreSQL or another node.
//!
//! The head stays in a copy of its bytes, because the buffer of the connection reads on. It is parsed again when the
//! decision is made, which costs less than the call to the store by far.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tollgate::{DetachedPending, Limiter, Store};
use tollgate_net::http1::{
    ExchangeEnd, Http1Client, MAX_HEADERS, OutputBuffer, ParsedRequest, RequestHead, header_space,
};

use super::request::{self, HeadLines};
use super::{ForwardedRequest, Http1Gateway, exchange, write_connection_lines};

/// A request without a decision.
pub(crate) struct WaitingRequest<S> {
    pending: DetachedPending<S>,
    /// The limiter that the request was matched by.
    limiter: Arc<Limiter<S>>,
    /// The head as received.
    head: OutputBuffer,
    /// Whether the connection ends after a refusal: the body has not arrived completely, or the client asked for it.
    is_last_if_refused: bool,
}

impl<S: Store> WaitingRequest<S> {
    pub(super) fn new(
        pending: DetachedPending<S>,
        limiter: Arc<Limiter<S>>,
        request: &RequestHead<'_, '_>,
    ) -> Self {
        let mut head = OutputBuffer::take();
        head.extend_from_slice(request.bytes);
        Self { pending, limiter, head, is_last_if_refused: request.is_last_if_answered }
    }

    /// Awaits the decision. Sends the refusal, or returns the request that is to be forwarded. A client that leaves
    /// ends the wait.
    pub(super) async fn finish(
        self,
        gateway: &Http1Gateway<S>,
        client: &mut Http1Client<'_>,
    ) -> Result<Box<ForwardedRequest>, ExchangeEnd> {
        let Self { pending, limiter, head, is_last_if_refused } = self;
        let (mut space, shared) = (header_space(), &gateway.shared);
        // The bytes were parsed before, so neither fails.
        let ParsedRequest::Complete(mut request, _) = RequestHead::parse(&head, &mut space, MAX_HEADERS)
        else {
            return Err(ExchangeEnd::Abort);
        };
        if !request::prepare(&mut request, &shared.override_headers) {
            return Err(ExchangeEnd::Abort);
        }
        let is_last = is_last_if_refused || client.is_last();
        let mut refusal = OutputBuffer::take();
        let decided = {
            let (policy, is_head) = (limiter.policy(), request.method == "HEAD");
            let lines = HeadLines(request.headers);
            let view = gateway.view(&request, &lines, policy);
            let write_lines = |out: &mut Vec<u8>| write_connection_lines(out, is_last);
            let mut deciding = pin!(pending.finish(Some(&view), |decision| {
                let out = (&mut *refusal, write_lines);
                shared.limit.conclude(&limiter, decision, (&lines, is_head), out)
            }));
            poll_fn(|cx| match deciding.as_mut().poll(cx) {
                Poll::Ready(decided) => Poll::Ready(Some(decided)),
                Poll::Pending => client.poll_left(cx).map(|()| None),
            })
            .await
        };
        let Some(admission) = decided else { return Err(ExchangeEnd::Abort) };
        if let Some(admission) = admission {
            return Ok(gateway.forwarded(&request, limiter.policy(), admission));
        }
        let is_last = is_last || !client.skip_body();
        Err(exchange::send(&shared.worker, client, &refusal, is_last).await)
    }
}
