//! The connection loop for plain HTTP/1.1 requests.
//!
//! It ends when the connection ends, or when a request is left to hyper: the bytes of that request are put back.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::buffer::{BUFFER_BYTES, Buffer, OutputBuffer};
use super::client::{BodyRest, Http1Client};
use super::request_head::{ParsedRequest, RequestBody, RequestHead};
use super::watch::{Interrupt, Watch};
use super::{ExchangeEnd, Http1Surface, Verdict, header_space};
use crate::caps::Caps;
use crate::conn_timer::{ClientTimeout, ConnTimer, shortest};
use crate::drain::{Drain, Phase};
use crate::wire::Wire;

/// The number of bytes of responses to pipelined requests that are written together.
const MAX_BATCHED_BYTES: usize = 32 * 1024;

/// The part of a request that a 408 names.
pub(crate) const HEAD: &str = "head of the request";

/// How the loop ended.
pub(crate) enum Http1End {
    /// hyper serves the connection from here.
    HandOver,
    Closed,
    Late(ClientTimeout),
    Failed(io::Error),
}

/// The next step after the requests in the buffer.
#[derive(Clone, Copy)]
enum Step {
    /// The rest of a head is missing.
    Read,
    /// The rest of a body is missing that the surface needs for its decision.
    ReadBody,
    /// There are more requests in the buffer.
    Again,
    HandOver,
    /// The connection ends after the responses so far.
    Close,
}

/// A request whose response follows those that are written already.
struct Forwarded<A> {
    admitted: A,
    body: RequestBody,
    /// Whether its response is the last one.
    is_last: bool,
}

/// Serves requests until the connection ends or hyper takes over. The wire is borrowed, because a future keeps every
/// argument that it owns twice.
pub(crate) async fn serve<F: Http1Surface>(
    wire: &mut Wire,
    surface: &F,
    conn_timer: &Arc<ConnTimer>,
    caps: &Caps,
    drain: &mut Drain,
) -> Http1End {
    let flag = drain.ending();
    let mut watch = Watch {
        timer: pin!(sleep(shortest(caps))),
        closing: pin!(drain.reached(Phase::Closing)),
        drain: flag,
        conn_timer,
        caps,
        has_timer: false,
        watches_drain: false,
        is_closing: false,
    };
    let mut input: Option<Buffer> = None;
    let mut late_part = HEAD;
    loop {
        let read = poll_fn(|cx| match poll_read(wire, &mut input, cx) {
            Poll::Ready(read) => Poll::Ready(Ok(read)),
            Poll::Pending => watch.poll(cx).map(Err),
        });
        match read.await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Http1End::Closed,
            Ok(Err(error)) => return Http1End::Failed(error),
            Err(Interrupt::Late(ClientTimeout::Head)) => {
                let _ = Box::pin(timeout(caps.head, send_request_timeout(wire, late_part))).await;
                return Http1End::Late(ClientTimeout::Head);
            }
            // A request has started to arrive.
            Err(Interrupt::Closing) if input.is_some() => return hand_over(wire, input),
            Err(Interrupt::Closing | Interrupt::Late(ClientTimeout::Idle)) => return close(wire, caps).await,
            Err(Interrupt::Late(late)) => return Http1End::Late(late),
        }
        loop {
            let mut out = OutputBuffer::take();
            let step = match answer(surface, &mut input, caps, watch.drain.has_begun(), &mut out) {
                Ok(step) => step,
                Err(request) => {
                    late_part = HEAD;
                    // Boxed, so that an idle connection stays small.
                    match Box::pin(exchange(surface, request, out, wire, &mut input, &mut watch)).await {
                        Ok(ExchangeEnd::Complete) => {}
                        Ok(ExchangeEnd::Close) => return close(wire, caps).await,
                        Ok(ExchangeEnd::Abort) => return Http1End::Closed,
                        Err(end) => return end,
                    }
                    if input.is_none() {
                        break;
                    }
                    conn_timer.read();
                    continue;
                }
            };
            if !out.is_empty() {
                conn_timer.served(input.is_some());
                match write(wire, out, &mut watch).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Http1End::Failed(error),
                    Err(late) => return Http1End::Late(late),
                }
            }
            match step {
                Step::Read | Step::ReadBody if input.as_ref().is_some_and(Buffer::is_full) => {
                    return hand_over(wire, input);
                }
                Step::Read => {
                    late_part = HEAD;
                    break;
                }
                Step::ReadBody => {
                    late_part = "body";
                    break;
                }
                Step::Again => {}
                Step::HandOver => return hand_over(wire, input),
                Step::Close => return close(wire, caps).await,
            }
        }
    }
}

