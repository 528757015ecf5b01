//! Slots of requests whose work may outlive the caller.
//!
//! When a caller disconnects, the response future and body are dropped. The work behind them may
//! continue: a remote service does not always notice, and a spawned task never does. Slots that are
//! released at that point no longer bound the work, and callers that disconnect early could start
//! any amount of it.
//!
//! The layer therefore puts a [`SlotGuard`] into the extensions of every request that holds a slot
//! of a limit with `on_hangup: hold`, and keeps a clone with the response. Slots are released and
//! costs settled when the last clone is dropped. The layer cannot detect whether work continues: if
//! the service does not keep the guard, the slots are released when its future is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Buf;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use tollgate::{Clock, Timestamp};

use crate::deferred::Deferred;
use crate::future::outcome_of;
use crate::header_lines::HeaderLines;
use crate::meter::ResponsePart;

/// Holds the slots of a request until its last clone is dropped. They are renewed until then.
///
/// It is in the extensions of a request that holds slots of a limit with `on_hangup: hold`, the
/// default. A service whose work continues after its future is dropped moves a clone into that
/// work:
///
/// ```
/// # use tollgate::{Call, Limiter, SharedLimiter};
/// # use tollgate_http::{LimitLayer, SlotGuard};
/// # use tower::{Layer as _, ServiceExt as _};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let limiter = SharedLimiter::from(Limiter::from_policy("limits: [{by: global, slots: 1}]").unwrap());
/// let service = tower::service_fn(|request: http::Request<()>| async move {
///     let guard = request.extensions().get::<SlotGuard>().cloned();
///     let work = tokio::spawn(async move {
///         let _guard = guard;                                  // dropped when the work is done
///         tokio::task::yield_now().await;
///     });
///     work.await.unwrap();
///     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
/// });
/// let service = LimitLayer::new(limiter.clone()).layer(service);
/// assert_eq!(service.oneshot(http::Request::new(())).await.unwrap().status(), 200);
/// # });
/// ```
#[derive(Clone)]
pub struct SlotGuard(Arc<Inner>);

struct Inner {
    deferred: Mutex<Deferred>,
    /// When the last of the slots expires, if it is not renewed.
    expires_at: Timestamp,
    /// The longest `ttl` of the slots.
    ttl: Duration,
    clock: Arc<dyn Clock>,
    /// The slots of an outer layer.
    outer: Option<SlotGuard>,
}

impl SlotGuard {
    pub(crate) fn new(
        deferred: Deferred,
        ttl: Duration,
        clock: &Arc<dyn Clock>,
        outer: Option<&Self>,
    ) -> Self {
        let (clock, outer) = (Arc::clone(clock), outer.cloned());
        Self(Arc::new(Inner {
            deferred: Mutex::new(deferred),
            expires_at: clock.now() + ttl.into(),
            ttl,
            clock,
            outer,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Deferred> {
        // A panic while the lock was held leaves work that can still be done.
        self.0.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time until the last of the slots expires if it is not renewed any more: at least two
    /// thirds of its `ttl`, because slots are renewed after each third. A service whose caller is gone
    /// stops its work after that time, so that a request that never ends does not hold its slot forever.
    pub fn time_left(&self) -> Duration {
        let own = Duration::from(self.0.expires_at.since(self.0.clock.now())).max(self.0.ttl / 3 * 2);
        self.0.outer.as_ref().map_or(own, |outer| own.max(outer.time_left()))
    }

    /// Drops this clone and keeps the slots until their `ttl`, for work whose end is unknown.
    pub fn leave_to_ttl(self) {
        self.lock().leave_slots();
        if let Some(outer) = self.0.outer.clone() {
            outer.leave_to_ttl();
        }
    }

    /// Records the status of a response whose caller is gone, for limits with a learned number of slots.
    pub fn observe_status(&self, status: StatusCode) {
        self.lock().complete(outcome_of(status));
        if let Some(outer) = &self.0.outer {
            outer.observe_status(status);
        }
    }

    /// Reads the head of a response whose caller is gone, so that a cost in its headers is settled.
    pub fn observe_head(&self, headers: &HeaderMap) {
        self.observe_part(&ResponsePart::Head(headers));
    }

    /// Reads a part of a response whose caller is gone, so that a cost in it is settled.
    pub fn observe_part<H: HeaderLines>(&self, part: &ResponsePart<'_, H>) {
        self.lock().meters().part(part);
        if let Some(outer) = &self.0.outer {
            outer.observe_part(part);
        }
    }

    /// Reads a frame of a response whose caller is gone, so that a cost in the body is settled.
    pub fn observe_frame<D: Buf>(&self, frame: &Frame<D>) {
        self.lock().meters().frame(frame);
        if let Some(outer) = &self.0.outer {
            outer.observe_frame(frame);
        }
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").field("time_left", &self.time_left()).finish_non_exhaustive()
    }
}
