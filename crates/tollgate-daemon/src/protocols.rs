//! The protocols of Envoy and Redis on the limiter of this process.
//!
//! The protocols are in `tollgate_rls` and `tollgate_resp`, their listeners in `surfaces`.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tollgate::{SharedLimiter, Sleeper};
use tollgate_http::WaitingRoom;
use tollgate_net::http2::{GrpcSurface, GrpcTimeout, Http2Body, UnaryCall, UnaryReply};
use tollgate_net::{Caps, Connection, Drain, HttpServer, Tls};
use tollgate_resp::{Password, Resp, RespSettings};
use tollgate_rls::{GrpcBody, Rls, RlsSettings, UnaryMethod};
use tollgate_server::Api;

use crate::configuration::Settings;
use crate::fd_limit;
use crate::reload::Secrets;
use crate::store::{AnyStore, Peers, RemoteStore};
use crate::surfaces::{REQUEST_BODY_TIMEOUT, within, workers};

/// The interval between two divisions of limits over proxies.
const QUOTA_INTERVAL: Duration = Duration::from_millis(250);

/// Both protocols. Clones share their state.
#[derive(Clone)]
pub(crate) struct Protocols {
    rls: Rls<AnyStore>,
    /// The longest time for which an answer to Envoy is held.
    max_wait: Duration,
    resp: Resp<AnyStore>,
    /// The maximum number of connections of each protocol on one worker.
    connections: usize,
}

impl Protocols {
    /// Creates the protocols from the settings.
    pub(crate) fn new(
        settings: &Settings,
        limiter: &SharedLimiter<AnyStore>,
        secrets: &Secrets,
        store: &AnyStore,
    ) -> Self {
        let refuse_refunds = !settings.rls.takes_refunds(&settings.rls_listen);
        let defaults = RlsSettings::default();
        let rls = RlsSettings {
            headers: settings.rls.headers,
            refuse_refunds,
            max_wait: settings.rls.wait.unwrap_or(defaults.max_wait),
            max_waiting: settings.rls.waiting.unwrap_or(defaults.max_waiting),
            awaits_config: settings.rls.xds.is_some(),
        };
        let max_wait = rls.max_wait;
        let rls = Rls::with_sleeper(limiter.clone(), rls, Sleeper::new(sleep));
        let password = secrets.resp.as_deref().and_then(Password::new);
        let connections = fd_limit::share(workers(settings));
        let refuse_refunds = !settings.resp.takes_refunds(&settings.resp_listen);
        let peers = store.remote().and_then(RemoteStore::peers).map(Peers::calls);
        let resp_settings =
            RespSettings { password, peers, refuse_refunds, connections, ..RespSettings::default() };
        Self { rls, max_wait, resp: Resp::new(limiter.clone(), resp_settings), connections }
    }

    /// Changes how answers to Envoy sleep while they are held: `room` makes the new waiting room from
    /// the present one.
    pub(crate) fn hold_in(&self, room: impl FnOnce(&WaitingRoom) -> WaitingRoom) {
        self.rls.hold_in(room(self.rls.waiting_room()));
    }

    /// Runs the quota service, and refunds reservations that have ended, until dropped.
    pub(crate) async fn divide_quotas(self, store: Arc<AnyStore>) {
        let mut ticks = interval(QUOTA_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.rls.quotas().tend(&*store).await;
            self.rls.refund_ended_reservations().await;
        }
    }

    /// Adds `POST /json` to the API, with the responses of envoyproxy/ratelimit, and `GET /v1/quotas`
    /// and `GET /v1/quotas/bucket`.
    pub(crate) fn answer_json(self, api: Api<AnyStore>) -> Api<AnyStore> {
        let (quotas, buckets) = (self.rls.quotas().clone(), self.rls.quotas().clone());
        let api = api.with_quotas(move || quotas.view());
        let api = api.with_quota_buckets(move |domain, bucket| buckets.explain(domain, bucket));
        api.with_json(move |body: Bytes| {
            let rls = self.rls.clone();
            Box::pin(async move { rls.json(&body).await })
        })
    }

