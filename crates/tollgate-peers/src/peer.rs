//! Another node, with the connections to it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tollgate_core::Timestamp;
use tollgate_store::Clock;

use crate::calls::{CallGroup, Replies};
use crate::clock_offset::ClockOffset;
use crate::failure::Failure;
use crate::link::Link;
use crate::settings::Address;
use crate::threads::{self, LINKS};
use crate::wire::Reply;

/// How this node reaches all others.
pub(crate) struct Dial {
    pub(crate) password: Option<String>,
    pub(crate) tls: Option<TlsConnector>,
    /// The name that certificates are issued for, if it is not the host of each node.
    pub(crate) server_name: Option<String>,
    pub(crate) deadline: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counts: Counts,
}

/// The counts of calls, by their result.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) not_holder: AtomicU64,
    /// States that were copied from earlier holders.
    pub(crate) carried: AtomicU64,
    /// Keys whose states were lost with their holder.
    pub(crate) lost: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Another node, as its connections see it.
pub(crate) struct Remote {
    pub(crate) address: Address,
    pub(crate) dial: Arc<Dial>,
    pub(crate) offset: ClockOffset,
    /// Whether the last attempt to reach it failed.
    pub(crate) is_down: AtomicBool,
}

/// Another node. Its connections end when it is dropped.
pub(crate) struct Peer {
    remote: Arc<Remote>,
    links: [Link; LINKS],
}

impl Deref for Peer {
    type Target = Remote;

    fn deref(&self) -> &Remote {
        &self.remote
    }
}

/// The replies to calls that were sent.
pub(crate) struct SentCalls {
    replies: oneshot::Receiver<Replies>,
    count: usize,
}

/// The reply to a call that was sent.
pub(crate) struct SentCall(SentCalls);

impl SentCalls {
    /// Waits for the replies, up to this time. There is one for each call.
    async fn within(self, time: Duration) -> Replies {
        let failed = |failure: Failure| (0..self.count).map(|_| Err(failure.clone())).collect();
        match timeout(time, self.replies).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(_)) => failed(Failure::failed("the runtime of the connection has shut down")),
            Err(_) => failed(Failure::TimedOut(time)),
        }
    }
}

impl SentCall {
    /// Waits for the reply, up to this time.
    pub(crate) async fn within(self, time: Duration) -> Result<Reply, Failure> {
        only(self.0.within(time).await)
    }
}

/// Returns the reply to a call that was sent alone.
pub(crate) fn only(replies: Replies) -> Result<Reply, Failure> {
    replies.into_iter().next().unwrap_or_else(|| Err(Failure::failed(INCOMPLETE)))
}

/// The error if a reply is not one to the call.
pub(crate) const INCOMPLETE: &str = "the reply of a peer is incomplete";

impl Peer {
    pub(crate) fn new(address: Address, dial: &Arc<Dial>) -> Arc<Self> {
        let (dial, offset) = (Arc::clone(dial), ClockOffset::default());
        let remote = Arc::new(Remote { address, dial, offset, is_down: AtomicBool::new(false) });
        Arc::new(Self { remote, links: std::array::from_fn(|_| Link::default()) })
    }

    /// Creates a peer for tests that have no sockets.
    #[cfg(test)]
    pub(crate) fn unconnected(address: &Address) -> Arc<Self> {
        let dial = Dial {
            password: None,
            tls: None,
            server_name: None,
            deadline: Duration::from_secs(1),
            clock: Arc::new(tollgate_store::SystemClock::new()),
            counts: Counts::default(),
        };
        Self::new(address.clone(), &Arc::new(dial))
    }

    /// Sends a call on the connection of this thread. The caller has to wait for its reply with
    /// [`received`](Self::received).
    pub(crate) fn send(&self, payload: &[u8]) -> SentCall {
        SentCall(self.send_all(CallGroup::one(payload)))
    }

    /// Sends several calls together on the connection of this thread. The caller has to wait for their replies
    /// with [`received_all`](Self::received_all).
    pub(crate) fn send_all(&self, calls: CallGroup) -> SentCalls {
        let count = calls.len();
        self.dial.counts.calls.fetch_add(count as u64, Ordering::Relaxed);
        SentCalls { replies: self.links[threads::number()].send(&self.remote, calls), count }
    }

    /// Waits for the reply to a call, up to the deadline.
    pub(crate) async fn received(&self, SentCall(sent): SentCall) -> Result<Reply, Failure> {
        only(self.received_all(sent).await)
    }

    /// Waits for the replies to calls that were sent together, up to the deadline. There is one for each.
    pub(crate) async fn received_all(&self, sent: SentCalls) -> Replies {
        let mut replies = sent.within(self.dial.deadline).await;
        for reply in &mut replies {
            if let Ok(Reply::Late) = reply {
                *reply = Err(Failure::refused(format!("the call reached {} too late", self.address)));
            }
            if reply.is_err() {
                Counts::add(&self.dial.counts.failures);
            }
        }
        replies
    }

    /// Converts a time of its clock to the clock of this node.
    pub(crate) fn to_local(&self, at: Timestamp) -> Timestamp {
        at.shifted(self.offset.ahead().saturating_neg())
    }
}
