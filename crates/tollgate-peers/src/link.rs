//! One connection to another node, replaced when it breaks.
//!
//! Calls are pipelined: all calls that wait are written at once, and replies come in their order. A
//! connection is usable after the other node has answered a ping on it, so a process that is stopped,
//! a stranger, a wrong password and a peer of another version are noticed before the first call.
//!
//! While a node cannot be reached, calls to it fail immediately, and one attempt at a time is made to
//! reach it: this is the circuit breaker of its keys. A connection that has been silent for several
//! deadlines is closed, because a node that vanishes does not close its connections.
//!
//! A call whose caller has stopped waiting may still charge. When its reply arrives, its charges are
//! undone.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::rustls::pki_types::ServerName;
use tollgate_core::{Span, Timestamp};
use tollgate_store::Answer;
use tollgate_store::undo_check;

use crate::calls::{CallGroup, Replies};
use crate::failure::Failure;
use crate::peer::{Counts, Remote};
use crate::resp::{self, Frame};
use crate::settings::PEER_USER;
use crate::wire::{self, Call, Reply};

/// The maximum number of calls that wait to be written, and of calls without a reply, before the last group.
const MAX_QUEUED: usize = 8 * 1024;
const MAX_IN_FLIGHT: usize = 8 * 1024;
/// The number of groups that are taken from the queue together. A pipeline has at most 128 calls.
const MAX_WRITTEN_GROUPS: usize = 64;
/// The number of bytes of calls that are written together.
const WRITE_BYTES: usize = 64 * 1024;
/// The maximum time to connect and to authenticate.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two attempts to connect, which doubles each time.
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// The number of deadlines without a reply after which a connection is closed.
const MAX_SILENT_DEADLINES: u32 = 2;

/// A connection that starts with the first call.
#[derive(Default)]
pub(crate) struct Link {
    sender: Mutex<Option<mpsc::Sender<QueuedCalls>>>,
    /// The number of calls that wait to be written.
    queued: Arc<AtomicUsize>,
}

/// Calls that wait to be written together.
struct QueuedCalls {
    calls: CallGroup,
    waiter: oneshot::Sender<Replies>,
    _queued: QueuedCount,
}

impl QueuedCalls {
    /// Fails all calls.
    fn fail(self, failure: &Failure) {
        let replies = self.calls.failed(failure);
        drop(self.waiter.send(replies));
    }
}

/// Counts calls as queued until it is dropped.
struct QueuedCount {
    all: Arc<AtomicUsize>,
    calls: usize,
}

impl QueuedCount {
    /// Counts calls, unless too many wait.
    fn new(all: &Arc<AtomicUsize>, calls: usize) -> Option<Self> {
        // Relaxed: the number bounds memory, and no other memory depends on it.
        let count = Self { all: Arc::clone(all), calls };
        (all.fetch_add(calls, Ordering::Relaxed) + calls <= MAX_QUEUED).then_some(count)
    }
}

impl Drop for QueuedCount {
    fn drop(&mut self) {
        self.all.fetch_sub(self.calls, Ordering::Relaxed);
    }
}

/// Calls that were written together. Calls that undo a charge have no waiter.
struct InFlightCalls {
    calls: CallGroup,
    /// The replies that have arrived.
    replies: Replies,
    waiter: Option<oneshot::Sender<Replies>>,
    sent: Timestamp,
    sent_at: Instant,
}

impl Link {
    /// Sends calls together. Needs a Tokio runtime, on which the connection runs.
    pub(crate) fn send(&self, remote: &Arc<Remote>, calls: CallGroup) -> oneshot::Receiver<Replies> {
        let (waiter, replies) = oneshot::channel();
        let too_many = || Failure::refused(format!("too many calls wait for {}", remote.address));
        let Some(queued) = QueuedCount::new(&self.queued, calls.len()) else {
            drop(waiter.send(calls.failed(&too_many())));
            return replies;
        };
        let mut group = QueuedCalls { calls, waiter, _queued: queued };
        // No code panics while it holds the lock.
        let mut current = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*current {
            group = match sender.try_send(group) {
                Ok(()) => return replies,
                Err(mpsc::error::TrySendError::Full(group)) => {
                    group.fail(&too_many());
                    return replies;
                }
                // The runtime of the connection has shut down.
                Err(mpsc::error::TrySendError::Closed(group)) => group,
            };
        }
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        tokio::spawn(run(Arc::clone(remote), receiver));
        // A new channel has room.
        drop(sender.try_send(group));
        *current = Some(sender);
        replies
    }
}