    /// Serves Envoy on this listener, until drained.
    pub(crate) async fn serve_rls(
        &self,
        listener: TcpListener,
        tls: Option<Tls>,
        drain: Drain,
    ) -> io::Result<()> {
        let (rls, max_time) = (self.rls.clone(), REQUEST_BODY_TIMEOUT + self.max_wait);
        let make = move |_: &Connection| {
            let rls = rls.clone();
            service_fn(move |request: Request<Incoming>| {
                let rls = rls.clone();
                async move {
                    let answer = within(max_time, pin!(rls.answer(request))).await;
                    Ok::<_, Infallible>(answer.map_or_else(too_slow, |it| it.map(Either::Left)))
                }
            })
        };
        let surface = Arc::new(RlsSurface { rls: self.rls.clone(), max_time });
        let caps = Caps { connections: self.connections, ..Caps::default() };
        let server = HttpServer { tls, caps, ..HttpServer::default() };
        server.serve_grpc(listener, make, surface, drain).await
    }

    /// Serves Redis clients on this listener, until drained.
    pub(crate) async fn serve_resp(
        &self,
        listener: TcpListener,
        tls: Option<Tls>,
        drain: Drain,
    ) -> io::Result<()> {
        self.resp.clone().serve(listener, tls, drain).await
    }

    /// Returns the rate limit service.
    pub(crate) const fn rls(&self) -> &Rls<AnyStore> {
        &self.rls
    }

    /// Starts draining: health checks report that the service is about to stop.
    pub(crate) fn drain(&self) {
        self.rls.drain();
    }

    /// Appends the counters in the Prometheus text format.
    pub(crate) fn metrics(&self, out: &mut String) {
        self.rls.metrics(out);
        self.resp.metrics(out);
    }
}

/// The rate limit service on HTTP/2.
struct RlsSurface {
    rls: Rls<AnyStore>,
    max_time: Duration,
}

impl GrpcSurface for RlsSurface {
    type Body = RlsBody;

    #[inline]
    fn unary_method(&self, path: &[u8], content_type: &[u8]) -> Option<u8> {
        UnaryMethod::of(path, content_type).map(|it| it as u8)
    }

    #[inline]
    fn call(&self, method: u8, body: Bytes, timeout: GrpcTimeout) -> UnaryCall {
        let rls = self.rls.clone();
        let method = UnaryMethod::ALL[usize::from(method) % UnaryMethod::ALL.len()];
        Box::pin(async move {
            let answered = rls.answer_unary(method, body, timeout.as_bytes()).await;
            answered.map_or_else(UnaryReply::Refusal, UnaryReply::Message)
        })
    }

    fn answer(
        &self,
        request: Request<Http2Body>,
    ) -> impl Future<Output = Response<RlsBody>> + Send + 'static {
        let (rls, max_time) = (self.rls.clone(), self.max_time);
        async move {
            let answer = within(max_time, pin!(rls.answer(request))).await;
            answer.map_or_else(too_slow, |it| it.map(Either::Left))
        }
    }

    fn check_partial(&self, received: &[u8]) -> Result<(), HeaderMap> {
        self.rls.check_partial(received)
    }

    fn full_refusal(&self) -> HeaderMap {
        self.rls.refuse_incomplete()
    }

    fn max_time(&self) -> Duration {
        self.max_time
    }

    fn late_refusal(&self) -> HeaderMap {
        too_slow_headers()
    }
}

/// A response of the rate limit service, or one without it.
type RlsBody = Either<GrpcBody, Empty<Bytes>>;

/// Returns the response to a call whose message does not arrive in time: `DEADLINE_EXCEEDED`.
fn too_slow() -> Response<RlsBody> {
    let mut answer = Response::new(Either::Right(Empty::new()));
    *answer.headers_mut() = too_slow_headers();
    answer
}

fn too_slow_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "4"),
        ("grpc-message", "the message did not arrive in time"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}
