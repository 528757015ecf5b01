//! The tower layer that puts a limiter in front of a service.
//!
//! Not here: the processing of a request (`service`).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tollgate::{Clock, MemoryStore, SharedLimiter, SystemClock};
use tower_layer::Layer;

use crate::deferred::{Background, Spawn};
use crate::peer::Peer;
use crate::raw_answer::RawLimit;
use crate::rejection::Rejection;
use crate::service::Limit;
use crate::tarpit::Tarpit;
use crate::waiting_room::WaitingRoom;

/// A [`tower_layer::Layer`] that puts a limiter in front of a service.
///
/// ```
/// # use tollgate::Limiter;
/// # use tollgate_http::{LimitLayer, Peer};
/// # use tower::{Layer, ServiceExt};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let service = tower::service_fn(|_: http::Request<()>| async {
///     Ok::<_, std::convert::Infallible>(http::Response::new(String::from("hello")))
/// });
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
/// let service = LimitLayer::new(limiter).layer(service);
///
/// let request = || {
///     let peer = Peer("203.0.113.9:4711".parse().unwrap());
///     http::Request::get("/").extension(peer).body(()).unwrap()
/// };
/// assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 200);
/// let refused = service.clone().oneshot(request()).await.unwrap();
/// assert_eq!(refused.status(), 429);
/// assert_eq!(refused.headers()["retry-after"], "60");
/// # });
/// ```
///
/// If the peer address is unknown, all callers of a limit by address share one allowance. Provide
/// it with a [`Peer`] or with [`with_peer`](Self::with_peer).
///
/// Put the layer on the outermost router. A nested router (axum's `nest`) sees paths without its
/// prefix, and so does a layer on it: `endpoint: /api/v1/search` would match nothing.
///
/// ```text
/// Router::new().nest("/api", api).layer(limit)     limits see /api/v1/search
/// Router::new().nest("/api", api.layer(limit))     limits see /v1/search
/// ```
///
/// Slots of concurrency limits are held until the last byte of the response is sent. They are renewed
/// until then, so a response that takes longer than their `ttl` is still counted; the `ttl` frees the slots
/// of a process that ends without releasing them. A store that waits renews in
/// [`Limiter::reconcile`](tollgate::Limiter::reconcile). A service whose work continues after
/// the caller disconnects holds the slots with a [`SlotGuard`](crate::SlotGuard).
pub struct LimitLayer<S = MemoryStore> {
    wiring: Arc<Wiring<S>>,
}

type FindPeer = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;
type RejectionResponse = Arc<dyn Fn(&Rejection<'_, '_>, &Parts) -> Response<Bytes> + Send + Sync>;
type Rng = Arc<dyn Fn() -> u32 + Send + Sync>;

/// The configuration that the services of a layer share.
pub(crate) struct Wiring<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) find_peer: FindPeer,
    /// `None`: [`Rejection::response`].
    pub(crate) word: Option<RejectionResponse>,
    pub(crate) rng: Rng,
    pub(crate) spawn: Spawn,
    pub(crate) tarpit: Option<Tarpit>,
    pub(crate) waiting_room: WaitingRoom,
    /// Measures the response time for costs that are settled by time.
    pub(crate) clock: Arc<dyn Clock>,
}

impl<C: Clock> LimitLayer<MemoryStore<C>> {
    /// Creates a layer for a limiter in memory. Keep a clone of the [`SharedLimiter`] to replace its
    /// policy at runtime.
    ///
    /// A limiter on a store that waits needs [`spawning`](Self::spawning):
    ///
    /// ```compile_fail
    /// # fn layer(limiter: tollgate::Limiter<impl tollgate::Store>) {
    /// tollgate_http::LimitLayer::new(limiter);
    /// # }
    /// ```
    pub fn new(limiter: impl Into<SharedLimiter<MemoryStore<C>>>) -> Self {
        Self::wiring(limiter.into(), Spawn::Unneeded)
    }
}

