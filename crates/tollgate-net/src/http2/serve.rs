//! The connection loop: reads frames, writes replies, and watches timeouts and the drain.
//!
//! The timer and the drain are polled outside of the budget of the task: the budget refuses every poll after a client
//! has kept its socket full, and a refused poll neither registers the task nor tells that the time has come.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::task::{unconstrained, yield_now};
use tokio::time::{Instant, sleep, timeout};

use super::GrpcSurface;
use super::session::{ConnectionError, Scratch, Session};
use crate::caps::Caps;
use crate::conn_timer::{ClientTimeout, ConnTimer, shortest};
use crate::drain::{Drain, Phase};
use crate::http1::{Buffer, OutputBuffer};
use crate::wire::Wire;

/// The interval of pings on a quiet connection with requests in progress, and the time to answer one.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The interval of checks whether a client that sends no more has closed its socket.
const CLOSED_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The number of reads of a connection before others get a turn. A client that keeps to the maximum number of streams
/// rarely fills one buffer.
const MAX_READS: u32 = 4;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum Http2End {
    Closed,
    Late(ClientTimeout),
    Failed(io::Error),
}

/// The next step of the loop.
enum Step {
    /// The last frames are written, and the connection is closed.
    Close,
    End(Http2End),
}

struct Loop<'c, G> {
    wire: Wire,
    session: Session<G>,
    conn_timer: &'c ConnTimer,
    caps: &'c Caps,
    /// Bytes of an incomplete frame.
    input: Option<Buffer>,
    /// Bytes that the socket has not taken yet.
    unsent: Bytes,
    is_flushed: bool,
    /// Since when the socket has not taken all bytes that TLS has.
    unflushed_since: Option<u64>,
    /// When bytes arrived last, in milliseconds of the connection.
    read_at: u64,
    /// When a ping was sent that is not answered.
    pinged_at: Option<u64>,
    /// Since when the start of a connection, or a header block, is incomplete.
    head_since: Option<u64>,
    input_state: InputState,
    closes: bool,
}

/// Whether the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    Open,
    /// It sends no more; the next check of the times is to be earlier than planned.
    Ending,
    Ended,
}

/// Serves a connection until it ends.
pub(crate) async fn serve<G: GrpcSurface>(
    wire: Wire,
    surface: Arc<G>,
    conn_timer: &ConnTimer,
    caps: &Caps,
    drain: &mut Drain,
) -> Http2End {
    let mut first = Vec::with_capacity(64);
    let session = Session::new(surface, caps, &mut first);
    let mut connection = Loop {
        wire,
        session,
        conn_timer,
        caps,
        input: None,
        unsent: first.into(),
        is_flushed: false,
        unflushed_since: None,
        read_at: 0,
        pinged_at: None,
        head_since: Some(0),
        input_state: InputState::Open,
        closes: false,
    };
    let mut timer = pin!(sleep(shortest(caps)));
    let flag = drain.ending();
    let mut draining = pin!(drain.reached(Phase::Draining));
    // Waiting for the drain is costly, so it is polled once, and again when there is a reason.
    let (mut is_draining, mut polls_drain) = (false, true);
    let step = poll_fn(|cx| {
        loop {
            if let Poll::Ready(step) = connection.poll(cx) {
                return Poll::Ready(step);
            }
            if connection.input_state == InputState::Ending {
                connection.input_state = InputState::Ended;
                timer.as_mut().reset(Instant::now() + CLOSED_CHECK_INTERVAL);
            }
            if !is_draining && (polls_drain || flag.has_begun()) {
                polls_drain = false;
                if pin!(unconstrained(draining.as_mut())).poll(cx).is_ready() {
                    is_draining = true;
                    connection.write(Session::begin_shutdown);
                    continue;
                }
            }
            if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                return Poll::Pending;
            }
            polls_drain = true;
            match connection.check_times() {
                Ok(wait) => timer.as_mut().reset(Instant::now() + wait),
                Err(late) => return Poll::Ready(Step::End(Http2End::Late(late))),
            }
        }
    })
    .await;
    match step {
        Step::End(end) => end,
        Step::Close => {
            // Requests that are not answered end here.
            let Loop { mut wire, session, .. } = connection;
            drop(session);
            let _ = timeout(caps.head, wire.shutdown()).await;
            Http2End::Closed
        }
    }
}

