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
use tokio::time::{Instant, sleep, timeout};
use tollgate::Store;
use tollgate_net::{Drain, Stream};

use crate::metrics::Closed;
use crate::server::Inner;
use crate::session::{Progress, Session};
use crate::waiting::Waiting;

/// After how much quiet a connection gives its buffers back.
const REST: Duration = Duration::from_secs(1);
/// How much is read at once.
const READ: usize = 16 * 1024;

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
    buffer: BytesMut,
    out: Vec<u8>,
    waiting: Waiting,
    /// Whether a command has come since the timer last fired.
    is_active: bool,
}

pub(crate) async fn serve<S: Store>(stream: Stream, drain: Drain, inner: Arc<Inner<S>>) {
    let session = Session::new(inner, stream.peer());
    let mut connection = Connection {
        stream,
        session,
        buffer: BytesMut::new(),
        out: Vec::new(),
        waiting: Waiting::default(),
        is_active: true,
    };
    let end = connection.run(drain).await;
    let Connection { stream, session, .. } = connection;
    match end {
        End::Close => stream.close().await,
        End::Gone => drop(stream),
        End::Stalled => {
            session.inner.counters.close(Closed::Stalled);
            stream.reset();
        }
    }
}

impl<S: Store> Connection<S> {
    async fn run(&mut self, mut drain: Drain) -> End {
        let idle = self.session.inner.settings.idle;
        let mut closing = pin!(drain.closing());
        let mut timer = pin!(sleep(REST.min(idle)));
        let mut is_resting = false;
        loop {
            tokio::select! {
                biased;
                () = &mut closing => return self.finish().await,
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return End::Gone,
                },
                () = &mut timer => {
                    let active = std::mem::take(&mut self.is_active);
                    if !active && is_resting {
                        self.session.inner.counters.close(Closed::Idle);
                        return End::Close;
                    }
                    is_resting = !active;
                    if is_resting {
                        self.rest();
                    }
                    let wait = if active { REST.min(idle) } else { idle.saturating_sub(REST) };
                    timer.as_mut().reset(Instant::now() + wait);
                    continue;
                }
            }
            if let Some(end) = self.answer().await {
                return end;
            }
            if is_resting && self.is_active {
                is_resting = false;
                timer.as_mut().reset(Instant::now() + REST.min(idle));
            }
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
            let inner = &self.session.inner;
            inner.counters.add(&mut self.session.tally);
            if !self.out.is_empty() {
                match send(&mut self.stream, &self.out, inner.settings.stalled).await {
                    Ok(true) => self.out.clear(),
                    Ok(false) => return Some(End::Stalled),
                    Err(_) => return Some(End::Gone),
                }
            }
            match progress {
                Progress::Done => break,
                Progress::More => {}
                Progress::Close => return Some(End::Close),
                Progress::Malformed => {
                    inner.counters.close(Closed::Malformed);
                    return Some(End::Close);
                }
            }
        }
        if self.buffer.capacity() - self.buffer.len() < READ / 4 {
            self.buffer.reserve(READ);
        }
        None
    }

    /// The end of everything: what has arrived by now is answered, and nothing more.
    async fn finish(&mut self) -> End {
        let arrived = tokio::select! {
            biased;
            read = self.stream.read_buf(&mut self.buffer) => read,
            () = std::future::ready(()) => Ok(0),
        };
        match arrived {
            Ok(1..) => self.answer().await.unwrap_or(End::Close),
            Ok(0) => End::Close,
            Err(_) => End::Gone,
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

/// Sends all of it. False if the client did not take it in time; a timer is only set for one that does not
/// take it at once.
async fn send(stream: &mut Stream, bytes: &[u8], stalled: Duration) -> io::Result<bool> {
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
    match timeout(stalled, rest).await {
        Ok(sent) => sent.map(|()| true),
        Err(_late) => Ok(false),
    }
}
