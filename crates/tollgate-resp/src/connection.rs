//! The life of one connection: read what is there, answer all of it with one write, and so on.
//!
//! Nothing is read while a client does not take its replies. A connection has one timer, which is not set for
//! each read: it looks, when it fires, whether a command has come since it last fired.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::Store;
use tollgate_net::{Drain, Stream};

use crate::metrics::CloseReason;
use crate::pending::PendingReplies;
use crate::server::Inner;
use crate::session::{MAX_REPLY_BYTES, Progress, Session};
use crate::settings::RespSettings;

/// After how much quiet a connection gives its buffers back.
const IDLE_BUFFER_TIMEOUT: Duration = Duration::from_secs(1);
/// How much is read at once, and of those who have yet to give the password.
const READ_BYTES: usize = 16 * 1024;
const UNAUTHENTICATED_READ_BYTES: usize = 1024;
/// How long a client may take to read what is ready for it when everything ends, and how much of what it goes
/// on sending is answered.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_DISCARDED_BYTES: usize = 1 << 20;

/// How a connection came to its end.
enum End {
    /// It is to be closed, after what was said last.
    Close,
    /// It is broken, or its client has gone.
    Gone,
    /// Its client takes nothing.
    Stalled,
}

struct Connection<S> {
    stream: Stream,
    session: Session<S>,
    drain: Drain,
    /// When everything ends, when its client is given up.
    gives_up: Option<Instant>,
    buffer: BytesMut,
    out: Vec<u8>,
    waiting: PendingReplies,
    /// Whether a command has come since the timer last fired.
    is_active: bool,
}

pub(crate) async fn serve<S: Store>(stream: Stream, drain: Drain, inner: Arc<Inner<S>>) {
    let session = Session::new(inner, stream.peer());
    let mut connection = Connection {
        stream,
        session,
        drain: drain.clone(),
        gives_up: None,
        buffer: BytesMut::new(),
        out: Vec::new(),
        waiting: PendingReplies::default(),
        is_active: true,
    };
    let end = connection.run(drain).await;
    let Connection { stream, session, .. } = connection;
    match end {
        End::Close => stream.close().await,
        End::Gone => drop(stream),
        End::Stalled => {
            session.inner.counters.close(CloseReason::Stalled);
            stream.reset();
        }
    }
}

