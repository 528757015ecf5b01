//! Routes a request through authorization and its handler to a response.
//!
//! ```text
//! route → authorization → method
//!     → body, bounded → handler → response, or a problem document
//! ```

use std::error::Error;
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use parking_lot::Mutex;
use tollgate::{
    Clock, Decision, DecisionId, Limiter, MemoryStore, SharedLimiter, Span, Store, SystemClock, Timestamp,
};
use tollgate_http::WaitingRoom;
use tollgate_records::RecordLog;
use tollgate_telemetry::Watcher;

use crate::access::{Access, Caller, Role};
use crate::body::{MAX_BATCH_BODY_BYTES, MAX_BODY_BYTES, collect};
use crate::book::{self, Book};
use crate::decision_view::ViewContext;
use crate::fleet::Fleet;
use crate::gauges::{Gauges, Outages};
use crate::lab::Lab;
use crate::mode_overrides::ModeOverrides;
use crate::offload::Offload;
use crate::openapi::openapi;
use crate::page;
use crate::problem::Problem;
use crate::query::Query;
use crate::receipts::Receipts;
use crate::reply::{Reply, chosen, json, json_of, not_kept, text, without_body};
use crate::route::Route;
use crate::status::Status;

/// The plain-text index of the API.
const INDEX: &str = "\
Tollgate decides whether requests may pass.

  POST /v1/check                     may this request pass?
  POST /v1/check/batch               may these?
  POST /v1/limits/{name}/check       one limit and key by name; also /peek /grant /reset /refund
  POST /v1/settle                    what an earlier request cost in the end
  POST /v1/release                   an earlier request is over: give back its slots
  POST /v1/renew                     an earlier request still runs: keep its slots
  POST /throttle                     throttlecrab's question; /json: that of envoyproxy/ratelimit
  ANY  /v1/auth/forwarded            forward auth for Caddy and Traefik; /v1/auth/original for nginx and HAProxy
  GET  /v1/limits                    the limits in force; /v1/policy the rest of the policy
  GET  /v1/overview                  is everything all right? /v1/stats /v1/top: limits, keys, routes
  GET  /v1/fleet                     the nodes that share the store, and their sums
  GET  /v1/quotas                    the limits that are divided over proxies; /v1/quotas/bucket why so
  GET  /v1/decisions                 what was decided lately, or since=2h; /v1/decisions/{id} why
  GET  /v1/history                   counts of the last hours and days, with `records`
  POST /v1/explain                   what would be decided, and why; charges nothing
  POST /v1/lab/simulate              algorithms side by side, on traffic of a shape; /v1/lab/overload: protections
  PUT  /v1/mode                      enforce, shadow or off for everything; also GET
  PUT  /v1/limits/{name}/mode        the same for one limit; GET /v1/changes: who switched what
  GET  /healthz, /readyz             alive? ready? and how is the store?
  GET  /metrics                      counts, for Prometheus
  GET  /openapi.json                 all of it, for machines; for people, open / in a browser
  GET  /book/                        the documentation, in a browser

Try:

  curl -d '{\"method\":\"GET\",\"path\":\"/api/v1/search\",\"ip\":\"203.0.113.9\"}' localhost:7070/v1/check
";

/// Answers the HTTP API of a limiter. Clones share their state.
///
/// ```
/// # use std::sync::Arc;
/// # use bytes::Bytes;
/// # use http_body_util::{BodyExt, Full};
/// # use tollgate::Limiter;
/// # use tollgate_server::{Access, Api, Caller, Status};
/// # pollster::block_on(async {
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
/// let api = Api::new(limiter.into(), Arc::new(Status::new()), Access::open());
///
/// let question = r#"{"path":"/","ip":"203.0.113.9"}"#;
/// let ask = || http::Request::post("/v1/check").body(Full::<Bytes>::from(question)).unwrap();
/// let caller = Caller::from(std::net::IpAddr::from([127, 0, 0, 1]));
/// let answer = api.answer(ask(), caller.clone()).await;
/// assert_eq!(answer.status(), 200);
/// let again = api.answer(ask(), caller).await;
/// let body = again.into_body().collect().await.unwrap().to_bytes();
/// let response: serde_json::Value = serde_json::from_slice(&body).unwrap();
/// assert_eq!(response["allowed"], false);                   // a refusal is an answer, and so 200
/// # });
/// ```
pub struct Api<S = MemoryStore>(pub(crate) Arc<Inner<S>>);

