//! Measures how long a connection has been waiting for its client.
//!
//! A timer for each request would cost more than the limiter. Instead, a connection records when it
//! started to wait and why. One timer reads these records when it fires, and rearms itself.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::caps::Caps;
use crate::drain::DrainFlag;

/// The wait times of a connection.
///
/// One task reads and writes it, except for responses that end elsewhere. No other data is
/// published through it, so relaxed ordering is sufficient.
#[derive(Debug)]
pub(crate) struct ConnTimer {
    start: Instant,
    /// Set for HTTP/1.1, where bytes between two requests are the start of a head and a response
    /// can close its connection; tells when to do that.
    heads_until: Option<DrainFlag>,
    /// The number of requests in progress.
    running: AtomicU32,
    /// Since when no request is in progress, in milliseconds since the start of the connection.
    idle_since: AtomicU64,
    /// When the first byte of the next head arrived; `UNSET` before that.
    head_since: AtomicU64,
    /// Since when the client reads nothing; `UNSET` while it reads.
    stalled_since: AtomicU64,
    /// Whether the sending side is being closed.
    ends: AtomicBool,
    /// Whether a response was aborted.
    cut: AtomicBool,
    /// Whether the connection has changed to another protocol.
    upgraded: AtomicBool,
    /// Since when each HTTP/2 response has been waiting for its client; a single stream can stall
    /// on a working connection. Finished entries are removed when there are too many.
    offers: Mutex<Vec<Weak<AtomicU64>>>,
}

const UNSET: u64 = u64::MAX;

/// The idle time after which a connection releases its buffers.
pub(crate) const REST_AFTER: Duration = Duration::from_millis(300);

/// The time in milliseconds within which the upload of a refused request would have continued.
const REFUSED_UPLOAD_GRACE_MS: u64 = 500;

/// The reason of a client timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTimeout {
    /// No next request: the connection was idle for too long.
    Idle,
    /// An incomplete request head.
    Head,
    /// A response that the client does not read.
    Taking,
}

impl ConnTimer {
    /// Creates the timer of an HTTP/1.1 connection, which waits for its first head.
    pub(crate) fn of_heads(ending: DrainFlag) -> Arc<Self> {
        // The timeout of the first head starts with the connection.
        Self::new(Some(ending), 0)
    }

    /// Creates the timer of an HTTP/2 connection. Frames between requests are not heads, so only
    /// idle time is measured.
    pub(crate) fn of_frames() -> Arc<Self> {
        Self::new(None, UNSET)
    }

    fn new(heads_until: Option<DrainFlag>, head_since: u64) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            heads_until,
            running: AtomicU32::new(0),
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(head_since),
            stalled_since: AtomicU64::new(UNSET),
            ends: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            upgraded: AtomicBool::new(false),
            offers: Mutex::default(),
        })
    }

    /// Returns the milliseconds since the start of the connection.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(UNSET - 1)
    }

    /// Records that bytes were read.
    pub(crate) fn read(&self) {
        if self.heads_until.is_some()
            && self.running.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == UNSET
        {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Records that bytes were written.
    pub(crate) fn wrote(&self) {
        if self.stalled_since.load(Ordering::Relaxed) != UNSET {
            self.stalled_since.store(UNSET, Ordering::Relaxed);
        }
    }

    /// Records that a write is blocked.
    pub(crate) fn blocked(&self) {
        if self.stalled_since.load(Ordering::Relaxed) == UNSET {
            self.stalled_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Whether there has been no request, and no byte of the next one, for a while.
    pub(crate) fn is_long_idle(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == UNSET
            && self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed)) > REFUSED_UPLOAD_GRACE_MS
    }

    /// Whether the connection has been idle long enough to release its buffers.
    pub(crate) fn is_resting(&self) -> bool {
        let quiet = self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed));
        self.running.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == UNSET
            && !self.is_stalled()
            && !self.ends.load(Ordering::Relaxed)
            && quiet >= u64::try_from(REST_AFTER.as_millis()).unwrap_or(UNSET)
    }

    /// Records that the sending side is being closed.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// The remaining time that a resting connection may stay idle.
    pub(crate) fn rest_left(&self, caps: &Caps) -> Duration {
        let quiet = self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed));
        caps.idle.saturating_sub(Duration::from_millis(quiet))
    }

    /// Whether the client does not read bytes that are ready for it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_since.load(Ordering::Relaxed) != UNSET
    }

    /// Records that a response was aborted.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Whether a response was aborted.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Whether a request is in progress.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Whether the connection has changed to another protocol.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }

    /// Records a complete head; its request is in progress until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(UNSET, Ordering::Relaxed);
        let offer = self.heads_until.is_none().then(|| self.new_offer());
        RequestGuard { conn_timer: Arc::clone(self), offer }
    }

    /// Records a request that was answered as soon as its head was complete. `has_next`: bytes of the next one have
    /// arrived.
    pub(crate) fn served(&self, has_next: bool) {
        let arrived = match self.head_since.load(Ordering::Relaxed) {
            UNSET => self.now(),
            // Milliseconds do not matter here, and a clock is not read.
            since if !has_next => since,
            _ => self.now(),
        };
        self.idle_since.store(arrived, Ordering::Relaxed);
        self.head_since.store(if has_next { arrived } else { UNSET }, Ordering::Relaxed);
    }

    /// Records that a request was in progress at this time of the connection.
    pub(crate) fn active(&self, now: u64) {
        self.idle_since.store(now, Ordering::Relaxed);
    }

    fn new_offer(&self) -> Arc<AtomicU64> {
        let offer = Arc::new(AtomicU64::new(UNSET));
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        if offers.len() == offers.capacity() {
            offers.retain(|it| it.strong_count() > 0);
        }
        offers.push(Arc::downgrade(&offer));
        offer
    }

    /// Since when the longest waiting response has been waiting for its client.
    fn oldest_offer(&self) -> u64 {
        let offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = offers.iter().filter_map(Weak::upgrade).map(|it| it.load(Ordering::Relaxed));
        waiting.min().unwrap_or(UNSET)
    }

    /// Returns the timeout that the client has exceeded, or the time until the next check.
    pub(crate) fn late(&self, caps: &Caps) -> Result<Duration, ClientTimeout> {
        let now = self.now();
        let left = |since: u64, most: Duration| {
            let deadline = since.saturating_add(u64::try_from(most.as_millis()).unwrap_or(UNSET));
            (deadline > now).then(|| Duration::from_millis(deadline - now))
        };
        let stalled = self.stalled_since.load(Ordering::Relaxed).min(self.oldest_offer());
        let stalled_left = match stalled {
            UNSET => caps.stalled,
            since => left(since, caps.stalled).ok_or(ClientTimeout::Taking)?,
        };
        if self.running.load(Ordering::Relaxed) > 0 {
            return Ok(stalled_left.min(shortest(caps)));
        }
        match self.head_since.load(Ordering::Relaxed) {
            UNSET => left(self.idle_since.load(Ordering::Relaxed), caps.idle).ok_or(ClientTimeout::Idle),
            since => left(since, caps.head).ok_or(ClientTimeout::Head),
        }
        // A head may start at any time and may then be due earlier than the idle timeout.
        .map(|wait| wait.min(stalled_left).min(caps.head))
    }
}