/// The reason why a connection ended.
enum End {
    /// The other node is not needed any more.
    Dropped,
    /// The other node closed the connection while it was idle.
    Idle,
    /// The connection broke, with the reason.
    Broken(String),
}

/// Connects, and serves calls until all senders are gone.
async fn run(remote: Arc<Remote>, mut calls: mpsc::Receiver<QueuedCalls>) {
    let (mut backoff, mut why) = (MIN_BACKOFF, None::<Arc<str>>);
    loop {
        let connecting = async {
            timeout(CONNECT_TIMEOUT, connect(&remote))
                .await
                .unwrap_or_else(|_| Err(format!("no connection within {CONNECT_TIMEOUT:?}")))
        };
        let connected = match &why {
            // The first attempt delays no call beyond its deadline.
            None => connecting.await,
            Some(why) => match failing(&mut calls, why, connecting).await {
                Some(connected) => connected,
                None => return,
            },
        };
        let reason = match connected {
            Ok(stream) => {
                (backoff, why) = (MIN_BACKOFF, None);
                if remote.is_down.swap(false, Ordering::Relaxed) {
                    tracing::info!(peer = %remote.address, "a peer is back");
                }
                Counts::add(&remote.dial.counts.connections);
                match Connection::new(&remote, stream).run(&mut calls).await {
                    End::Dropped => return,
                    End::Idle => continue,
                    End::Broken(reason) => reason,
                }
            }
            Err(reason) => reason,
        };
        if !remote.is_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(peer = %remote.address, error = reason, "a peer cannot be reached: its keys are decided as `on_outage` says");
        }
        let reason: Arc<str> = format!("{}: {reason}", remote.address).into();
        if failing(&mut calls, &reason, sleep(backoff)).await.is_none() {
            return;
        }
        backoff = (2 * backoff).min(MAX_BACKOFF);
        why = Some(reason);
    }
}

/// Refuses all calls until the future is ready. Returns `None` if all senders are gone.
async fn failing<T>(
    calls: &mut mpsc::Receiver<QueuedCalls>,
    why: &Arc<str>,
    until: impl Future<Output = T>,
) -> Option<T> {
    let mut until = pin!(until);
    loop {
        tokio::select! {
            biased;
            group = calls.recv() => group?.fail(&Failure::Refused(Arc::clone(why))),
            done = &mut until => return Some(done),
        }
    }
}

/// A stream, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects, authenticates, and checks that a peer answers.
async fn connect(remote: &Remote) -> Result<Box<dyn Stream>, String> {
    let (address, dial) = (&remote.address, &remote.dial);
    let text = |error: io::Error| error.to_string();
    let stream = TcpStream::connect((&*address.host, address.port)).await.map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    let mut stream: Box<dyn Stream> = match &dial.tls {
        None => Box::new(stream),
        Some(tls) => {
            let host = dial.server_name.as_ref().unwrap_or(&address.host).clone();
            let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
            Box::new(tls.connect(name, stream).await.map_err(text)?)
        }
    };
    let mut buffer = BytesMut::new();
    if let Some(password) = &dial.password {
        let mut out = Vec::new();
        resp::command(&mut out, &[b"AUTH", PEER_USER.as_bytes(), password.as_bytes()]);
        match exchange(&mut stream, &out, &mut buffer).await? {
            OwnedFrame::Simple => {}
            OwnedFrame::Error(error) => return Err(format!("the password of the peers is refused: {error}")),
            OwnedFrame::Bulk(_) => return Err(NOT_A_PEER.to_owned()),
        }
    }
    let mut out = Vec::new();
    resp::call(&mut out, &wire::encode_ping());
    let sent = dial.clock.now();
    match exchange(&mut stream, &out, &mut buffer).await? {
        OwnedFrame::Error(error) => Err(error),
        OwnedFrame::Bulk(bytes) => match Reply::decode(&bytes) {
            Ok(Reply::Pong(at)) => {
                remote.offset.observe(sent, at, dial.clock.now());
                Ok(stream)
            }
            _ => Err(NOT_A_PEER.to_owned()),
        },
        OwnedFrame::Simple => Err(NOT_A_PEER.to_owned()),
    }
}