impl<S> LimitLayer<S> {
    /// Creates a layer for a limiter on any store, with a hook that runs a future in the background.
    ///
    /// Slots are released and costs are settled when a response ends without a wait. A
    /// store in another process has to be awaited, so the hook runs that work:
    ///
    /// ```
    /// # use tollgate_http::LimitLayer;
    /// # fn layer(limiter: tollgate::Limiter<impl tollgate::Store>) {
    /// let layer = LimitLayer::spawning(limiter, |work| drop(tokio::spawn(work)));
    /// # }
    /// ```
    pub fn spawning(
        limiter: impl Into<SharedLimiter<S>>,
        spawn: impl Fn(Background) + Send + Sync + 'static,
    ) -> Self {
        Self::wiring(limiter.into(), Spawn::Hook(Arc::new(spawn)))
    }

    fn wiring(limiter: SharedLimiter<S>, spawn: Spawn) -> Self {
        let wiring = Wiring {
            limiter,
            find_peer: Arc::new(Peer::of),
            word: None,
            rng: Arc::new(|| fastrand::u32(..)),
            spawn,
            tarpit: None,
            waiting_room: WaitingRoom::closed(0),
            clock: Arc::new(SystemClock::new()),
        };
        Self { wiring: Arc::new(wiring) }
    }

    /// Sets the function that finds the peer address, instead of reading a [`Peer`].
    ///
    /// Do not read forwarding headers here: the policy's `client` section determines which of them
    /// are trusted, and from which proxies.
    #[must_use]
    pub fn with_peer(self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.wired(|wiring| wiring.find_peer = Arc::new(find))
    }

    /// Sets the function that creates status and body of refusals, instead of
    /// [`Rejection::response`]. The layer adds the rate-limit headers, `Retry-After` and
    /// `Cache-Control`.
    #[must_use]
    pub fn with_rejection(
        self,
        word: impl Fn(&Rejection<'_, '_>, &Parts) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.wired(|wiring| wiring.word = Some(Arc::new(word)))
    }

    /// Sets the source of random numbers for the jitter of `Retry-After`.
    #[must_use]
    pub fn with_rng(self, rng: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.wired(|wiring| wiring.rng = Arc::new(rng))
    }

    /// Sets the tarpit that delays requests over a soft threshold with `tarpit`. Without it such
    /// requests are only marked. A delayed request keeps the slots that it acquired.
    #[must_use]
    pub fn with_tarpit(self, tarpit: Tarpit) -> Self {
        self.wired(|wiring| wiring.tarpit = Some(tarpit))
    }

    /// Sets the room in which requests wait that a limit with a queue (`algorithm: leaky-queue`)
    /// admits with a wait, and that wait for a slot (`slots` with a `queue`). A request that was admitted with
    /// a wait keeps the slots that it acquired, and if its future is dropped, all of its charges are
    /// refunded. A request that waits for a slot has charged nothing.
    ///
    /// Without it, and if the room is full, such a request is refused with 429 and charges nothing:
    /// forwarded early, it would exceed the rate of the limit.
    #[must_use]
    pub fn with_waiting_room(self, room: WaitingRoom) -> Self {
        self.wired(|wiring| wiring.waiting_room = room)
    }

    /// Sets the clock that measures response times for limits that settle by `time:`, instead of
    /// the system clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.wired(|wiring| wiring.clock = Arc::new(clock))
    }

    /// Returns these limits for a server that keeps heads in buffers. The hooks for peers and refusals are not used there.
    pub fn raw(&self) -> RawLimit<S> {
        RawLimit(Arc::clone(&self.wiring))
    }

    fn wired(self, change: impl FnOnce(&mut Wiring<S>)) -> Self {
        let mut wiring = Arc::unwrap_or_clone(self.wiring);
        change(&mut wiring);
        Self { wiring: Arc::new(wiring) }
    }
}

impl<S, Inner> Layer<Inner> for LimitLayer<S> {
    type Service = Limit<Inner, S>;

    fn layer(&self, inner: Inner) -> Self::Service {
        Limit::new(inner, Arc::clone(&self.wiring))
    }
}

impl<S> Clone for LimitLayer<S> {
    fn clone(&self) -> Self {
        Self { wiring: Arc::clone(&self.wiring) }
    }
}

impl<S> fmt::Debug for LimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer").finish_non_exhaustive()
    }
}

impl<S> Clone for Wiring<S> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            find_peer: Arc::clone(&self.find_peer),
            word: self.word.clone(),
            rng: Arc::clone(&self.rng),
            spawn: self.spawn.clone(),
            tarpit: self.tarpit.clone(),
            waiting_room: self.waiting_room.clone(),
            clock: Arc::clone(&self.clock),
        }
    }
}
