//! Health, `/json`, `/rlconfig` and metrics, on the ports of envoyproxy/ratelimit.
//!
//! They outlive the gRPC listener: health checks fail while running calls end.
//!
//! Health does not depend on Redis. Kubernetes would otherwise remove all replicas at once when Redis is
//! down, although limits continue locally.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;
use tollgate::SharedLimiter;
use tollgate_envoy::Domains;
use tollgate_net::{Connection, Drain, Drainer, HttpServer};
use tollgate_rls::Rls;
use tollgate_server::Status;
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::Counter;
use tollgate_xds::XdsCounters;

use super::RatelimitPorts;
use crate::configuration::Listen;
use crate::failure::Failure;
use crate::process_metrics::{ProcessMetrics, Reloads};
use crate::store::AnyStore;
use crate::surfaces::{REQUEST_BODY_TIMEOUT, bind, start_thread};

/// The maximum size of a request for `/json`.
const MAX_JSON_BYTES: usize = 1 << 20;

/// The parts of the service that the listeners show.
#[derive(Clone)]
pub(crate) struct RatelimitSources {
    pub(crate) rls: Rls<AnyStore>,
    pub(crate) limiter: SharedLimiter<AnyStore>,
    pub(crate) status: Arc<Status>,
    pub(crate) reloads: Arc<Reloads>,
    /// The counters of the configuration server's client, if there is one.
    pub(crate) config_server: Option<Arc<XdsCounters>>,
    pub(crate) metrics: Arc<ProcessMetrics>,
}

/// The open listeners. Dropping them closes them.
pub(crate) struct RatelimitListeners {
    _drainer: Drainer,
}

/// The pages of one listener.
#[derive(Clone)]
enum Pages {
    Health { needs_config: bool },
    Debug,
    Metrics { path: String },
}

impl RatelimitListeners {
    /// Opens the listeners, and serves them on a thread of their own.
    pub(crate) fn open(ports: &RatelimitPorts, sources: &RatelimitSources) -> Result<Self, Failure> {
        if ports.metrics.is_some() {
            sources.rls.measure_response_times();
        }
        let metrics = ports
            .metrics
            .clone()
            .map(|(address, path)| (address, "PROMETHEUS_ADDR", Pages::Metrics { path }));
        let health = Pages::Health { needs_config: ports.needs_config };
        let listeners =
            [(ports.http.clone(), "PORT", health), (ports.debug.clone(), "DEBUG_PORT", Pages::Debug)];
        let (drainer, drain) = Drain::new();
        for (address, variable, pages) in listeners.into_iter().chain(metrics) {
            let sockets = bind(&Listen::On(address), variable, 1, &mut Vec::new())?;
            for listener in sockets.into_iter().flat_map(tollgate_net::Sockets::into_listeners) {
                let (sources, drain, pages) = (sources.clone(), drain.clone(), pages.clone());
                start_thread(&format!("ratelimit-{variable}"), async move {
                    let make = move |_: &Connection| {
                        let (sources, pages) = (sources.clone(), pages.clone());
                        service_fn(move |request: Request<Incoming>| {
                            let (sources, pages) = (sources.clone(), pages.clone());
                            async move { Ok::<_, Infallible>(sources.answer(&pages, request).await) }
                        })
                    };
                    if let Err(error) = HttpServer::default().serve(listener, make, drain).await {
                        tracing::error!(%error, "a listener of {variable} has stopped");
                    }
                })?;
            }
        }
        Ok(Self { _drainer: drainer })
    }
}

impl RatelimitSources {
    async fn answer(&self, pages: &Pages, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        match (pages, request.uri().path()) {
            (Pages::Health { needs_config }, "/healthcheck") if is_read => self.health(*needs_config),
            (Pages::Health { .. }, "/json") if request.method() == Method::POST => self.json(request).await,
            (Pages::Debug, "/rlconfig") if is_read => text(StatusCode::OK, self.config_dump()),
            (Pages::Debug, "/") if is_read => {
                text(StatusCode::OK, "/rlconfig: the limits in force\n".to_owned())
            }
            (Pages::Metrics { path }, requested) if is_read && requested == path => self.metrics(),
            _ => text(StatusCode::NOT_FOUND, "no such page\n".to_owned()),
        }
    }

    /// Answers 200 while the service runs, and 500 while it ends.
    fn health(&self, needs_config: bool) -> Response<Full<Bytes>> {
        let lacks_config = needs_config && self.config_server.as_ref().is_some_and(|it| !it.is_configured());
        if !self.status.is_ready() || lacks_config {
            return text(StatusCode::INTERNAL_SERVER_ERROR, "NOT OK".to_owned());
        }
        text(StatusCode::OK, "OK".to_owned())
    }

    async fn json(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let body = timeout(REQUEST_BODY_TIMEOUT, Limited::new(request.into_body(), MAX_JSON_BYTES).collect());
        let Ok(Ok(body)) = body.await else {
            return text(
                StatusCode::BAD_REQUEST,
                format!("the body is at most {MAX_JSON_BYTES} bytes of JSON\n"),
            );
        };
        let (status, answer) = self.rls.json(&body.to_bytes()).await;
        let mut response = Response::new(Full::new(answer));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// Lists the limits in force, in the format of envoyproxy/ratelimit.
    fn config_dump(&self) -> String {
        let limiter = self.limiter.load();
        let mut dump = String::new();
        for leaf in Domains::of(limiter.policy()).iter().flat_map(|it| it.leaves()) {
            let unit = leaf.unit().map_or_else(|| "UNKNOWN".to_owned(), |it| it.name().to_ascii_uppercase());
            let (name, requests) = (leaf.stat(), leaf.requests_per_unit().unwrap_or_default());
            let _never = writeln!(
                dump,
                "{name}: unit={unit} requests_per_unit={requests}, shadow_mode: {}, quota_mode: {}",
                leaf.shadow_mode(),
                leaf.quota_mode()
            );
        }
        dump
    }

    /// Writes the metrics under the names of envoyproxy/ratelimit, and then Tollgate's own.
    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut out = String::new();
        self.rls.upstream_metrics(self.metrics.degraded(), &mut out);
        let (loaded, failed) = match &self.config_server {
            Some(counters) => {
                let status = counters.status();
                (status.accepted, status.rejected)
            }
            None => (self.status.version(), self.reloads.failures()),
        };
        let mut to = Exposition::new(&mut out);
        to.one(
            "ratelimit_service_config_load_success",
            Counter,
            "Configurations that came into force.",
            loaded,
        );
        to.one("ratelimit_service_config_load_error", Counter, "Configurations that were rejected.", failed);
        self.metrics.write(&mut out);
        let mut response = text(StatusCode::OK, out);
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