/// A reply during the handshake.
enum OwnedFrame {
    Bulk(Vec<u8>),
    Simple,
    Error(String),
}

const NOT_A_PEER: &str = "the address is not of a Tollgate peer";

/// Sends a command, and reads its reply.
async fn exchange(
    stream: &mut Box<dyn Stream>,
    command: &[u8],
    buffer: &mut BytesMut,
) -> Result<OwnedFrame, String> {
    stream.write_all(command).await.map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
    loop {
        match resp::next(buffer) {
            Ok(Some((frame, length))) => {
                let frame = match frame {
                    Frame::Bulk(bytes) => OwnedFrame::Bulk(bytes.to_vec()),
                    Frame::Simple(_) => OwnedFrame::Simple,
                    Frame::Error(error) => OwnedFrame::Error(error),
                };
                buffer.advance(length);
                return Ok(frame);
            }
            Ok(None) => {}
            Err(resp::Malformed) => return Err(NOT_A_PEER.to_owned()),
        }
        if stream.read_buf(buffer).await.map_err(|error| error.to_string())? == 0 {
            return Err("the connection was closed".to_owned());
        }
    }
}

struct Connection<'r> {
    remote: &'r Remote,
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    in_flight: VecDeque<InFlightCalls>,
    /// The number of calls in `in_flight`.
    unanswered: usize,
    /// Bytes to write, and the number of those that were written.
    out: Vec<u8>,
    written: usize,
    buffer: BytesMut,
    received_at: Instant,
}