impl<G: GrpcSurface> Loop<'_, G> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let mut reads = 0;
        loop {
            // Nothing is read while the client does not read.
            if let Err(error) = ready!(self.poll_write(cx)) {
                return Poll::Ready(Step::End(Http2End::Failed(error)));
            }
            if self.closes || self.session.is_finished() {
                return Poll::Ready(Step::Close);
            }
            if self.session.takes_turn() || reads >= MAX_READS {
                // Unlike a wake, this also lets the runtime look for other sockets first.
                let _ = pin!(yield_now()).poll(cx);
                return Poll::Pending;
            }
            reads += 1;
            let mut out = OutputBuffer::take();
            self.handle_events(cx, &mut out);
            let is_pending = match self.poll_read(cx, &mut out) {
                Poll::Ready(Ok(true)) => false,
                Poll::Ready(Ok(false)) => {
                    self.end_input(&mut out);
                    false
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Step::End(Http2End::Failed(error))),
                Poll::Pending => true,
            };
            if out.is_empty() {
                if is_pending {
                    return Poll::Pending;
                }
                continue;
            }
            self.send(cx, &out);
        }
    }

    fn handle_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        let conn_timer = self.conn_timer;
        if let Some(now) = self.session.handle_events(|| conn_timer.now(), cx, out) {
            conn_timer.active(now);
        }
    }

    /// Reads and handles frames. `false`: the client has closed the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<bool>> {
        if self.input_state != InputState::Open {
            return Poll::Pending;
        }
        let mut buffer = self.input.take().unwrap_or_else(Buffer::take);
        let read = buffer.poll_fill(Pin::new(&mut self.wire), u64::MAX, cx);
        match read {
            Poll::Ready(Ok(1..)) => {}
            Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                self.input = Some(buffer).filter(|it| !it.is_empty());
                return Poll::Pending;
            }
        }
        let now = self.conn_timer.now();
        self.session.set_now(now);
        (self.read_at, self.pinged_at) = (now, None);
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let answered = self.session.answered();
        let received = self.session.receive(buffer.unread(), &mut scratch, cx, out);
        SCRATCH.set(Some(scratch));
        match received {
            Ok(used) => buffer.consume(used),
            Err(error) => {
                self.end(error, out);
                return Poll::Ready(Ok(true));
            }
        }
        if self.session.has_streams() || self.session.answered() != answered {
            self.conn_timer.active(now);
        }
        self.head_since = if self.session.is_in_head() { self.head_since.or(Some(now)) } else { None };
        // A frame is slightly larger than a buffer.
        buffer.grow();
        self.input = Some(buffer).filter(|it| !it.is_empty());
        Poll::Ready(Ok(true))
    }

    /// Continues with the requests that have arrived completely: a client that only sends no more reads their responses.
    fn end_input(&mut self, out: &mut Vec<u8>) {
        self.input_state = InputState::Ending;
        self.session.end_input(out);
        // It can answer no ping, so it gets the time to answer one.
        (self.head_since, self.pinged_at) = (None, Some(self.conn_timer.now()));
    }

    fn end(&mut self, error: ConnectionError, out: &mut Vec<u8>) {
        tracing::debug!(reason = ?error.0, "HTTP/2 connection error");
        self.session.write_error(error, out);
        self.closes = true;
    }

    /// Writes as much as the socket takes, and keeps the rest.
    fn send(&mut self, cx: &mut Context<'_>, mut out: &[u8]) {
        self.is_flushed = false;
        if self.unsent.is_empty() {
            while !out.is_empty() {
                match Pin::new(&mut self.wire).poll_write(cx, out) {
                    Poll::Ready(Ok(count @ 1..)) => out = &out[count..],
                    // The error is found again by the next attempt.
                    Poll::Ready(_) | Poll::Pending => break,
                }
            }
            self.unsent = Bytes::copy_from_slice(out);
        } else {
            self.unsent = [&self.unsent, out].concat().into();
        }
    }

    /// Adds frames that are sent by the next [`poll`](Self::poll).
    fn write(&mut self, frames: impl FnOnce(&mut Session<G>, &mut Vec<u8>)) {
        let mut out = OutputBuffer::take();
        self.session.set_now(self.conn_timer.now());
        frames(&mut self.session, &mut out);
        if !out.is_empty() {
            self.is_flushed = false;
            self.unsent = [&self.unsent, &out[..]].concat().into();
        }
    }

    /// Writes the bytes that the socket did not take before.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.wire).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.unsent.advance(count),
            }
        }
        self.unsent = Bytes::new();
        if !self.is_flushed {
            // TLS takes bytes before the socket does.
            let Poll::Ready(flushed) = Pin::new(&mut self.wire).poll_flush(cx) else {
                self.unflushed_since.get_or_insert_with(|| self.conn_timer.now());
                self.conn_timer.blocked();
                return Poll::Pending;
            };
            flushed?;
            (self.is_flushed, self.unflushed_since) = (true, None);
            self.conn_timer.wrote();
        }
        Poll::Ready(Ok(()))
    }

    /// Checks all timeouts, and returns the time until the next check.
    fn check_times(&mut self) -> Result<Duration, ClientTimeout> {
        let now = self.conn_timer.now();
        let left =
            |since: u64, max: Duration| max.saturating_sub(Duration::from_millis(now.saturating_sub(since)));
        let mut next = shortest(self.caps);
        if self.input_state != InputState::Open {
            // A client that has closed its socket has refused the last frame.
            self.closes |= self.wire.is_broken();
            next = CLOSED_CHECK_INTERVAL;
        }
        if let Some(since) = self.head_since {
            match left(since, self.caps.head) {
                Duration::ZERO => return Err(ClientTimeout::Head),
                wait => next = next.min(wait),
            }
        }
        if let Some(since) = self.unflushed_since {
            match left(since, self.caps.stalled) {
                Duration::ZERO => return Err(ClientTimeout::Taking),
                wait => next = next.min(wait),
            }
        }
        let mut is_taken = Ok(());
        let caps = self.caps;
        self.write(|session, out| is_taken = session.check_times(caps, out));
        is_taken.map_err(|()| ClientTimeout::Taking)?;
        match self.conn_timer.late(caps) {
            Ok(wait) => next = next.min(wait),
            Err(ClientTimeout::Idle) if self.session.has_streams() => {}
            Err(ClientTimeout::Idle) => self.write(Session::begin_shutdown),
            Err(late) => return Err(late),
        }
        if self.session.has_streams() {
            let wait = match self.pinged_at {
                Some(since) => match left(since, PING_INTERVAL) {
                    Duration::ZERO => return Err(ClientTimeout::Idle),
                    wait => wait,
                },
                None => match left(self.read_at, PING_INTERVAL) {
                    Duration::ZERO => {
                        self.pinged_at = Some(now);
                        self.write(|_, out| Session::<G>::write_keep_alive(out));
                        PING_INTERVAL
                    }
                    wait => wait,
                },
            };
            next = next.min(wait);
        }
        Ok(next.min(self.session.next_check(caps)).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{HeaderMap, Request, Response};
    use http_body_util::Empty;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::coop::consume_budget;
    use tokio::time::advance;
    use tokio_util::either::Either;

    use super::*;
    use crate::http2::{GrpcTimeout, Http2Body, UnaryCall};

    /// A surface without unary methods that answers no request.
    struct SilentSurface;

    impl GrpcSurface for SilentSurface {
        type Body = Empty<Bytes>;

        fn unary_method(&self, _: &[u8], _: &[u8]) -> Option<u8> {
            None
        }

        fn call(&self, _: u8, _: Bytes, _: GrpcTimeout) -> UnaryCall {
            Box::pin(pending())
        }

        fn answer(
            &self,
            _: Request<Http2Body>,
        ) -> impl Future<Output = Response<Empty<Bytes>>> + Send + 'static {
            pending()
        }

        fn check_partial(&self, _: &[u8]) -> Result<(), HeaderMap> {
            Ok(())
        }

        fn full_refusal(&self) -> HeaderMap {
            HeaderMap::new()
        }

        fn max_time(&self) -> Duration {
            Duration::from_secs(30)
        }

        fn late_refusal(&self) -> HeaderMap {
            HeaderMap::new()
        }
    }

    /// Serves a connection whose first polls have no budget, as after endless input.
    async fn serve_busy(stream: TcpStream, mut drain: Drain, mut busy_polls: usize) -> Http2End {
        let (conn_timer, caps) = (ConnTimer::of_frames(), Caps::default());
        let wire = Wire::new(Either::Left(stream), Bytes::new(), Arc::clone(&conn_timer), None);
        let mut serving = pin!(serve(wire, Arc::new(SilentSurface), &conn_timer, &caps, &mut drain));
        poll_fn(|cx| {
            if busy_polls > 0 {
                busy_polls -= 1;
                while pin!(consume_budget()).poll(cx).is_ready() {}
            }
            serving.as_mut().poll(cx)
        })
        .await
    }

    async fn socket_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_reaches_a_connection_that_is_always_busy() {
        let (_client, stream) = socket_pair().await;
        let (_drainer, drain) = Drain::new();
        let serving = tokio::spawn(serve_busy(stream, drain, usize::MAX));
        tokio::task::yield_now().await;
        // The connection wakes itself, so the clock moves only here.
        advance(Caps::default().head).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(serving.is_finished(), "it is still served");
        let end = serving.await.unwrap();
        assert!(matches!(end, Http2End::Late(ClientTimeout::Head)), "{end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_reaches_a_connection_that_was_busy_at_its_start() {
        let (mut client, stream) = socket_pair().await;
        let (drainer, drain) = Drain::new();
        let serving = tokio::spawn(serve_busy(stream, drain, 1));
        let mut settings = [0; 34];
        client.read_exact(&mut settings).await.unwrap();
        let started_at = Instant::now();
        drainer.begin();
        let mut announcement = [0; 9];
        client.read_exact(&mut announcement).await.unwrap();
        assert_eq!(announcement[3], 7, "GOAWAY");
        assert!(started_at.elapsed() < Duration::from_secs(1), "{:?}", started_at.elapsed());
        serving.abort();
    }

    #[tokio::test]
    async fn a_connection_that_sends_without_end_gives_others_a_turn() {
        let (mut client, stream) = socket_pair().await;
        // Unknown frames, as many as the socket takes; then the rest of the last one, and a ping.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        client.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()).await.unwrap();
        let frame = [&[0, 0x40, 0, 77, 0, 0, 0, 0, 0][..], &[0; 16_384]].concat();
        let mut sent = 0;
        while let Ok(count) = client.try_write(&frame[sent % frame.len()..]) {
            sent += count;
        }
        let (_drainer, mut drain) = Drain::new();
        let serving = tokio::spawn(async move {
            let (conn_timer, caps, mut turns) = (ConnTimer::of_frames(), Caps::default(), 0);
            let wire = Wire::new(Either::Left(stream), Bytes::new(), Arc::clone(&conn_timer), None);
            let mut serving = pin!(serve(wire, Arc::new(SilentSurface), &conn_timer, &caps, &mut drain));
            let end = poll_fn(|cx| {
                turns += 1;
                serving.as_mut().poll(cx)
            });
            assert!(matches!(end.await, Http2End::Closed));
            turns
        });
        client.write_all(&frame[sent % frame.len()..]).await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        let turns = serving.await.unwrap();
        let least = sent / (MAX_READS as usize * 16_384);
        assert!(least > 4 && turns >= least, "{turns} turns for {sent} bytes");
    }
}
