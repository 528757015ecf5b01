//! The clients: Tollgate's and its peers, each around the same `reqwest` client.

use std::time::Duration;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tollgate::Sleeper;
use tollgate_client::{CallOptions, Client};
use tower::retry::Policy;
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::watch::Watch;

/// The tasks that call.
pub(crate) const TASKS: usize = 100;
/// The most attempts of a call, of every subject.
const TRIES: u32 = 20;
const TIMEOUT: Duration = Duration::from_secs(600);

/// A client that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Tollgate,
    ReqwestRetry,
    TowerRetry,
}

impl Subject {
    pub(crate) const ALL: [Self; 3] = [Self::Tollgate, Self::ReqwestRetry, Self::TowerRetry];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate-client",
            Self::ReqwestRetry => "reqwest-retry",
            Self::TowerRetry => "tower-retry",
        }
    }

    /// Makes the calls. Returns the number that succeeded.
    pub(crate) async fn run(self, url: &str, calls: usize, watch: &Watch) -> usize {
        let http = reqwest::Client::new();
        match self {
            Self::Tollgate => run_ours(vec![Target::get(url.to_owned())], calls, watch).await,
            Self::ReqwestRetry => {
                let policy = ExponentialBackoff::builder().build_with_max_retries(TRIES - 1);
                let client = ClientBuilder::new(http)
                    .with(RetryTransientMiddleware::new_with_policy(policy))
                    .with(Watching(watch.clone()))
                    .build();
                spawn(calls, |_| reqwest_retry(client.clone(), url.to_owned())).await
            }
            Self::TowerRetry => {
                let watch = watch.clone();
                let inner = tower::service_fn(move |request: reqwest::Request| {
                    let (watch, http) = (watch.clone(), http.clone());
                    async move { watch.send(&http, request).await }
                });
                let service = ServiceBuilder::new().retry(Backoff(0)).service(inner);
                spawn(calls, |_| tower_retry(service.clone(), url.to_owned())).await
            }
        }
    }
}

/// A request that is sent many times.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    url: String,
    body: Option<&'static str>,
}

impl Target {
    pub(crate) const fn get(url: String) -> Self {
        Self { url, body: None }
    }

    /// A request for a chat completion.
    pub(crate) const fn chat(url: String) -> Self {
        const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"How many calls does a limit of three permit?"}],"max_tokens":20}"#;
        Self { url, body: Some(BODY) }
    }

    fn request(&self, http: &reqwest::Client) -> reqwest::Result<reqwest::Request> {
        match self.body {
            Some(body) => http.post(&self.url).header("content-type", "application/json").body(body).build(),
            None => http.get(&self.url).build(),
        }
    }
}

/// Makes calls with a client of Tollgate that has the settings of the other subjects.
pub(crate) async fn run_ours(targets: Vec<Target>, calls: usize, watch: &Watch) -> usize {
    let client = Client::builder()
        .settings(|it| (it.timeout, it.tries) = (TIMEOUT, TRIES))
        .sleeper(Sleeper::new(sleep))
        .build();
    run_client(&client, &reqwest::Client::new(), &targets, calls, watch).await
}

/// Makes calls with a client of Tollgate, to the targets in turn.
pub(crate) async fn run_client(
    client: &Client,
    http: &reqwest::Client,
    targets: &[Target],
    calls: usize,
    watch: &Watch,
) -> usize {
    let call = |number: usize| {
        let (client, http, watch) = (client.clone(), http.clone(), watch.clone());
        let target = targets[number % targets.len()].clone();
        async move {
            let Ok(request) = target.request(&http) else { return false };
            let uri = target.url.parse().unwrap_or_default();
            let call = tollgate_client::Call::new(request.method(), &uri, request.headers())
                .options(CallOptions::default().timeout(TIMEOUT));
            let sent = client.call(&call, |_| {
                let request = request.try_clone();
                let (http, watch) = (&http, &watch);
                async move {
                    match request {
                        Some(request) => watch.send(http, request).await,
                        None => http.get("").send().await,
                    }
                }
            });
            sent.await.is_ok_and(|it| it.status().is_success())
        }
    };
    spawn(calls, call).await
}

async fn reqwest_retry(client: ClientWithMiddleware, url: String) -> bool {
    client.get(&url).send().await.is_ok_and(|it| it.status().is_success())
}

async fn tower_retry<S>(service: S, url: String) -> bool
where
    S: Service<reqwest::Request, Response = reqwest::Response>,
{
    let Ok(url) = url.parse() else { return false };
    let sent = service.oneshot(reqwest::Request::new(http::Method::GET, url)).await;
    sent.is_ok_and(|it| it.status().is_success())
}

/// Makes calls by many tasks, each as fast as it can. `call` gets the number of the call. Returns the number of calls
/// that succeeded.
async fn spawn<F>(calls: usize, call: impl Fn(usize) -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let futures: Vec<_> = (task..calls).step_by(TASKS).map(&call).collect();
        tasks.spawn(async move {
            let mut succeeded = 0;
            for future in futures {
                succeeded += usize::from(future.await);
            }
            succeeded
        });
    }
    let mut succeeded = 0;
    while let Some(ended) = tasks.join_next().await {
        succeeded += ended.unwrap_or(0);
    }
    succeeded
}

/// Counts attempts after the middleware that retries.
struct Watching(Watch);

#[async_trait::async_trait]
impl Middleware for Watching {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        self.0.started();
        let response = next.run(request, extensions).await?;
        self.0.ended(response.status(), response.headers());
        Ok(response)
    }
}

/// The policy of tower's documentation: refusals are retried with exponential backoff.
#[derive(Clone)]
struct Backoff(u32);

impl<E> Policy<reqwest::Request, reqwest::Response, E> for Backoff {
    type Future = Sleep;

    fn retry(
        &mut self,
        _request: &mut reqwest::Request,
        result: &mut Result<reqwest::Response, E>,
    ) -> Option<Sleep> {
        let is_refused =
            result.as_ref().map_or(true, |it| it.status() == http::StatusCode::TOO_MANY_REQUESTS);
        if !is_refused || self.0 + 1 >= TRIES {
            return None;
        }
        self.0 += 1;
        Some(sleep(Duration::from_millis(50) * 2_u32.pow(self.0.min(10))))
    }

    fn clone_request(&mut self, request: &reqwest::Request) -> Option<reqwest::Request> {
        request.try_clone()
    }
}