impl<'r> Connection<'r> {
    fn new(remote: &'r Remote, stream: Box<dyn Stream>) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            remote,
            reader,
            writer,
            in_flight: VecDeque::new(),
            unanswered: 0,
            out: Vec::new(),
            written: 0,
            buffer: BytesMut::new(),
            received_at: Instant::now(),
        }
    }

    async fn run(mut self, calls: &mut mpsc::Receiver<QueuedCalls>) -> End {
        let end = self.serve(calls).await;
        let why = if let End::Broken(why) = &end { why.as_str() } else { "the connection was closed" };
        let failure = Failure::failed(format!("{}: {why}", self.remote.address));
        for InFlightCalls { calls, mut replies, waiter, .. } in self.in_flight.drain(..) {
            if let Some(waiter) = waiter {
                // Replies that have arrived count.
                replies.resize_with(calls.len(), || Err(failure.clone()));
                drop(waiter.send(replies));
            }
        }
        end
    }

    async fn serve(&mut self, calls: &mut mpsc::Receiver<QueuedCalls>) -> End {
        let mut tick = interval(self.remote.dial.deadline);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut queued = Vec::new();
        loop {
            let has_room = self.unanswered < MAX_IN_FLIGHT && self.out.len() < WRITE_BYTES;
            tokio::select! {
                read = self.reader.read_buf(&mut self.buffer) => match read {
                    Ok(1..) => {
                        if let Err(end) = self.take_replies() {
                            return end;
                        }
                    }
                    Ok(_) if self.in_flight.is_empty() => return End::Idle,
                    Ok(_) => return End::Broken("the connection was closed".to_owned()),
                    Err(error) => return End::Broken(error.to_string()),
                },
                written = self.writer.write(&self.out[self.written..]), if !self.out.is_empty() => match written {
                    Ok(some @ 1..) => {
                        self.written += some;
                        if self.written == self.out.len() {
                            self.out.clear();
                            self.written = 0;
                            if let Err(error) = self.writer.flush().await {
                                return End::Broken(error.to_string());
                            }
                        }
                    }
                    Ok(_) => return End::Broken("the connection was closed".to_owned()),
                    Err(error) => return End::Broken(error.to_string()),
                },
                count = calls.recv_many(&mut queued, MAX_WRITTEN_GROUPS), if has_room => {
                    if count == 0 {
                        return End::Dropped;
                    }
                    let now = self.now();
                    queued.drain(..).for_each(|group| self.write(group.calls, Some(group.waiter), now));
                }
                now = tick.tick() => {
                    let limit = self.remote.dial.deadline * MAX_SILENT_DEADLINES;
                    let is_silent = |group: &InFlightCalls| now - group.sent_at.max(self.received_at) > limit;
                    if self.in_flight.front().is_some_and(is_silent) {
                        return End::Broken("the node has stopped answering".to_owned());
                    }
                }
            }
        }
    }

    /// Returns the time on the clock of this node, and for timeouts.
    fn now(&self) -> (Timestamp, Instant) {
        (self.remote.dial.clock.now(), Instant::now())
    }

    /// Adds calls to the bytes to write, unless their caller has stopped waiting.
    fn write(
        &mut self,
        mut calls: CallGroup,
        waiter: Option<oneshot::Sender<Replies>>,
        (sent, sent_at): (Timestamp, Instant),
    ) {
        if calls.is_empty() || waiter.as_ref().is_some_and(oneshot::Sender::is_closed) {
            return;
        }
        let Remote { dial, offset, .. } = self.remote;
        if waiter.is_some() {
            let void_after = sent + Span::from(dial.deadline) + Span::from(dial.deadline);
            calls.void_after(void_after.shifted(offset.ahead()));
        }
        self.out.extend_from_slice(calls.bytes());
        self.unanswered += calls.len();
        let replies = Replies::with_capacity(calls.len());
        self.in_flight.push_back(InFlightCalls { calls, replies, waiter, sent, sent_at });
    }

    /// Passes the replies that have arrived to their callers.
    fn take_replies(&mut self) -> Result<(), End> {
        let malformed = || End::Broken(NOT_A_PEER.to_owned());
        let (received, received_at) = self.now();
        self.received_at = received_at;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut used = 0;
        while let Some((frame, length)) = resp::next(&buffer[used..]).map_err(|_| malformed())? {
            used += length;
            let group = self.in_flight.front_mut().ok_or_else(malformed)?;
            let reply = match frame {
                Frame::Bulk(bytes) => Ok(Reply::decode(bytes).map_err(|_| malformed())?),
                // An error of the session: the call was not executed.
                Frame::Error(error) => Err(Failure::refused(format!("{}: {error}", self.remote.address))),
                Frame::Simple(_) => return Err(malformed()),
            };
            if let Ok(reply) = &reply
                && let Some(at) = reply.at()
            {
                self.remote.offset.observe(group.sent, at, received);
            }
            group.replies.push(reply);
            self.unanswered -= 1;
            if group.replies.len() < group.calls.len() {
                continue;
            }
            let Some(InFlightCalls { calls, replies, waiter: Some(waiter), .. }) = self.in_flight.pop_front()
            else {
                continue;
            };
            if let Err(replies) = waiter.send(replies) {
                for (index, reply) in replies.iter().enumerate().rev() {
                    if let Ok(Reply::Decided(answer, renewed)) = reply {
                        self.undo(calls.payload(index), answer, renewed);
                    }
                }
            }
        }
        buffer.advance(used);
        self.buffer = buffer;
        Ok(())
    }

    /// Undoes the charges of a batch whose caller has stopped waiting.
    fn undo(&mut self, payload: &[u8], answer: &Answer, renewed: &[usize]) {
        let Ok((Call::Decide(checks), _)) = Call::decode(payload) else { return };
        if !answer.admitted {
            return;
        }
        let now = self.now();
        // The last charge first: a queue takes back only its last place.
        for (place, (check, outcome)) in checks.iter().zip(&answer.outcomes).enumerate().rev() {
            let undo = undo_check(check.amount, outcome, renewed.contains(&place), answer.at);
            if let Some(undo) = undo {
                let call = wire::encode_adjust(&check.rule, &check.key, (undo, None));
                self.write(CallGroup::one(&call), None, now);
            }
        }
    }
}
