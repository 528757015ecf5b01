//! Holds requests that were admitted with a wait, until they may start.
//!
//! A limit with a queue (`algorithm: leaky-queue`) admits requests above its rate, each with a wait
//! ([`Decision::wait`](tollgate::Decision::wait)). The request has taken its place in the queue of
//! its key and must not be forwarded before that time. A surface holds it in the meantime, and the
//! waiting room bounds the number of held requests over all keys.
//!
//! A request that finds no slot of a limit whose `slots` have a `queue` waits here, too: for at most the
//! `wait` of the queue. It has charged nothing, and its turn comes when a slot is released.
//!
//! A request that finds no place is refused, and its charges are refunded: forwarded early, it would
//! exceed the rate of its limit. A more important request takes the place of a less important one, which is then
//! refused (`room_places`). A request that is canceled frees its place immediately.
//!
//! Not here: a clock. This crate has no runtime; the caller provides the sleep function.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tollgate::HoldEnd;

use crate::places::Timer;
use crate::room_places::{RoomPlace, RoomPlaces};

/// The body of the answer to a request that the shutdown does not let wait.
pub(crate) const SHUTTING_DOWN: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"this server is shutting down, and the request would have to wait for longer than that takes; it was not forwarded and is not counted; try again"}"#;

/// The wait that is advised to such a request, in seconds.
pub(crate) const SHUTDOWN_RETRY_AFTER: &str = "1";

/// Holds requests that limits with a queue admit with a wait, up to a number at a time.
///
/// Clones share the same places.
///
/// ```
/// # use tollgate::Limiter;
/// # use tollgate_http::{LimitLayer, WaitingRoom};
/// # let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 100/minute}]")?;
/// let room = WaitingRoom::new(10_000, tokio::time::sleep);
/// let layer = LimitLayer::new(limiter).with_waiting_room(room.clone());
/// assert_eq!((room.waiting(), room.held(), room.refused()), (0, 0, 0));
/// # let _: LimitLayer = layer;
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone)]
pub struct WaitingRoom {
    places: Arc<RoomPlaces>,
    /// `None`: no request can wait.
    sleep: Option<Sleep>,
}

type Sleep = Arc<dyn Fn(HoldTime) -> Timer<Result<(), ShuttingDown>> + Send + Sync>;

/// The time for which a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldTime {
    /// The request may start after this time, and not before: its turn in the queue of a limit.
    Exactly(Duration),
    /// The request waits for a slot, which may be free at any moment, for at most this time.
    AtMost(Duration),
}

impl HoldTime {
    /// Returns the longest time for which the request is held.
    pub const fn max(self) -> Duration {
        match self {
            Self::Exactly(time) | Self::AtMost(time) => time,
        }
    }
}

/// The reason why a wait ended early: the server stops before the request may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuttingDown;

impl WaitingRoom {
    /// Creates a room with `max` places and a sleep function. With zero places, requests that would
    /// have to wait are refused.
    pub fn new<F>(max: usize, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let sleep = Arc::new(sleep);
        Self::closed(max).sleeping(move |time| {
            let sleeping = sleep(time.max());
            async move {
                sleeping.await;
                Ok(())
            }
        })
    }

    /// Creates a room that cannot sleep: it refuses every request that would have to wait.
    pub(crate) fn closed(max: usize) -> Self {
        Self { places: RoomPlaces::new(max), sleep: None }
    }

    /// Returns a room that shares the places but sleeps differently, for example a sleep that ends
    /// early when the server stops: the request is then answered with 503 and not forwarded.
    #[must_use]
    pub fn sleeping<F>(&self, sleep: impl Fn(HoldTime) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), ShuttingDown>> + Send + 'static,
    {
        let sleep: Sleep = Arc::new(move |time| Box::pin(sleep(time)));
        Self { places: Arc::clone(&self.places), sleep: Some(sleep) }
    }

    /// The maximum number of requests that wait at a time.
    pub fn max_waiting(&self) -> usize {
        self.places.max
    }

    /// The number of requests that wait now.
    pub fn waiting(&self) -> usize {
        self.places.taken()
    }

    /// The number of requests that waited so far, including those that wait now.
    pub fn held(&self) -> u64 {
        self.places.held()
    }

    /// The number of requests that were refused because no place was free, and none was taken by a less important
    /// request.
    pub fn refused(&self) -> u64 {
        self.places.turned_away()
    }

    /// The number of requests that were refused because a more important one took their place.
    pub fn displaced(&self) -> u64 {
        self.places.displaced()
    }

    /// Takes a place for the given time, which starts now. `rank` is that of the priority class of the request
    /// ([`Decision::rank`](tollgate::Decision::rank)). `None` if all places are taken by requests that are at least as
    /// important.
    pub fn enter(&self, time: HoldTime, rank: u8) -> Option<HeldRequest> {
        let sleep = self.sleep.as_ref()?;
        let place = self.places.enter(rank)?;
        Some(HeldRequest { timer: sleep(time), place })
    }
}

impl fmt::Debug for WaitingRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingRoom").field(&self.places).finish()
    }
}

/// The place of a request in a [`WaitingRoom`]. Dropping it frees the place.
#[must_use = "a place that is dropped is free"]
pub struct HeldRequest {
    timer: Timer<Result<(), ShuttingDown>>,
    place: RoomPlace,
}

impl HeldRequest {
    /// Waits until the time is over, or until a more important request takes the place. An error means that the
    /// server stops, and the request must not start.
    pub async fn wait(self) -> Result<HoldEnd, ShuttingDown> {
        let Self { mut timer, place } = self;
        poll_fn(|context| match timer.as_mut().poll(context) {
            Poll::Ready(end) => Poll::Ready(end.map(|()| HoldEnd::TimeOver)),
            Poll::Pending => place.poll_displaced(context).map(|()| Ok(HoldEnd::Displaced)),
        })
        .await
    }
}

impl fmt::Debug for HeldRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRequest").finish_non_exhaustive()
    }
}

impl ShuttingDown {
    /// Creates the answer to the request: 503 with `Retry-After`.
    pub fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(SHUTTING_DOWN.as_bytes()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(RETRY_AFTER, HeaderValue::from_static(SHUTDOWN_RETRY_AFTER));
        response
    }
}
