//! One connection: reads the available commands, answers them with one write, and repeats.
//!
//! Nothing is read while a client does not read its replies. A connection has one timer, which is
//! not reset for each read: when it fires, it checks whether a command has arrived since it last
//! fired.
//!
//! Most connections are idle, so their future is small: steps that are rarely awaited are on the heap.
//! Tested by `an_idle_connection_is_small`.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::Store;
use tollgate_net::http1::OutputBuffer;
use tollgate_net::{Drain, Stream};

use crate::input::Input;
use crate::metrics::CloseReason;
use crate::pending::PendingReplies;
use crate::server::Inner;
use crate::session::{MAX_REPLY_BYTES, Progress, Session};
use crate::settings::RespSettings;

/// The idle time after which a connection releases its buffers.
const IDLE_BUFFER_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of bytes per read, after and before authentication.
const READ_BYTES: usize = 16 * 1024;
const UNAUTHENTICATED_READ_BYTES: usize = 1024;
/// How long a client may take to read its replies during a drain, and how many bytes of further
/// commands are answered.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_DISCARDED_BYTES: usize = 1 << 20;

/// The reason why a connection ended.
enum End {
    /// The connection is closed after the last reply.
    Close,
    /// The connection broke, or the client closed it.
    Gone,
    /// The client does not read its replies.
    Stalled,
}

struct Connection<S> {
    stream: Stream,
    session: Session<S>,
    drain: Drain,
    /// When the connection is closed during a drain.
    gives_up: Option<Instant>,
    input: Input,
    /// Whether a command has arrived since the timer last fired.
    is_active: bool,
}

pub(crate) async fn serve<S: Store>(stream: Stream, drain: Drain, inner: Arc<Inner<S>>) {
    let session = Session::new(inner, stream.peer());
    let mut connection = Connection {
        stream,
        session,
        drain: drain.clone(),
        gives_up: None,
        input: Input::default(),
        is_active: true,
    };
    let end = connection.run(drain).await;
    let Connection { stream, session, .. } = connection;
    match end {
        End::Close => Box::pin(stream.close()).await,
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
        let mut authentication = pin!(sleep(handshake));
        let (mut is_resting, mut was_unauthenticated) = (false, true);
        loop {
            let most = self.max_read_bytes();
            let (stream, input) = (&mut self.stream, &mut self.input);
            tokio::select! {
                biased;
                () = &mut closing => return Box::pin(self.finish()).await,
                () = &mut authentication, if self.session.is_unauthenticated => {
                    self.session.inner.counters.close(CloseReason::Unauthenticated);
                    return End::Close;
                }
                read = poll_fn(|cx| input.poll_fill(Pin::new(&mut *stream), most, cx)) => match read {
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
                        self.session.rest();
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
            // After `RESET` the client has to authenticate again.
            if !was_unauthenticated && self.session.is_unauthenticated {
                authentication.as_mut().reset(Instant::now() + handshake);
            }
            was_unauthenticated = self.session.is_unauthenticated;
        }
    }

    /// The maximum number of bytes of the next read.
    const fn max_read_bytes(&self) -> usize {
        if self.session.is_unauthenticated { UNAUTHENTICATED_READ_BYTES } else { READ_BYTES }
    }

    /// Answers all complete commands that have arrived.
    async fn answer(&mut self) -> Option<End> {
        let mut out = OutputBuffer::take();
        loop {
            let progress = {
                let limiter = self.session.inner.limiter.load();
                let mut waiting = PendingReplies::new(&limiter);
                let (used, progress) = self.session.run(&limiter, self.input.bytes(), &mut out, &mut waiting);
                self.input.consume(used);
                self.is_active |= used > 0;
                if !waiting.is_empty() {
                    Box::pin(waiting.all(&mut self.session.tally, &mut out)).await;
                }
                progress
            };
            self.session.inner.counters.add(&mut self.session.tally);
            if !out.is_empty() {
                match self.send(&out).await {
                    Ok(true) => out.clear(),
                    Ok(false) => return Some(End::Stalled),
                    Err(_) => return Some(End::Gone),
                }
                // Releases memory after a large reply.
                out.shrink_to(2 * MAX_REPLY_BYTES);
            }
            match progress {
                Progress::Done => break,
                // Lets other connections run first.
                Progress::More => yield_now().await,
                Progress::Close => return Some(End::Close),
                Progress::Malformed => {
                    self.session.inner.counters.close(CloseReason::Malformed);
                    return Some(End::Close);
                }
            }
        }
        self.input.settle();
        None
    }

    /// Drains the connection: answers the commands that have arrived, and at most
    /// [`MAX_DISCARDED_BYTES`] of further ones.
    async fn finish(&mut self) -> End {
        let mut left = MAX_DISCARDED_BYTES;
        loop {
            let most = self.max_read_bytes();
            let (stream, input) = (&mut self.stream, &mut self.input);
            let arrived = tokio::select! {
                biased;
                read = poll_fn(|cx| input.poll_fill(Pin::new(&mut *stream), most, cx)) => read,
                // Bytes that arrived recently are visible only after the runtime has polled again.
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

    /// Sends all replies. Returns false if the client did not read them in time. The timer is set
    /// only if the first write does not complete.
    async fn send(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let stream = &mut self.stream;
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
        Box::pin(self.send_slowly(&bytes[written..])).await
    }

    /// Sends replies for which the socket has no room. Returns false if the client did not read them in time.
    async fn send_slowly(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let stream = &mut self.stream;
        let rest = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        let RespSettings { stalled, handshake, .. } = self.session.inner.settings;
        let stalled = if self.session.is_unauthenticated { handshake } else { stalled };
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
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::net::TcpStream;
    use tokio::sync::mpsc;
    use tollgate::{Limiter, Policy, SharedLimiter};
    use tollgate_net::StreamServer;

    use super::*;

    #[tokio::test]
    async fn an_idle_connection_is_small() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let limiter = SharedLimiter::from(Limiter::new(Policy::default()));
        let inner = Arc::new(Inner::new(limiter, RespSettings::default()));
        let (sizes, mut size) = mpsc::unbounded_channel();
        let serve = move |stream, drain| {
            let serving = serve(stream, drain, Arc::clone(&inner));
            sizes.send(size_of_val(&serving)).unwrap();
            serving
        };
        let server = StreamServer { connections: 1, handshake: Duration::from_secs(60), tls: None };
        let (_drainer, drain) = Drain::new();
        tokio::spawn(server.serve(listener, serve, drain));
        let _client = TcpStream::connect(address).await.unwrap();
        let size = size.recv().await.unwrap();
        assert!(size <= 2_048, "{size} bytes");
    }
}