/// The state that handlers share.
pub(crate) struct Inner<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) receipts: Receipts,
    pub(crate) status: Arc<Status>,
    /// The observer of the limiter, if there is one.
    pub(crate) watcher: OnceLock<Watcher>,
    /// The decision log on disk, if there is one.
    pub(crate) records: OnceLock<RecordLog>,
    /// The documentation, if the program embeds it.
    pub(crate) book: OnceLock<Book>,
    /// The key of the hashes of limit keys, if there is no watcher.
    secret: RandomState,
    mode_overrides: OnceLock<ModeOverrides<S>>,
    pub(crate) offload: Offload,
    pub(crate) lab: Lab,
    pub(crate) outages: Outages,
    gauges: OnceLock<Gauge>,
    json: OnceLock<Json>,
    quotas: OnceLock<QuotaReader>,
    quota_bucket: OnceLock<BucketReader>,
    /// Holds the answers of forward auth.
    pub(crate) waiting_room: OnceLock<WaitingRoom>,
    system: Uptime,
    clock: OnceLock<Uptime>,
    pub(crate) access: Access,
    /// Writers of further lines for `/metrics`.
    metrics: Mutex<Vec<Metrics>>,
    /// The other nodes that share the store, if there can be any.
    pub(crate) fleet: OnceLock<Fleet>,
}

/// The clock, and the start time by that clock.
struct Uptime {
    clock: Box<dyn Clock>,
    since: Timestamp,
}

impl Uptime {
    fn on(clock: impl Clock) -> Self {
        Self { since: clock.now(), clock: Box::new(clock) }
    }
}

/// Appends lines in the Prometheus text format.
type Metrics = Box<dyn Fn(&mut String) + Send + Sync>;

/// Handles `POST /json`.
type Json = Box<dyn Fn(Bytes) -> JsonAnswer + Send + Sync>;

/// Returns the limits that are divided over proxies.
type QuotaReader = Box<dyn Fn() -> tollgate_api::Quotas + Send + Sync>;

/// Explains a bucket of a domain. The error says what to do.
type BucketReader =
    Box<dyn Fn(Option<&str>, &str) -> Result<tollgate_api::ExplainedBucket, String> + Send + Sync>;

/// A future of a status and a body.
pub type JsonAnswer = Pin<Box<dyn Future<Output = (StatusCode, Bytes)> + Send>>;

/// Returns the values that only the process knows.
type Gauge = Box<dyn Fn() -> Gauges + Send + Sync>;

impl<S: Store> Api<S> {
    /// Creates an API for this limiter.
    pub fn new(limiter: SharedLimiter<S>, status: Arc<Status>, access: Access) -> Self {
        Self(Arc::new(Inner {
            limiter,
            receipts: Receipts::default(),
            status,
            watcher: OnceLock::new(),
            records: OnceLock::new(),
            book: OnceLock::new(),
            secret: RandomState::new(),
            mode_overrides: OnceLock::new(),
            offload: Offload::default(),
            lab: Lab::default(),
            outages: Outages::default(),
            gauges: OnceLock::new(),
            json: OnceLock::new(),
            quotas: OnceLock::new(),
            quota_bucket: OnceLock::new(),
            waiting_room: OnceLock::new(),
            system: Uptime::on(SystemClock::new()),
            clock: OnceLock::new(),
            access,
            metrics: Mutex::default(),
            fleet: OnceLock::new(),
        }))
    }

