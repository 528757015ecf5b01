//! The service: dispatches calls to their methods.

use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tollgate::{Clock as _, Limiter, SharedLimiter, Sleeper, Store, SystemClock};
use tollgate_envoy::Domains;
use tollgate_http::WaitingRoom;
use tollgate_telemetry::{Exposition, LatencyHistogram, MetricKind};

use crate::counters::{Counters, Surface};
use crate::decide::{EncodedResponse, Form, HeldResponse, PendingCall, RateLimitCall};
use crate::health::ServingStatus;
use crate::held::{CallTimeout, GrpcTimeout, HeldAnswers, waiting_for_store};
use crate::kuadrant::{Method, Reservations};
use crate::native::Refunds;
use crate::request::RateLimitRequest;
use crate::response_headers::Headers;
use crate::statistics::Statistics;
use crate::{ext_authz, health, json, reflection, throttle};
use tollgate_grpc::GrpcBody;
use tollgate_grpc::call::{
    self as grpc, Refusal, check_partial, is_grpc, read_message, reject_non_grpc, unframed,
};
use tollgate_rlqs::Quotas;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const STREAM_QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
const THROTTLE: &str = "/throttlecrab.RateLimiter/Throttle";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const REFLECTION_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// A unary method that proxies call for every request ([`Rls::answer_unary`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryMethod {
    /// Envoy's `ShouldRateLimit`.
    ShouldRateLimit,
    /// throttlecrab's `Throttle`.
    Throttle,
}

impl UnaryMethod {
    /// All methods.
    pub const ALL: [Self; 2] = [Self::ShouldRateLimit, Self::Throttle];

    /// Returns the method of a gRPC call; `None` for every other request ([`Rls::answer`]).
    #[inline]
    pub fn of(path: &[u8], content_type: &[u8]) -> Option<Self> {
        let method = match path {
            _ if path == SHOULD_RATE_LIMIT.as_bytes() => Self::ShouldRateLimit,
            _ if path == THROTTLE.as_bytes() => Self::Throttle,
            _ => return None,
        };
        is_grpc(content_type).then_some(method)
    }
}

/// The longest time for which a response in JSON is held: HTTP has no `grpc-timeout`.
const MAX_JSON_WAIT: Duration = Duration::from_secs(5);

/// The settings of the rate limit service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RlsSettings {
    /// The headers that a proxy is asked to add. `None`: [`Headers::All`] for domains of the
    /// policy, [`Headers::Refusals`] for domains of Envoy files.
    pub headers: Option<Headers>,
    /// Whether gRPC calls that refund hits (`is_negative_hits`) are refused. This is for a port
    /// without authentication, where any caller could otherwise erase the usage of a key. If a call
    /// has other descriptors too, those are decided and nothing is refunded. A call still releases the
    /// slot of the owner that it names (`owner` of a limit).
    pub refuse_refunds: bool,
    /// The longest time for which an answer is held, if the request has to wait in the queue of a
    /// limit (`algorithm: leaky-queue`). A caller with a shorter `grpc-timeout` is refused earlier.
    pub max_wait: Duration,
    /// The maximum number of answers that are held at a time. Further requests that have to wait are
    /// refused.
    pub max_waiting: usize,
    /// Whether limits come from a configuration server. Calls before its first configuration are
    /// answered as calls in an unknown domain, and counted.
    pub awaits_config: bool,
}

impl Default for RlsSettings {
    /// Headers by domain, refunds, and up to 10,000 answers that are held for up to five seconds.
    fn default() -> Self {
        Self {
            headers: None,
            refuse_refunds: false,
            max_wait: Duration::from_secs(5),
            max_waiting: 10_000,
            awaits_config: false,
        }
    }
}

/// A gRPC service with Envoy's rate limit service, quota service and external authorization, Kuadrant's rate
/// limit service, throttlecrab's service, health and reflection.
///
/// Clones share the same service.
///
/// ```
/// # use http_body_util::{BodyExt as _, Full};
/// # use tollgate::Limiter;
/// # use tollgate_rls::{Rls, RlsSettings};
/// # pollster::block_on(async {
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 10/minute}]").unwrap();
/// let rls = Rls::new(limiter.into(), RlsSettings::default());
/// let (status, answer) = rls.json(br#"{"domain": "tollgate", "descriptors":
///     [{"entries": [{"key": "ip", "value": "203.0.113.9"}]}]}"#).await;
/// assert_eq!(status, 200);
/// let answer = String::from_utf8(answer.to_vec()).unwrap();
/// assert!(answer.starts_with(r#"{"overallCode":"OK","#) && answer.contains(r#""limitRemaining":9"#));
/// # });
/// ```
pub struct Rls<S>(Arc<Inner<S>>);

