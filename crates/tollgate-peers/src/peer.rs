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

/// The reply to a call that was sent.
pub(crate) type SentCall = oneshot::Receiver<Result<Reply, Failure>>;

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
    pub(crate) fn send(&self, payload: Vec<u8>) -> SentCall {
        Counts::add(&self.dial.counts.calls);
        self.links[threads::number()].send(&self.remote, payload)
    }

    /// Waits for the reply to a call, up to the deadline.
    pub(crate) async fn received(&self, sent: SentCall) -> Result<Reply, Failure> {
        let reply = match timeout(self.dial.deadline, sent).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(Failure::failed("the runtime of the connection has shut down")),
            Err(_) => Err(Failure::TimedOut(self.dial.deadline)),
        };
        let reply = match reply {
            Ok(Reply::Late) => Err(Failure::refused(format!("the call reached {} too late", self.address))),
            reply => reply,
        };
        if reply.is_err() {
            Counts::add(&self.dial.counts.failures);
        }
        reply
    }

    /// Converts a time of its clock to the clock of this node.
    pub(crate) fn to_local(&self, at: Timestamp) -> Timestamp {
        at.shifted(self.offset.ahead().saturating_neg())
    }
}
