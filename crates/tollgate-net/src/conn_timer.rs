//! How long a connection has been waiting for its client.
//!
//! A timer for each request would cost more than the limiter. A connection
//! instead notes when it began to wait and for what, and has one timer that
//! looks at the notes when it fires and sets itself again.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::caps::Caps;
use crate::drain::DrainFlag;

/// What a connection notes about its waiting.
///
/// One task reads and writes it, but for answers that end elsewhere; nothing is
/// published through it, so no ordering is needed.
#[derive(Debug)]
pub(crate) struct ConnTimer {
    start: Instant,
    /// Where bytes between two requests are the beginning of a head, and an answer
    /// can close its connection: over HTTP/1.1, and when to do that.
    heads_until: Option<DrainFlag>,
    /// Requests that are being answered.
    running: AtomicU32,
    /// Since when no request is running, in milliseconds of this connection.
    idle_since: AtomicU64,
    /// When the first byte of the next head came; `UNSET` before that.
    head_since: AtomicU64,
    /// Since when the client takes nothing; `UNSET` while it does.
    stalled_since: AtomicU64,
    /// Whether our side is being closed.
    ends: AtomicBool,
    /// Whether an answer was cut off in its middle.
    cut: AtomicBool,
    /// Over HTTP/2 the connection may be fine and one answer not be taken: since
    /// when each is not. Those that are done are forgotten when there are too many.
    offers: Mutex<Vec<Weak<AtomicU64>>>,
}

const UNSET: u64 = u64::MAX;

/// After how much quiet a connection rests.
pub(crate) const REST_AFTER: Duration = Duration::from_millis(300);

/// After which an upload that was refused would have gone on, in milliseconds.
const REFUSED_UPLOAD_GRACE_MS: u64 = 500;

/// What a client was too slow with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTimeout {
    /// The next request: the connection was idle for too long.
    Idle,
    /// The rest of a request's head.
    Head,
    /// Taking an answer.
    Taking,
}

impl ConnTimer {
    /// HTTP/1.1: a connection that has just begun awaits its first head.
    pub(crate) fn of_heads(ending: DrainFlag) -> Arc<Self> {
        // Whoever connects has something to say.
        Self::new(Some(ending), 0)
    }

    /// HTTP/2: frames between requests are no heads, so only idleness is measured.
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
            offers: Mutex::default(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(UNSET - 1)
    }

    /// Bytes came in.
    pub(crate) fn read(&self) {
        if self.heads_until.is_some()
            && self.running.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == UNSET
        {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Bytes could go out.
    pub(crate) fn wrote(&self) {
        if self.stalled_since.load(Ordering::Relaxed) != UNSET {
            self.stalled_since.store(UNSET, Ordering::Relaxed);
        }
    }

    /// Bytes could not go out.
    pub(crate) fn blocked(&self) {
        if self.stalled_since.load(Ordering::Relaxed) == UNSET {
            self.stalled_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Whether nothing has been running, and nothing of a next request come, for a while.
    pub(crate) fn is_long_idle(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == UNSET
            && self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed)) > REFUSED_UPLOAD_GRACE_MS
    }

    /// Whether everything has been said and taken for so long that the next request
    /// may be a long time coming.
    pub(crate) fn is_resting(&self) -> bool {
        let quiet = self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed));
        self.running.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == UNSET
            && !self.is_stalled()
            && !self.ends.load(Ordering::Relaxed)
            && quiet >= u64::try_from(REST_AFTER.as_millis()).unwrap_or(UNSET)
    }

    /// Our side is being closed.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// How long a connection that rests may go on resting.
    pub(crate) fn rest_left(&self, caps: &Caps) -> Duration {
        let quiet = self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed));
        caps.idle.saturating_sub(Duration::from_millis(quiet))
    }

    /// Whether the client takes nothing of what is ready for it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_since.load(Ordering::Relaxed) != UNSET
    }

    /// An answer was cut off in its middle.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Whether an answer was cut off in its middle.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// A head is complete; its request runs until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(UNSET, Ordering::Relaxed);
        let offer = self.heads_until.is_none().then(|| self.new_offer());
        RequestGuard { conn_timer: Arc::clone(self), offer }
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

    /// Since when the answer that waits longest for its client has been waiting.
    fn oldest_offer(&self) -> u64 {
        let offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = offers.iter().filter_map(Weak::upgrade).map(|it| it.load(Ordering::Relaxed));
        waiting.min().unwrap_or(UNSET)
    }

    /// What the client is too late with, or how long to wait before asking again.
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
        // A head may begin at any time, and is then due earlier than the idle connection was.
        .map(|wait| wait.min(stalled_left).min(caps.head))
    }
}

/// How often to look, so that nothing that begins meanwhile is noticed too late.
pub(crate) fn shortest(caps: &Caps) -> Duration {
    caps.head.min(caps.idle).min(caps.stalled)
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    conn_timer: Arc<ConnTimer>,
    offer: Option<Arc<AtomicU64>>,
}

impl RequestGuard {
    /// Whether its answer is to be the last of its connection.
    pub(crate) fn is_last(&self) -> bool {
        self.conn_timer.heads_until.as_ref().is_some_and(DrainFlag::has_begun)
    }

    /// A piece of its answer is there for the client, who may take its time.
    pub(crate) fn offered(&self) {
        if let Some(offer) = &self.offer {
            offer.store(self.conn_timer.now(), Ordering::Relaxed);
        }
    }

    /// The client wants the next piece: now others are waited for.
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
    async fn a_client_is_late_with_one_thing_at_a_time() {
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
        assert!(conn_timer.late(&caps).is_ok(), "a head has begun");
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