    /// Reports the data of this watcher, which observes the limiter. Only the first call has an effect.
    #[must_use]
    pub fn with_watcher(self, watcher: Watcher) -> Self {
        let _first = self.0.watcher.set(watcher);
        self
    }

    /// Finds decisions that have left memory in this log. Only the first call has an effect.
    #[must_use]
    pub fn with_records(self, records: RecordLog) -> Self {
        let _first = self.0.records.set(records);
        self
    }

    /// Serves this book at `/book/`. Only the first call has an effect.
    #[must_use]
    pub fn with_book(self, book: Book) -> Self {
        let _first = self.0.book.set(book);
        self
    }

    /// Changes modes through these overrides, which belong to the same limiter. Only the first call has
    /// an effect; without it, the API has private overrides.
    #[must_use]
    pub fn with_mode_overrides(self, mode_overrides: ModeOverrides<S>) -> Self {
        let _first = self.0.mode_overrides.set(mode_overrides);
        self
    }

    /// Sets the source of the values that only the process knows. Only the first call has an effect.
    #[must_use]
    pub fn with_gauges(self, gauges: impl Fn() -> Gauges + Send + Sync + 'static) -> Self {
        let _first = self.0.gauges.set(Box::new(gauges));
        self
    }

    /// Sets the handler of `POST /json`, the JSON form of Envoy's rate limit service. Only the first
    /// call has an effect; without it, the route is 404.
    #[must_use]
    pub fn with_json(self, answer: impl Fn(Bytes) -> JsonAnswer + Send + Sync + 'static) -> Self {
        let _first = self.0.json.set(Box::new(answer));
        self
    }

    /// Sets the source of `/v1/quotas/bucket`: explains the bucket of a domain, or says what to do. Only the first call
    /// has an effect.
    #[must_use]
    pub fn with_quota_buckets(
        self,
        read: impl Fn(Option<&str>, &str) -> Result<tollgate_api::ExplainedBucket, String> + Send + Sync + 'static,
    ) -> Self {
        let _first = self.0.quota_bucket.set(Box::new(read));
        self
    }

    /// Sets the source of `/v1/quotas`. Only the first call has an effect; without it, there are none.
    #[must_use]
    pub fn with_quotas(self, read: impl Fn() -> tollgate_api::Quotas + Send + Sync + 'static) -> Self {
        let _first = self.0.quotas.set(Box::new(read));
        self
    }

    /// Sets the room in which answers of forward auth wait, if a limit with a queue admits the request
    /// with a wait. Only the first call has an effect; without it, such requests are refused.
    #[must_use]
    pub fn with_waiting_room(self, room: WaitingRoom) -> Self {
        let _first = self.0.waiting_room.set(room);
        self
    }

    /// Returns whether answers to requests for this path may be held. The owner of the timeout of
    /// requests exempts them: they do not read a body, and the waiting room bounds them.
    pub fn may_hold(path: &str) -> bool {
        path.starts_with("/v1/auth")
    }

    /// Uses this clock instead of the system clock. Only the first call has an effect.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let _first = self.0.clock.set(Uptime::on(clock));
        self
    }

    /// Adds a writer of complete lines for `/metrics` in the Prometheus text format, such as the
    /// counters of a store.
    #[must_use]
    pub fn with_metrics(self, append: impl Fn(&mut String) + Send + Sync + 'static) -> Self {
        self.0.metrics.lock().push(Box::new(append));
        self
    }

    /// Samples the health of the store, so that past outages can be reported. Call it once a second,
    /// beside [`Watcher::tick`].
    pub fn tick(&self, now: Timestamp) {
        self.0.outages.notice(&self.0.limiter.load().health(), now);
    }

    /// Returns the response for a request whose body does not arrive in time: 408. The caller of
    /// [`answer`](Self::answer) owns the timeout.
    pub fn too_slow() -> Response<Full<Bytes>> {
        not_kept(Problem::too_slow().into_response())
    }

    /// Answers a request of this caller. An IP address converts to a caller of which only the address is known.
    pub async fn answer<B>(&self, request: Request<B>, caller: impl Into<Caller>) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (caller, (parts, body)) = (caller.into(), request.into_parts());
        let reply = self.0.reply(&parts, body, caller).await.unwrap_or_else(Problem::into_response);
        let reply = not_kept(reply);
        if parts.method == Method::HEAD { without_body(reply) } else { reply }
    }
}

