//! The tower layer: how a limiter is put in front of a service.
//!
//! Not here: what happens to a request (`service`).

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tollgate::{Clock, MemoryStore, SystemClock};
use tower_layer::Layer;

use crate::deferred::{Background, Spawn};
use crate::peer::Peer;
use crate::rejection::Rejection;
use crate::service::Limit;
use crate::shared::SharedLimiter;
use crate::tarpit::Tarpit;

/// Puts a limiter in front of a service.
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
/// Without knowing the peer, all callers that a limit counts by address share
/// one allowance: say where it stands, with a [`Peer`] or [`with_peer`](Self::with_peer).
///
/// Put it on the outermost router. A router that is nested in another (axum's
/// `nest`) sees paths without the prefix it is nested under, and so does a layer
/// on it: `endpoint: /api/v1/search` would then match nothing.
///
/// ```text
/// Router::new().nest("/api", api).layer(limit)     limits see /api/v1/search
/// Router::new().nest("/api", api.layer(limit))     limits see /v1/search
/// ```
///
/// Slots of concurrency limits are held until the last byte of the answer is
/// sent or until their `ttl` has passed, whichever comes first; a service that works on without
/// its caller holds them with a [`SlotGuard`](crate::SlotGuard). An answer that
/// takes longer than that goes on, but is no longer counted: choose a `ttl`
/// longer than the longest answer.
pub struct LimitLayer<S = MemoryStore> {
    wiring: Arc<Wiring<S>>,
}

type FindPeer = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;
type Word = Arc<dyn Fn(&Rejection<'_, '_>, &Parts) -> Response<Bytes> + Send + Sync>;
type Rng = Arc<dyn Fn() -> u32 + Send + Sync>;

/// What a service needs besides the service it stands in front of.
pub(crate) struct Wiring<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) find_peer: FindPeer,
    /// `None`: as the rejection words itself.
    pub(crate) word: Option<Word>,
    pub(crate) rng: Rng,
    pub(crate) spawn: Option<Spawn>,
    pub(crate) tarpit: Option<Tarpit>,
    /// Measures how long answers take, where a cost is settled by that.
    pub(crate) clock: Arc<dyn Clock>,
}

impl<S> LimitLayer<S> {
    /// A layer for this limiter. Keep a clone of a [`SharedLimiter`] to replace
    /// its policy while it serves.
    pub fn new(limiter: impl Into<SharedLimiter<S>>) -> Self {
        let wiring = Wiring {
            limiter: limiter.into(),
            find_peer: Arc::new(Peer::of),
            word: None,
            rng: Arc::new(|| fastrand::u32(..)),
            spawn: None,
            tarpit: None,
            clock: Arc::new(SystemClock::new()),
        };
        Self { wiring: Arc::new(wiring) }
    }

    /// Where the other end of the connection is found, instead of in a [`Peer`].
    ///
    /// This is not the place to read forwarding headers: the policy's `client`
    /// section says which of them are believed, and from whom.
    #[must_use]
    pub fn with_peer(self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.wired(|wiring| wiring.find_peer = Arc::new(find))
    }

    /// Status and body of refusals, instead of [`Rejection::response`]. Headers
    /// about limits, `Retry-After` and `Cache-Control` are added to them.
    #[must_use]
    pub fn with_rejection(
        self,
        word: impl Fn(&Rejection<'_, '_>, &Parts) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.wired(|wiring| wiring.word = Some(Arc::new(word)))
    }

    /// The random numbers that stretch `Retry-After` where the policy asks for jitter.
    #[must_use]
    pub fn with_rng(self, rng: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.wired(|wiring| wiring.rng = Arc::new(rng))
    }

    /// How to finish what comes after a request in a store that is not in this process, such as
    /// `|work| { tokio::spawn(work); }`: slots are given back, costs settled. A store in
    /// memory needs none.
    #[must_use]
    pub fn with_spawn(self, spawn: impl Fn(Background) + Send + Sync + 'static) -> Self {
        self.wired(|wiring| wiring.spawn = Some(Arc::new(spawn)))
    }

    /// Where requests wait that are over a soft threshold which says `tarpit`. Without one
    /// they are only marked. While a request waits, it keeps the slots that it was admitted
    /// with.
    #[must_use]
    pub fn with_tarpit(self, tarpit: Tarpit) -> Self {
        self.wired(|wiring| wiring.tarpit = Some(tarpit))
    }

    /// The clock that measures answers for limits that settle by `time:`, instead of the system's.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.wired(|wiring| wiring.clock = Arc::new(clock))
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

impl<S> Clone for Wiring<S> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            find_peer: Arc::clone(&self.find_peer),
            word: self.word.clone(),
            rng: Arc::clone(&self.rng),
            spawn: self.spawn.clone(),
            tarpit: self.tarpit.clone(),
            clock: Arc::clone(&self.clock),
        }
    }
}