/// Writes the responses before a request that is forwarded, and then its response.
async fn exchange<F: Http1Surface, C: Future<Output = ()>>(
    surface: &F,
    request: Forwarded<F::Admitted>,
    out: OutputBuffer,
    wire: &mut Wire,
    input: &mut Option<Buffer>,
    watch: &mut Watch<'_, C>,
) -> Result<ExchangeEnd, Http1End> {
    let conn_timer = watch.conn_timer;
    if out.is_empty() {
        // Not kept while the request waits or is forwarded: it may have grown for the response to another one.
        drop(out);
    } else {
        conn_timer.served(input.is_some());
        match write(wire, out, watch).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Http1End::Failed(error)),
            Err(late) => return Err(Http1End::Late(late)),
        }
    }
    let Forwarded { admitted, body, is_last } = request;
    let running = conn_timer.begin();
    let mut client = Http1Client { wire, conn_timer, input, body: BodyRest::of(body), is_last, running };
    Ok(surface.forward(admitted, &mut client).await)
}

/// Reads more of a request. `false`: the client has closed the connection.
fn poll_read(wire: &mut Wire, input: &mut Option<Buffer>, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
    let mut buffer = input.take().unwrap_or_else(Buffer::take);
    let read = buffer.poll_fill(Pin::new(wire), u64::MAX, cx);
    if !buffer.is_empty() {
        *input = Some(buffer);
    }
    read.map_ok(|count| count > 0)
}

/// Decides the requests in the buffer. Returns the request that is forwarded, if there is one, before the next are
/// decided.
fn answer<F: Http1Surface>(
    surface: &F,
    input: &mut Option<Buffer>,
    caps: &Caps,
    is_draining: bool,
    out: &mut Vec<u8>,
) -> Result<Step, Forwarded<F::Admitted>> {
    let Some(buffer) = input else { return Ok(Step::Read) };
    let step = loop {
        if buffer.is_empty() {
            break Step::Read;
        }
        let (bytes, mut space) = (buffer.unread(), header_space());
        let (mut head, length) = match RequestHead::parse(bytes, &mut space, caps.headers) {
            ParsedRequest::Complete(head, length) if length <= caps.header_bytes => (head, length),
            ParsedRequest::Partial if bytes.len() < caps.header_bytes => break Step::Read,
            _ => break Step::HandOver,
        };
        let (body, rest) = (head.body, head.ahead);
        let body_length = body.complete_length(rest);
        head.is_last |= is_draining;
        head.is_last_if_answered = head.is_last || body_length.is_none();
        if let RequestBody::Length(wanted) = body
            && surface.needs_body(&head)
        {
            match body_length {
                Some(body_length) => head.whole_body = Some(&rest[..body_length]),
                None if wanted <= (BUFFER_BYTES - length) as u64 => break Step::ReadBody,
                None => break Step::HandOver,
            }
        }
        let (is_last, is_last_if_answered) = (head.is_last, head.is_last_if_answered);
        match surface.decide(&mut head, out) {
            Verdict::Admitted(admitted) => {
                buffer.consume(length);
                if buffer.is_empty() {
                    *input = None;
                }
                return Err(Forwarded { admitted, body, is_last });
            }
            Verdict::HandOver => break Step::HandOver,
            Verdict::Answered if is_last_if_answered => break Step::Close,
            // The connection ends if the body is not complete.
            Verdict::Answered => buffer.consume(length + body_length.unwrap_or(0)),
        }
        if out.len() >= MAX_BATCHED_BYTES {
            break Step::Again;
        }
    };
    if buffer.is_empty() {
        *input = None;
    }
    Ok(step)
}

/// Writes responses completely, or returns the timeout of a client that does not read them.
async fn write<F: Future<Output = ()>>(
    wire: &mut Wire,
    mut out: OutputBuffer,
    watch: &mut Watch<'_, F>,
) -> Result<io::Result<()>, ClientTimeout> {
    let mut written = 0;
    poll_fn(|cx| {
        loop {
            let done = if written < out.len() {
                Pin::new(&mut *wire).poll_write(cx, &out[written..])
            } else {
                Pin::new(&mut *wire).poll_flush(cx).map_ok(|()| 0)
            };
            match done {
                Poll::Ready(Ok(0)) if written < out.len() => {
                    return Poll::Ready(Ok(Err(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(Ok(()))),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Ok(Err(error))),
                Poll::Pending => return watch.poll_late(cx).map(Err),
            }
        }
    })
    .await
    .inspect(|_| out.clear())
}

/// Closes the connection after its last response. The time is bounded: a TLS session cannot say goodbye to a client that
/// reads nothing.
async fn close(wire: &mut Wire, caps: &Caps) -> Http1End {
    let _ = Box::pin(timeout(caps.stalled, wire.shutdown())).await;
    Http1End::Closed
}

/// Puts unread bytes back, so that hyper reads them.
fn hand_over(wire: &mut Wire, input: Option<Buffer>) -> Http1End {
    if let Some(input) = input {
        wire.unread(input.unread());
    }
    Http1End::HandOver
}

/// Sends a 408: a part of the request, its head or its body, did not arrive.
pub(crate) async fn send_request_timeout(wire: &mut Wire, part: &str) {
    let body = format!(
        r#"{{"title":"Request Timeout","status":408,"detail":"the {part} did not arrive in time; send it at once"}}"#
    );
    let answer = format!(
        "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len(),
    );
    if wire.write_all(answer.as_bytes()).await.is_ok() {
        let _ = wire.shutdown().await;
    }
}
