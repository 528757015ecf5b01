//! The connection loop: reads frames, writes replies, and watches timeouts and the drain.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
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
    /// When bytes arrived last, in milliseconds of the connection.
    read_at: u64,
    /// When a ping was sent that is not answered.
    pinged_at: Option<u64>,
    /// Since when the start of a connection, or a header block, is incomplete.
    head_since: Option<u64>,
    closes: bool,
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
        read_at: 0,
        pinged_at: None,
        head_since: Some(0),
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
            if !is_draining && (polls_drain || flag.has_begun()) {
                polls_drain = false;
                if draining.as_mut().poll(cx).is_ready() {
                    is_draining = true;
                    connection.write(Session::begin_shutdown);
                    continue;
                }
            }
            if timer.as_mut().poll(cx).is_pending() {
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
            let Loop { mut wire, .. } = connection;
            // Requests that are not answered end here.
            let _ = timeout(caps.head, wire.shutdown()).await;
            Http2End::Closed
        }
    }
}

impl<G: GrpcSurface> Loop<'_, G> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            // Nothing is read while the client does not read.
            if let Err(error) = ready!(self.poll_write(cx)) {
                return Poll::Ready(Step::End(Http2End::Failed(error)));
            }
            if self.closes || self.session.is_finished() {
                return Poll::Ready(Step::Close);
            }
            let mut out = OutputBuffer::take();
            self.handle_events(cx, &mut out);
            let is_pending = match self.poll_read(cx, &mut out) {
                Poll::Ready(Ok(true)) => false,
                Poll::Ready(Ok(false)) => return Poll::Ready(Step::End(Http2End::Closed)),
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
        let Some(mailbox) = self.session.mailbox() else { return };
        let events = mailbox.take(cx.waker());
        if events.is_empty() {
            return;
        }
        // The next event wakes this connection, too.
        let mailbox = Arc::clone(mailbox);
        let now = self.conn_timer.now();
        self.session.set_now(now);
        let mut events = events;
        while !events.is_empty() {
            for (stream, event) in events {
                self.session.apply(stream, event, out);
            }
            events = mailbox.take(cx.waker());
        }
        self.conn_timer.active(now);
    }

    /// Reads and handles frames. `false`: the client has closed the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<bool>> {
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
            ready!(Pin::new(&mut self.wire).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Checks all timeouts, and returns the time until the next check.
    fn check_times(&mut self) -> Result<Duration, ClientTimeout> {
        let now = self.conn_timer.now();
        let left =
            |since: u64, max: Duration| max.saturating_sub(Duration::from_millis(now.saturating_sub(since)));
        let mut next = shortest(self.caps);
        if let Some(since) = self.head_since {
            match left(since, self.caps.head) {
                Duration::ZERO => return Err(ClientTimeout::Head),
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
