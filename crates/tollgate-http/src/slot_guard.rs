//! The slots of a request whose work may outlive its caller.
//!
//! A caller that hangs up takes the future and the body of its answer with it. The service behind may
//! work on: a service on another machine does not always notice, and a spawned task never does. A slot that
//! is released by then no longer bounds the work, and callers that hang up early start any amount of it.
//!
//! So the layer puts a [`SlotGuard`] into the extensions of every request that holds a slot of a limit with
//! `on_hangup: hold`, and keeps a clone with the answer. The slots are released, and costs settled, with the last clone.
//! The layer itself cannot know whether work goes on: a service that does not keep the guard releases the slots
//! when its future is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Buf;
use http::HeaderMap;
use http_body::Frame;
use tollgate::{Clock, Span, Timestamp};

use crate::deferred::Deferred;

/// Keeps the slots of a request until its last clone is dropped, or their `ttl` has passed.
///
/// It is in the extensions of a request that holds slots of a limit with `on_hangup: hold`, the default. A
/// service whose work goes on when its future is dropped moves a clone into that work:
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::{LimitLayer, SharedLimiter, SlotGuard};
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
    /// When the longest of the slots ends by itself.
    expires_at: Timestamp,
    clock: Arc<dyn Clock>,
    /// The slots that a layer further out holds.
    outer: Option<SlotGuard>,
}

impl SlotGuard {
    pub(crate) fn new(deferred: Deferred, ttl: Span, clock: &Arc<dyn Clock>, outer: Option<&Self>) -> Self {
        let (clock, outer) = (Arc::clone(clock), outer.cloned());
        Self(Arc::new(Inner { deferred: Mutex::new(deferred), expires_at: clock.now() + ttl, clock, outer }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Deferred> {
        // A thread that panicked in between left a debt that can be paid.
        self.0.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until the longest of the slots ends by itself. Work beyond that is not bounded by them.
    pub fn time_left(&self) -> Duration {
        let own = Duration::from_micros(self.0.expires_at.since(self.0.clock.now()).as_micros());
        self.0.outer.as_ref().map_or(own, |outer| own.max(outer.time_left()))
    }

    /// Drops this clone and makes the slots last until their `ttl`: the end of the work is not known.
    pub fn leave_to_ttl(self) {
        self.lock().leave_slots();
        if let Some(outer) = self.0.outer.clone() {
            outer.leave_to_ttl();
        }
    }

    /// The head of an answer that no caller waits for: a cost that stands in it is settled.
    pub fn observe_head(&self, headers: &HeaderMap) {
        self.lock().meters().head(headers);
        if let Some(outer) = &self.0.outer {
            outer.observe_head(headers);
        }
    }

    /// A frame of an answer that no caller waits for: a cost that stands in it is settled.
    pub fn observe_frame<D: Buf>(&self, frame: &Frame<D>) {
        self.lock().meters().frame(frame);
        if let Some(outer) = &self.0.outer {
            outer.observe_frame(frame);
        }
    }
}