impl<S: Store> Inner<S> {
    /// `GET /v1/quotas/bucket`: why each proxy has its part of a bucket.
    fn quota_bucket(&self, parts: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(parts.uri.query(), &["bucket", "domain"])?;
        let (domain, bucket) = (query.one("domain")?, query.one("bucket")?);
        let bucket = bucket.ok_or_else(|| {
            Problem::bad_request(
                "`bucket` is missing: give its entries, such as `bucket=name=search, tenant=acme`",
            )
        })?;
        let explain = self.quota_bucket.get();
        let explained = explain.ok_or_else(|| "this server divides no limits over proxies".to_owned());
        explained
            .and_then(|explain| explain(domain, bucket))
            .map(|it| json_of(&it))
            .map_err(Problem::not_found)
    }

    /// `GET /v1/quotas`: the limits that are divided over proxies.
    fn quotas(&self, parts: &Parts) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        Ok(json_of(&self.quotas.get().map(|read| read()).unwrap_or_default()))
    }

    async fn reply<B>(&self, parts: &Parts, body: B, caller: Caller) -> Result<Reply, Problem>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let route = Route::of(parts.uri.path());
        let role = self.access.check(route.as_ref(), parts, &caller)?;
        let route = route.ok_or_else(|| Problem::not_found("nothing is here; `GET /` says what is where"))?;
        route.admit(&parts.method)?;
        match route {
            // This route is called for every proxied request, so its future is kept small.
            Route::Check => self.check(&collect(&parts.headers, body, MAX_BODY_BYTES).await?).await,
            Route::Throttle => self.throttle(&parts.headers, body).await,
            Route::Auth(path) => {
                // The box with the decision is dropped before the answer waits.
                let answer = Box::pin(self.auth(path, parts, caller.peer)).await?;
                answer.wait(self, (path, parts, caller.peer)).await
            }
            _ => Box::pin(self.reply_otherwise(route, role, parts, body, caller)).await,
        }
    }

    async fn reply_otherwise<B>(
        &self,
        route: Route<'_>,
        role: Role,
        parts: &Parts,
        body: B,
        caller: Caller,
    ) -> Result<Reply, Problem>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let headers = &parts.headers;
        match route {
            Route::Check => self.check(&collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::Auth(path) => {
                self.auth(path, parts, caller.peer).await?.wait(self, (path, parts, caller.peer)).await
            }
            Route::Batch => self.check_batch(&collect(headers, body, MAX_BATCH_BODY_BYTES).await?).await,
            Route::Named(name, operation) => {
                self.named(name, operation, &collect(headers, body, MAX_BODY_BYTES).await?, role).await
            }
            Route::Throttle => self.throttle(headers, body).await,
            Route::Json => self.json(collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::Settle => self.settle(&collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::Release => self.release(&collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::Renew => self.renew(&collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::Limits => Ok(self.list_limits()),
            Route::Health => Ok(text("ok\n")),
            Route::Alive => Ok(text("OK")),
            Route::Ready => Ok(self.readiness(self.access.may_read(parts, &caller))),
            Route::Metrics => Ok(self.measure()),
            Route::OpenApi => Ok(json(described())),
            Route::Index => Ok(page::index(headers).unwrap_or_else(|| chosen(text(INDEX)))),
            Route::Page(name) => page::file(name, headers),
            Route::Book(name) => book::file(self.book.get().copied(), name, headers),
            Route::Overview => self.overview(parts, role),
            Route::Fleet => self.fleet(parts).await,
            Route::Quotas => self.quotas(parts),
            Route::QuotaBucket => self.quota_bucket(parts),
            Route::Stats => self.stats(parts),
            Route::Top => self.top(parts),
            Route::Decisions => self.decisions(parts).await,
            Route::History => self.history(parts),
            Route::Decision(id) => self.explain(parts, id).await,
            Route::Explain => self.consider(&collect(headers, body, MAX_BODY_BYTES).await?, role).await,
            Route::Lab => self.experiment(&collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::LabOverload => self.overload(&collect(headers, body, MAX_BODY_BYTES).await?).await,
            Route::Policy => self.policy(parts),
            Route::Changes => self.changes(parts),
            Route::Mode if parts.method == Method::PUT => {
                self.switch(None, &collect(headers, body, MAX_BODY_BYTES).await?, role, caller).await
            }
            Route::Mode => self.modes(parts),
            Route::LimitMode(name) => {
                self.switch(Some(name), &collect(headers, body, MAX_BODY_BYTES).await?, role, caller).await
            }
        }
    }

    async fn json(&self, body: Bytes) -> Result<Reply, Problem> {
        let Some(answer) = self.json.get() else {
            return Err(Problem::not_found("Envoy's rate limit service is not served here"));
        };
        let (status, body) = answer(body).await;
        let mut reply = json(body);
        *reply.status_mut() = status;
        Ok(reply)
    }

    fn running(&self) -> &Uptime {
        self.clock.get().unwrap_or(&self.system)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.running().clock.now()
    }

    /// Returns the start time.
    pub(crate) fn since(&self) -> Timestamp {
        self.running().since
    }

    /// Returns the readiness; with the reasons of failures if `in_full`.
    fn readiness(&self, in_full: bool) -> Reply {
        let limiter = self.limiter.load();
        let mut reply = json(self.status.to_json(limiter.version(), &limiter.health(), in_full));
        if !self.status.is_ready() {
            *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        reply
    }

    /// Returns the key of the hashes of limit keys, which is the same for all routes.
    pub(crate) fn secret(&self) -> &RandomState {
        self.watcher.get().map_or(&self.secret, Watcher::secret)
    }

    pub(crate) fn mode_overrides(&self) -> &ModeOverrides<S> {
        self.mode_overrides.get_or_init(|| ModeOverrides::new(self.limiter.clone()))
    }

    pub(crate) fn gauges(&self) -> Gauges {
        self.gauges.get().map(|gauges| gauges()).unwrap_or_default()
    }

    pub(crate) fn append_metrics(&self, out: &mut String) {
        self.metrics.lock().iter().for_each(|append| append(out));
    }

    /// Writes a decision as JSON, and stores its receipt.
    pub(crate) fn write_decision(&self, limiter: &Limiter<S>, decision: &Decision<'_>, out: &mut Vec<u8>) {
        let id = limiter.id_of(decision);
        ViewContext { policy: limiter.policy(), secret: self.secret() }.write(decision, id, out);
        self.keep(id, decision);
    }

    /// Stores the receipt of a decision, if it charged anything.
    pub(crate) fn keep(&self, id: DecisionId, decision: &Decision<'_>) {
        if let Some(receipt) = decision.packed_receipt() {
            let wait = Span::from(decision.wait());
            let starts_at = if wait == Span::ZERO { Timestamp::EPOCH } else { self.now() + wait };
            self.receipts.keep(id, receipt, starts_at);
        }
    }
}

/// Serialized once, because the description is constant.
fn described() -> Bytes {
    static OPENAPI: OnceLock<Bytes> = OnceLock::new();
    OPENAPI.get_or_init(|| openapi().to_string().into()).clone()
}

impl<S> Clone for Api<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