pub(crate) struct Inner<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) settings: RlsSettings,
    counters: Counters,
    pub(crate) held: HeldAnswers,
    /// Measures the time that a caller has waited for the store.
    pub(crate) clock: SystemClock,
    pub(crate) statistics: Statistics<S>,
    serving: Arc<ServingStatus>,
    /// The quota service, which divides limits on buckets.
    quotas: Quotas,
    /// The estimates that Kuadrant has reserved and not committed.
    pub(crate) reservations: Reservations,
    /// The response times of `ShouldRateLimit`, if they are measured.
    response_times: OnceLock<LatencyHistogram>,
}

impl<S> Clone for Rls<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store> Rls<S> {
    /// Creates a service that decides with this limiter. It holds answers on a thread of this
    /// process; [`with_sleeper`](Self::with_sleeper) takes the timer of a runtime.
    pub fn new(limiter: SharedLimiter<S>, settings: RlsSettings) -> Self {
        Self::with_sleeper(limiter, settings, Sleeper::default())
    }

    /// Creates a service that holds answers with this timer.
    pub fn with_sleeper(limiter: SharedLimiter<S>, settings: RlsSettings, sleeper: Sleeper) -> Self {
        let (counters, statistics, serving) = (Counters::default(), Statistics::new(), Arc::default());
        let (held, clock) = (HeldAnswers::new(&settings, sleeper), SystemClock::new());
        let quotas = Quotas::new(limiter.clone(), clock.clone());
        let (reservations, response_times) = (Reservations::default(), OnceLock::new());
        Self(Arc::new(Inner {
            limiter,
            settings,
            counters,
            held,
            clock,
            statistics,
            serving,
            quotas,
            reservations,
            response_times,
        }))
    }

    /// Returns the room in which answers are held, for their number.
    pub fn waiting_room(&self) -> &WaitingRoom {
        self.0.held.room()
    }

    /// Sets a room with another sleep, such as one that ends when the server stops
    /// ([`WaitingRoom::sleeping`]): the requests of the answers that are held then are refused. Only
    /// the first call has an effect.
    pub fn hold_in(&self, room: WaitingRoom) {
        self.0.held.hold_in(room);
    }

    /// Returns the quota service. Run [`Quotas::tend`] a few times a second.
    pub fn quotas(&self) -> &Quotas {
        &self.0.quotas
    }

    /// Refunds reservations that have ended without a commit. Call it a few times a second.
    pub async fn refund_ended_reservations(&self) {
        let limiter = self.0.limiter.load();
        self.0.reservations.refund_ended(&limiter, self.0.clock.now()).await;
    }

    /// Returns the limiter of the service.
    pub fn limiter(&self) -> &SharedLimiter<S> {
        &self.0.limiter
    }

    /// Starts draining: health reports `NOT_SERVING`, watchers are notified, and streams end. Calls
    /// are still answered.
    pub fn drain(&self) {
        self.0.serving.end();
        self.0.quotas.drain();
    }

    /// Appends the metrics in the Prometheus text format.
    pub fn metrics(&self, out: &mut String) {
        self.0.counters.write(out);
        self.0.held.write(out);
        self.0.reservations.write(out);
        // Includes limits without hits, with zero.
        self.0.in_force();
        self.0.statistics.write(out);
        self.0.quotas.metrics(out);
    }

    /// Measures the response times of `ShouldRateLimit` from now on, for
    /// [`upstream_metrics`](Self::upstream_metrics).
    pub fn measure_response_times(&self) {
        let _first = self.0.response_times.set(LatencyHistogram::default());
    }

    /// Appends the metrics under the names of envoyproxy/ratelimit. `degraded` is the number of decisions
    /// without the store, which are failed calls there.
    pub fn upstream_metrics(&self, degraded: u64, out: &mut String) {
        self.0.in_force();
        self.0.statistics.write_upstream(out);
        let (answered, failed) = self.0.counters.totals();
        let mut to = Exposition::new(out);
        let help = "Calls, by method.";
        to.family("ratelimit_service_total_requests", MetricKind::Counter, help)
            .value(&[("grpc_method", "ShouldRateLimit")], answered.saturating_add(failed));
        let help = "Calls that failed (service_error), and decisions without the store (redis_error).";
        to.family("ratelimit_service_should_rate_limit_error", MetricKind::Counter, help)
            .value(&[("err_type", "redis_error")], degraded)
            .value(&[("err_type", "service_error")], failed);
        if let Some(times) = self.0.response_times.get() {
            let (name, help) = ("ratelimit_service_response_time_seconds", "Response times, by method.");
            to.latencies(name, help, &[("grpc_method", "ShouldRateLimit")], times);
        }
    }