/// The interval of checks, so that waits that start in between are noticed in time.
pub(crate) fn shortest(caps: &Caps) -> Duration {
    caps.head.min(caps.idle).min(caps.stalled)
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    conn_timer: Arc<ConnTimer>,
    offer: Option<Arc<AtomicU64>>,
}

impl RequestGuard {
    /// Whether its response is to be the last of its connection.
    pub(crate) fn is_last(&self) -> bool {
        self.conn_timer.heads_until.as_ref().is_some_and(DrainFlag::has_begun)
    }

    /// Records that its response changes the protocol of the connection.
    pub(crate) fn upgraded(&self) {
        self.conn_timer.upgraded.store(true, Ordering::Relaxed);
    }

    /// Records that a part of its response is ready for the client.
    pub(crate) fn offered(&self) {
        if let Some(offer) = &self.offer {
            offer.store(self.conn_timer.now(), Ordering::Relaxed);
        }
    }

    /// Records that the client has read it and waits for the next part.
    pub(crate) fn wanted(&self) {
        if let Some(offer) = &self.offer {
            offer.store(UNSET, Ordering::Relaxed);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.conn_timer.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.conn_timer.idle_since.store(self.conn_timer.now(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_timeout_is_measured_separately() {
        let caps = Caps {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            stalled: Duration::from_secs(60),
            ..Caps::default()
        };
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let conn_timer = ConnTimer::of_heads(crate::Drain::new().1.ending());
        pass(9).await;
        assert_eq!(conn_timer.late(&caps), Ok(Duration::from_secs(1)));
        pass(1).await;
        assert_eq!(conn_timer.late(&caps), Err(ClientTimeout::Head), "nothing was ever said");

        let running = conn_timer.begin();
        pass(500).await;
        assert!(conn_timer.late(&caps).is_ok(), "a request runs");
        conn_timer.blocked();
        pass(59).await;
        assert!(conn_timer.late(&caps).is_ok());
        pass(1).await;
        assert_eq!(conn_timer.late(&caps), Err(ClientTimeout::Taking));
        conn_timer.wrote();
        assert!(conn_timer.late(&caps).is_ok());

        drop(running);
        pass(74).await;
        assert!(conn_timer.late(&caps).is_ok());
        conn_timer.read();
        pass(9).await;
        assert!(conn_timer.late(&caps).is_ok(), "a head has started");
        pass(1).await;
        assert_eq!(conn_timer.late(&caps), Err(ClientTimeout::Head));

        drop(conn_timer.begin());
        pass(75).await;
        assert_eq!(conn_timer.late(&caps), Err(ClientTimeout::Idle));

        let conn_timer = ConnTimer::of_frames();
        let (one, other) = (conn_timer.begin(), conn_timer.begin());
        one.offered();
        pass(59).await;
        assert!(conn_timer.late(&caps).is_ok());
        one.wanted();
        other.offered();
        pass(59).await;
        assert!(conn_timer.late(&caps).is_ok());
        pass(1).await;
        assert_eq!(conn_timer.late(&caps), Err(ClientTimeout::Taking), "one answer is not taken");
        drop((one, other));

        let conn_timer = ConnTimer::of_frames();
        conn_timer.read();
        pass(74).await;
        assert_eq!(conn_timer.late(&caps), Ok(Duration::from_secs(1)), "a frame is no head");
        pass(1).await;
        assert_eq!(conn_timer.late(&caps), Err(ClientTimeout::Idle));
    }
}
