//! The life of a request to the API.
//!
//! ```text
//! which route? → may the caller ask? → does the route take this method?
//!     → body, bounded → its handler → answer, or a problem that says what to change
//! ```

use std::error::Error;
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tollgate::{Decision, DecisionId, Limiter, MemoryStore, Store};
use tollgate_http::SharedLimiter;

use crate::access::Access;
use crate::body::{MOST, MOST_OF_BATCH, collect};
use crate::openapi::openapi;
use crate::problem::Problem;
use crate::receipts::Receipts;
use crate::reply::{Reply, json, text, without_body};
use crate::route::Route;
use crate::status::Status;
use crate::told::Teller;

/// What is here, for somebody who looks.
const INDEX: &str = "\
Tollgate decides whether requests may pass.

  POST /v1/check                     may this request pass?
  POST /v1/check/batch               may these?
  POST /v1/limits/{name}/check       one limit and key by name; also /peek /grant /reset /refund
  POST /v1/settle                    what an earlier request cost in the end
  POST /v1/release                   an earlier request is over: give back its slots
  ANY  /v1/auth                      forward auth for nginx, Caddy, Traefik, HAProxy
  GET  /v1/limits                    the limits in force
  GET  /healthz, /readyz             alive? ready? and how is the store?
  GET  /metrics                      counts, for Prometheus
  GET  /openapi.json                 all of it, for machines

Try:

  curl -d '{\"method\":\"GET\",\"path\":\"/api/v1/search\",\"ip\":\"203.0.113.9\"}' localhost:7070/v1/check
";

/// Answers requests about requests. Clones are the same.
///
/// ```
/// # use std::sync::Arc;
/// # use bytes::Bytes;
/// # use http_body_util::{BodyExt, Full};
/// # use tollgate::Limiter;
/// # use tollgate_server::{Access, Api, Status};
/// # pollster::block_on(async {
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
/// let api = Api::new(limiter.into(), Arc::new(Status::new()), Access::open());
///
/// let question = r#"{"path":"/","ip":"203.0.113.9"}"#;
/// let ask = || http::Request::post("/v1/check").body(Full::<Bytes>::from(question)).unwrap();
/// let answer = api.answer(ask(), [127, 0, 0, 1].into()).await;
/// assert_eq!(answer.status(), 200);
/// let again = api.answer(ask(), [127, 0, 0, 1].into()).await;
/// let body = again.into_body().collect().await.unwrap().to_bytes();
/// let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
/// assert_eq!(told["allowed"], false);                   // a refusal is an answer, and so 200
/// # });
/// ```
pub struct Api<S = MemoryStore>(Arc<Inner<S>>);

/// What handlers work with.
pub(crate) struct Inner<S> {
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) receipts: Receipts,
    /// Keys the hashes of keys, where those are shown.
    pub(crate) secret: RandomState,
    status: Arc<Status>,
    access: Access,
    /// What others have to tell in `/metrics`.
    metrics: Mutex<Vec<Metrics>>,
}

/// Appends lines in the text format of Prometheus.
type Metrics = Box<dyn Fn(&mut String) + Send + Sync>;

impl<S: Store> Api<S> {
    /// An API about this limiter.
    pub fn new(limiter: SharedLimiter<S>, status: Arc<Status>, access: Access) -> Self {
        let (receipts, secret) = (Receipts::default(), RandomState::new());
        Self(Arc::new(Inner { limiter, receipts, secret, status, access, metrics: Mutex::default() }))
    }

    /// Lets somebody else append lines to `/metrics`, whole ones in the text format of
    /// Prometheus: what a store counts, say.
    #[must_use]
    pub fn with_metrics(self, append: impl Fn(&mut String) + Send + Sync + 'static) -> Self {
        self.0.metrics().push(Box::new(append));
        self
    }

    /// What a request is told whose body does not arrive: 408. How long to wait for
    /// [`answer`](Self::answer) is for whoever has a clock to say.
    pub fn too_slow() -> Response<Full<Bytes>> {
        Problem::too_slow().into_response()
    }

    /// Answers a request that came from `peer`.
    pub async fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let reply = self.0.reply(&parts, body, peer).await.unwrap_or_else(Problem::into_response);
        if parts.method == Method::HEAD { without_body(reply) } else { reply }
    }
}

impl<S: Store> Inner<S> {
    async fn reply<B>(&self, parts: &Parts, body: B, peer: IpAddr) -> Result<Reply, Problem>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let route = Route::of(parts.uri.path());
        self.access.check(route.as_ref(), parts)?;
        let route = route.ok_or_else(|| Problem::not_found("nothing is here; `GET /` says what is where"))?;
        route.admit(&parts.method)?;
        let headers = &parts.headers;
        match route {
            Route::Check => self.check(&collect(headers, body, MOST).await?).await,
            Route::Auth => self.auth(parts, peer).await,
            Route::Batch => self.check_batch(&collect(headers, body, MOST_OF_BATCH).await?).await,
            Route::Named(name, operation) => {
                self.named(name, operation, &collect(headers, body, MOST).await?).await
            }
            Route::Settle => self.settle(&collect(headers, body, MOST).await?).await,
            Route::Release => self.release(&collect(headers, body, MOST).await?).await,
            Route::Limits => Ok(self.list_limits()),
            Route::Health => Ok(text("ok\n")),
            Route::Ready => Ok(self.readiness()),
            Route::Metrics => Ok(self.measure()),
            Route::OpenApi => Ok(json(described())),
            Route::Index => Ok(text(INDEX)),
        }
    }

    fn readiness(&self) -> Reply {
        let mut reply = json(self.status.to_json(&self.limiter.load().health()));
        if !self.status.is_ready() {
            *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        reply
    }

    pub(crate) fn append_metrics(&self, out: &mut String) {
        self.metrics().iter().for_each(|append| append(out));
    }

    fn metrics(&self) -> MutexGuard<'_, Vec<Metrics>> {
        // Whoever panicked while appending has left the list as it was.
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a decision as JSON, and remembers what it charged.
    pub(crate) fn tell(&self, limiter: &Limiter<S>, decision: &Decision<'_>, out: &mut Vec<u8>) {
        let id = limiter.id_of(decision);
        Teller { policy: limiter.policy(), secret: &self.secret }.write(decision, id, out);
        self.keep(id, decision);
    }

    /// Remembers what a decision charged, if it charged anything.
    pub(crate) fn keep(&self, id: DecisionId, decision: &Decision<'_>) {
        if let Some(receipt) = decision.receipt() {
            self.receipts.keep(id, receipt);
        }
    }
}

/// The description never changes, so it is written once.
fn described() -> Bytes {
    static DESCRIBED: OnceLock<Bytes> = OnceLock::new();
    DESCRIBED.get_or_init(|| openapi().to_string().into()).clone()
}

impl<S> Clone for Api<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