    /// Answers a gRPC call.
    #[inline]
    pub async fn answer<B>(&self, request: Request<B>) -> Response<GrpcBody>
    where
        B: Body + Send + 'static,
        B::Data: Buf + Send,
    {
        if let Some(response) = reject_non_grpc(&request) {
            return response;
        }
        let inner = &*self.0;
        let answered = match request.uri().path() {
            path @ (SHOULD_RATE_LIMIT | THROTTLE) => {
                let is_throttle = path == THROTTLE;
                let (parts, body) = request.into_parts();
                let timeout = GrpcTimeout::of(&parts.headers);
                let message = read_message(body);
                let answered = if is_throttle {
                    inner.throttle(message, timeout).await
                } else {
                    inner.should_rate_limit(message, timeout).await
                };
                answered.map(|framed| grpc::response(GrpcBody::message(framed)))
            }
            ext_authz::CHECK => {
                let (parts, body) = request.into_parts();
                // Boxed: it is large, and a call of the rate limit service never needs it.
                Box::pin(inner.authorize(body, &parts.headers)).await
            }
            // Boxed: the state of the rarely used methods would enlarge every call.
            path => match Method::of(path) {
                Some(method) => {
                    let (parts, body) = request.into_parts();
                    Box::pin(inner.answer_kuadrant(method, body, &parts.headers)).await
                }
                None => Box::pin(inner.answer_other(request)).await,
            },
        };
        answered.unwrap_or_else(|refusal| {
            inner.counters.turned_down(refusal.code);
            refusal.response()
        })
    }

    /// Answers a call of a unary method, given the whole body of its request and its `grpc-timeout`. Returns the body of
    /// the response, or the headers of a response without one.
    #[inline]
    pub async fn answer_unary(
        &self,
        method: UnaryMethod,
        body: Bytes,
        timeout: Option<&[u8]>,
    ) -> Result<Bytes, HeaderMap> {
        let (inner, timeout) = (&*self.0, GrpcTimeout(timeout));
        let message = ready(unframed(body));
        let answered = match method {
            UnaryMethod::ShouldRateLimit => inner.should_rate_limit(message, timeout).await,
            UnaryMethod::Throttle => inner.throttle(message, timeout).await,
        };
        answered.map_err(|refusal| inner.refuse(&refusal))
    }

    /// Checks the first part of the body of a unary call, and returns the headers of a refusal if its message will not be
    /// accepted.
    pub fn check_partial(&self, received: &[u8]) -> Result<(), HeaderMap> {
        check_partial(received).map_err(|refusal| self.0.refuse(&refusal))
    }

    /// Returns the headers of a refusal of a message because too many others are incomplete.
    pub fn refuse_incomplete(&self) -> HeaderMap {
        let reason = "too many messages on this connection are incomplete".to_owned();
        self.0.refuse(&Refusal::exhausted(reason))
    }

    /// Answers a `RateLimitRequest` in JSON, like `/json` of envoyproxy/ratelimit: 200 within the
    /// limits, 429 over a limit, 400 for an invalid request.
    pub async fn json(&self, body: &[u8]) -> (StatusCode, Bytes) {
        let inner = &*self.0;
        let answered = async {
            let written = json::JsonRequest::read(body)?;
            inner.decide_json(written.to_request()?).await
        };
        match Box::pin(answered).await {
            Ok(EncodedResponse { over: false, bytes, .. }) => (StatusCode::OK, bytes),
            Ok(EncodedResponse { over: true, bytes, .. }) => (StatusCode::TOO_MANY_REQUESTS, bytes),
            Err(refusal) => {
                inner.counters.turned_down(refusal.code);
                (StatusCode::BAD_REQUEST, json::render_error(&refusal.message))
            }
        }
    }
}

impl<S: Store> Inner<S> {
    /// Counts a refusal, and returns its headers.
    #[cold]
    fn refuse(&self, refusal: &Refusal) -> HeaderMap {
        self.counters.turned_down(refusal.code);
        refusal.headers()
    }

    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The changes that negative hits may make.
    pub(crate) const fn refunds(&self) -> Refunds {
        if self.settings.refuse_refunds { Refunds::OwnSlots } else { Refunds::All }
    }

    /// Whether the first configuration has not arrived yet.
    #[inline]
    pub(crate) fn is_unconfigured(&self, limiter: &Limiter<S>) -> bool {
        self.settings.awaits_config && Domains::of(limiter.policy()).is_none()
    }

    /// Counts a call before the first configuration.
    #[cold]
    pub(crate) fn count_unconfigured(&self) {
        self.counters.count_unconfigured();
    }

    /// Returns the current limiter and prepares the statistics for it.
    #[inline]
    pub(crate) fn in_force(&self) -> Arc<Limiter<S>> {
        let limiter = self.limiter.load();
        self.statistics.prepare(&limiter);
        limiter
    }

