//! Sends one request, and reads its response to the end.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tollgate_client::Answer;
use tollgate_net::Connector;

use crate::plan::LoadPlan;

const USER_AGENT: &str = concat!("tollgate-bench/", env!("CARGO_PKG_VERSION"));

/// Sends the request of a plan.
pub(crate) struct Sender {
    pool: Pool<Connector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
    timeout: Duration,
}

/// The head of a response whose body was read.
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

impl Answer for Head {
    fn status(&self) -> StatusCode {
        self.status
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// The reason why a request has no response.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the server cannot be reached: {0}")]
    Connect(String),
    #[error("no complete response in time")]
    Timeout,
    /// The connection broke, or the response is not HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl Sender {
    pub(crate) fn new(plan: &LoadPlan) -> Result<Self, http::Error> {
        let scheme = if plan.url.is_secure() { Scheme::HTTPS } else { Scheme::HTTP };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(Authority::try_from(plan.url.authority())?)
            .path_and_query(PathAndQuery::try_from(plan.url.target(""))?)
            .build()?;
        let mut request = Request::new(Full::new(plan.body.clone()));
        (*request.method_mut(), *request.uri_mut()) = (plan.method.clone(), uri);
        *request.headers_mut() = plan.headers.clone();
        let agent = HeaderValue::from_static(USER_AGENT);
        request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(plan.connections)
            .retry_canceled_requests(true)
            .build(Connector::new(plan.url.clone(), plan.tls.clone()));
        Ok(Self { pool, request, timeout: plan.timeout })
    }

    /// Returns the head of the request.
    pub(crate) fn request(&self) -> &Request<Full<Bytes>> {
        &self.request
    }

    pub(crate) async fn send(&self) -> Result<Head, SendError> {
        let exchange = async {
            let response = self.pool.request(self.request.clone()).await.map_err(|error| {
                let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                if error.is_connect() { SendError::Connect(cause) } else { SendError::Broken(cause) }
            })?;
            let (parts, mut body) = response.into_parts();
            while let Some(frame) = body.frame().await {
                frame.map_err(|error| SendError::Broken(error.to_string()))?;
            }
            Ok(Head { status: parts.status, headers: parts.headers })
        };
        timeout(self.timeout, exchange).await.unwrap_or(Err(SendError::Timeout))
    }
}