impl<S: Store> Connection<S> {
    async fn run(&mut self, mut drain: Drain) -> End {
        let RespSettings { idle, handshake, .. } = self.session.inner.settings;
        let mut closing = pin!(drain.closing());
        let mut timer = pin!(sleep(IDLE_BUFFER_TIMEOUT.min(idle)));
        let mut acquaintance = pin!(sleep(handshake));
        let (mut is_resting, mut was_stranger) = (false, true);
        loop {
            tokio::select! {
                biased;
                () = &mut closing => return self.finish().await,
                () = &mut acquaintance, if self.session.is_stranger => {
                    self.session.inner.counters.close(CloseReason::Stranger);
                    return End::Close;
                }
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return End::Gone,
                },
                () = &mut timer => {
                    let active = std::mem::take(&mut self.is_active);
                    if !active && is_resting {
                        self.session.inner.counters.close(CloseReason::Idle);
                        return End::Close;
                    }
                    is_resting = !active;
                    if is_resting {
                        self.rest();
                    }
                    let wait = if active { IDLE_BUFFER_TIMEOUT.min(idle) } else { idle.saturating_sub(IDLE_BUFFER_TIMEOUT) };
                    timer.as_mut().reset(Instant::now() + wait);
                    continue;
                }
            }
            if let Some(end) = self.answer().await {
                return end;
            }
            if is_resting && self.is_active {
                is_resting = false;
                timer.as_mut().reset(Instant::now() + IDLE_BUFFER_TIMEOUT.min(idle));
            }
            // Whoever asks to be forgotten is to give the password again.
            if !was_stranger && self.session.is_stranger {
                acquaintance.as_mut().reset(Instant::now() + handshake);
            }
            was_stranger = self.session.is_stranger;
        }
    }

    /// Answers all complete commands in the buffer, and makes room for more.
    async fn answer(&mut self) -> Option<End> {
        loop {
            let (used, progress) = self.session.run(&self.buffer, &mut self.out, &mut self.waiting);
            self.buffer.advance(used);
            self.is_active |= used > 0;
            if !self.waiting.is_empty() {
                self.waiting.all(&mut self.session.tally, &mut self.out).await;
            }
            self.session.inner.counters.add(&mut self.session.tally);
            if !self.out.is_empty() {
                match self.send().await {
                    Ok(true) => self.out.clear(),
                    Ok(false) => return Some(End::Stalled),
                    Err(_) => return Some(End::Gone),
                }
                // One large reply is no reason to keep as much.
                self.out.shrink_to(2 * MAX_REPLY_BYTES);
            }
            match progress {
                Progress::Done => break,
                // Others come first who have asked for less.
                Progress::More => yield_now().await,
                Progress::Close => return Some(End::Close),
                Progress::Malformed => {
                    self.session.inner.counters.close(CloseReason::Malformed);
                    return Some(End::Close);
                }
            }
        }
        let read = if self.session.is_stranger { UNAUTHENTICATED_READ_BYTES } else { READ_BYTES };
        if self.buffer.capacity() - self.buffer.len() < read / 4 {
            self.buffer.reserve(read);
        }
        None
    }

    /// The end of everything: what has arrived by now is answered, and no more than [`MAX_DISCARDED_BYTES`] of a client
    /// that goes on sending.
    async fn finish(&mut self) -> End {
        let mut left = MAX_DISCARDED_BYTES;
        loop {
            let arrived = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.buffer) => read,
                // What has arrived since the runtime last looked is seen only when it has looked again.
                () = tokio::task::yield_now() => Ok(0),
            };
            let end = match arrived {
                Ok(some @ 1..) if some < left => {
                    left -= some;
                    self.answer().await
                }
                Ok(1..) => Some(self.answer().await.unwrap_or(End::Close)),
                Ok(0) => Some(End::Close),
                Err(_) => Some(End::Gone),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Sends all replies. False if the client did not take them in time; a timer is only set for one that does
    /// not take them at once.
    async fn send(&mut self) -> io::Result<bool> {
        let (stream, bytes) = (&mut self.stream, &self.out);
        let mut written = 0;
        let all = poll_fn(|cx| {
            match Pin::new(&mut *stream).poll_write(cx, bytes) {
                Poll::Ready(some) => written = some?,
                Poll::Pending => {}
            }
            let flushed = Pin::new(&mut *stream).poll_flush(cx);
            Poll::Ready(match flushed {
                Poll::Ready(result) => result.map(|()| written == bytes.len()),
                Poll::Pending => Ok(false),
            })
        })
        .await?;
        if all {
            return Ok(true);
        }
        let rest = async {
            stream.write_all(&bytes[written..]).await?;
            stream.flush().await
        };
        let RespSettings { stalled, handshake, .. } = self.session.inner.settings;
        let stalled = if self.session.is_stranger { handshake } else { stalled };
        let (drain, gives_up) = (&mut self.drain, &mut self.gives_up);
        let late = async {
            tokio::select! {
                () = drain.closing() => {
                    sleep_until(*gives_up.get_or_insert_with(|| Instant::now() + FLUSH_TIMEOUT)).await;
                }
                () = sleep(stalled) => {}
            }
        };
        tokio::select! {
            biased;
            sent = rest => sent.map(|()| true),
            () = late => Ok(false),
        }
    }

    /// Gives memory back that only a busy connection needs.
    fn rest(&mut self) {
        self.out = Vec::new();
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        self.session.rest();
    }
}