    #[inline]
    async fn should_rate_limit(
        &self,
        message: impl Future<Output = Result<Bytes, Refusal>>,
        timeout: GrpcTimeout<'_>,
    ) -> Result<Bytes, Refusal> {
        let started_at = self.response_times.get().map(|times| (times, self.clock.now()));
        let answered = self.limit(message, timeout).await;
        if let Some((times, started_at)) = started_at {
            times.record(self.clock.now().since(started_at).into());
        }
        answered
    }

    #[inline]
    async fn limit(
        &self,
        message: impl Future<Output = Result<Bytes, Refusal>>,
        timeout: GrpcTimeout<'_>,
    ) -> Result<Bytes, Refusal> {
        let message = message.await?;
        let (place, limiter) = (OnceLock::new(), self.in_force());
        let answered = match self.try_limit(&limiter, &message, &place, CallTimeout::Grpc(timeout))? {
            Ok(answered) => answered,
            Err(pending) => held(waiting_for_store(&limiter, timeout, pending).await?).await,
        };
        Ok(self.counted(Surface::Envoy, answered).bytes)
    }

    /// Reads a call and removes the parts that its caller is not permitted to request.
    #[inline]
    fn read<'m>(
        &self,
        limiter: &Limiter<S>,
        message: &'m [u8],
        place: &'m OnceLock<Vec<u8>>,
    ) -> Result<RateLimitRequest<'m>, Refusal> {
        let mut request = RateLimitRequest::read(message, place)?;
        if self.settings.refuse_refunds && request.descriptors.iter().any(|it| it.gives_back) {
            let domain = request.domain;
            request.drop_refunds(|descriptor| {
                let entries = &descriptor.entries[..];
                limiter.policy().slot_owner(&tollgate::Descriptor::new(domain, entries)).is_some()
            })?;
        }
        Ok(request)
    }

    /// A separate function, so that its state is not kept while a body is awaited.
    #[inline(never)]
    fn try_limit<'c>(
        &'c self,
        limiter: &'c Limiter<S>,
        message: &'c [u8],
        place: &'c OnceLock<Vec<u8>>,
        timeout: CallTimeout<'c>,
    ) -> Result<Result<EncodedResponse, PendingCall<'c>>, Refusal> {
        let request = self.read(limiter, message, place)?;
        self.try_decide(limiter, RateLimitCall { request, form: Form::Framed, timeout })
    }

    fn counted(&self, surface: Surface, answered: EncodedResponse) -> EncodedResponse {
        self.counters.answered(surface, answered.over);
        answered
    }

    /// Decides about a request in JSON, and waits for the store and the queues of its limits if
    /// necessary.
    async fn decide_json(&self, request: RateLimitRequest<'_>) -> Result<EncodedResponse, Refusal> {
        let limiter = self.in_force();
        let call = RateLimitCall { request, form: Form::Json, timeout: CallTimeout::AtMost(MAX_JSON_WAIT) };
        let answered = match self.try_decide(&limiter, call)? {
            Ok(answered) => answered,
            Err(pending) => held(pending.await?).await,
        };
        Ok(self.counted(Surface::Json, answered))
    }

    async fn throttle(
        &self,
        message: impl Future<Output = Result<Bytes, Refusal>>,
        timeout: GrpcTimeout<'_>,
    ) -> Result<Bytes, Refusal> {
        let message = message.await?;
        let request = throttle::ThrottleRequest::read(&message)?;
        let limiter = self.limiter.load();
        let throttled = throttle::throttle(&limiter, &request, timeout).await?;
        self.counters.answered(Surface::Throttlecrab, !throttled.allowed);
        Ok(throttle::framed(&throttled))
    }

    /// Answers the methods that are not called for every request.
    async fn answer_other<B>(&self, request: Request<B>) -> Result<Response<GrpcBody>, Refusal>
    where
        B: Body + Send + 'static,
        B::Data: Send,
    {
        Ok(grpc::response(match request.uri().path() {
            CHECK => {
                let message = read_message(request.into_body()).await?;
                GrpcBody::message(self.serving.check(&message)?)
            }
            WATCH => {
                let message = read_message(request.into_body()).await?;
                GrpcBody::stream(health::WatchStream::new(&self.serving, &message)?)
            }
            REFLECTION | REFLECTION_ALPHA => {
                GrpcBody::stream(reflection::ReflectionStream::new(&self.serving, request.into_body()))
            }
            STREAM_QUOTAS => GrpcBody::stream(self.quotas.open(request.into_body())?),
            _ => return Err(Refusal::unimplemented("no such method is served here".to_owned())),
        }))
    }
}

/// Waits until the response may be sent. If the server stops before, or the request loses its place, returns a refusal.
async fn held(mut answered: EncodedResponse) -> EncodedResponse {
    if let Some(held) = answered.hold.take() {
        let HeldResponse { wait, refusal } = *held;
        if wait.await.is_err() {
            return EncodedResponse { over: true, bytes: refusal, hold: None };
        }
    }
    answered
}
