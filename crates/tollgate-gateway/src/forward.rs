//! The service behind the limiter: passes a request on and its answer back.
//!
//! A request is sent again only where that cannot do it twice: when it never
//! left this process, or when a connection that had been idle broke under a
//! request that has no body and may be repeated (RFC 9110, 9.2.2). Another
//! upstream is tried when one cannot be connected to.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::upgrade::OnUpgrade;
use smallvec::SmallVec;
use tokio::time::{Instant, Sleep};
use tollgate_http::Outliving;
use tollgate_net::Trusts;
use tower_service::Service;

use crate::body::{GatewayBody, Progress, Upload, UploadFailure};
use crate::connect::{ConnectError, Connector, Sender};
use crate::head::{self, Caller};
use crate::pool::{Lease, Pool};
use crate::problem::Problem;
use crate::settings::Forwarding;
use crate::tunnel;
use crate::upstream::{Load, Speech, Upstreams};

/// How often a request is sent again when its connection turns out to be gone.
const RETRIES: usize = 3;

/// What a worker forwards with.
pub(crate) struct Worker {
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) connector: Connector,
    pub(crate) forwarding: Forwarding,
    /// Whether a peer may say whom it speaks for.
    pub(crate) trusts: Trusts,
    /// Whether limits go by the host of a request.
    pub(crate) needs_host: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The most headers of a request.
    pub(crate) headers: usize,
    pub(crate) answer: Duration,
    pub(crate) still: Duration,
    pub(crate) total: Option<Duration>,
    pub(crate) body: Option<u64>,
}

/// Forwards the requests of one connection.
#[derive(Clone)]
pub(crate) struct Forward(Arc<(Arc<Worker>, Caller)>);

impl Forward {
    pub(crate) fn new(worker: Arc<Worker>, caller: Caller) -> Self {
        Self(Arc::new((worker, caller)))
    }
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response<GatewayBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (worker, caller) = &*shared;
            Ok(worker.forward(caller, request).await.unwrap_or_else(Problem::response))
        })
    }
}

/// What became of one attempt.
enum Failed {
    /// Nothing was sent: it can be sent again.
    Unsent(Box<Request<Upload>>),
    /// The connection broke; the upstream may have read the request.
    Broken(String),
    Problem(Problem),
}

impl Worker {
    async fn forward(
        &self,
        caller: &Caller,
        mut request: Request<Incoming>,
    ) -> Result<Response<GatewayBody>, Problem> {
        let begun = Instant::now();
        let deadline = self.total.map(|total| begun + total);
        let too_large = |most| http_body::Body::size_hint(request.body()).lower() > most;
        if self.body.is_some_and(too_large) {
            return Err(Problem::BodyTooLarge);
        }
        // Over HTTP/1.1 the connection has seen to it.
        if request.version() == Version::HTTP_2 && head::sent(&request) > self.headers {
            return Err(Problem::ManyHeaders);
        }
        let wanted = tunnel::wanted(request.version(), request.headers());
        let on_upgrade = wanted.map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        let (mut parts, body) = request.into_parts();
        head::prepare(&mut parts, caller, self.forwarding, &*self.trusts, &*self.needs_host)?;
        let (upload, progress) = Upload::new(body, self.body, self.still);
        let repeatable = progress.is_none() && parts.method.is_idempotent();
        let mut request = Request::from_parts(parts, upload);
        let (mut retries, mut tried) = (0, SmallVec::<[usize; 4]>::new());
        loop {
            let (at, load) = self.upstreams.choose(&tried).ok_or(Problem::Unreachable)?;
            let (mut sender, reused) = match self.connection(at, begun).await {
                Ok(found) => found,
                Err(problem) if problem != Problem::Busy && tried.len() + 1 < self.upstreams.len() => {
                    tried.push(at);
                    continue;
                }
                Err(problem) => return Err(problem),
            };
            request = self.spoken(at, &sender, request)?;
            let spare = (reused && repeatable && retries < RETRIES).then(|| copy(&request));
            match self.attempt(&mut sender, request, progress.as_deref(), (begun, deadline)).await {
                Ok(response) => {
                    self.upstreams.succeeded(at);
                    let lent = Lent { at, sender, load, progress };
                    return self.pass_back(response, lent, on_upgrade, deadline);
                }
                Err(failed) => match (failed, spare) {
                    (Failed::Unsent(unsent), _) if retries < RETRIES => request = *unsent,
                    (Failed::Broken(_), Some(spare)) => request = spare,
                    (failed, _) => return Err(self.give_up(at, failed)),
                },
            }
            retries += 1;
            self.pool.forget(at);
        }
    }

    /// The request as this connection speaks, whatever the one before it spoke.
    fn spoken(
        &self,
        at: usize,
        sender: &Sender,
        request: Request<Upload>,
    ) -> Result<Request<Upload>, Problem> {
        let http2 = matches!(sender, Sender::Two(_));
        if !http2 && request.version() != Version::HTTP_2 {
            return Ok(request);
        }
        let (mut parts, body) = request.into_parts();
        if parts.version == Version::HTTP_2 {
            head::to_http1(&mut parts);
        }
        if http2 {
            head::to_http2(&mut parts, self.upstreams.speech(at) == Speech::Tls)?;
        }
        Ok(Request::from_parts(parts, body))
    }

    /// A connection to an upstream, and whether it was used before.
    async fn connection(&self, at: usize, now: Instant) -> Result<(Sender, bool), Problem> {
        if let Some(sender) = self.pool.take(at, now).await {
            return Ok((sender, true));
        }
        // Apart: connecting has a large state, and most requests need not carry it about.
        match Box::pin(self.connector.connect(self.upstreams.origin(at))).await {
            Ok(sender) => {
                if let Sender::Two(shared) = &sender {
                    self.pool.share(at, shared);
                }
                Ok((sender, false))
            }
            Err(ConnectError::OutOfSockets(error)) => {
                tracing::warn!(%error, "cannot open another connection to an upstream");
                Err(Problem::Busy)
            }
            Err(error) => {
                self.upstreams.failed(at, &error.to_string());
                let timed_out = matches!(error, ConnectError::TimedOut(_));
                Err(if timed_out { Problem::TooSlow } else { Problem::Unreachable })
            }
        }
    }

    /// Sends a request and waits for the head of its answer.
    async fn attempt(
        &self,
        sender: &mut Sender,
        request: Request<Upload>,
        progress: Option<&Progress>,
        times: (Instant, Option<Instant>),
    ) -> Result<Response<Incoming>, Failed> {
        match sender {
            Sender::One(line) => {
                let sending = line.sender.try_send_request(request);
                self.answer_to(sending, line.timer.as_mut(), progress, times).await
            }
            Sender::Two(shared) => {
                let sending = shared.sender.try_send_request(request);
                // Apart: few speak so, and it need not make everybody's request larger.
                let timer = &mut Box::pin(tokio::time::sleep(self.answer));
                Box::pin(self.answer_to(sending, timer.as_mut(), progress, times)).await
            }
        }
    }

    async fn answer_to(
        &self,
        sending: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>,
        mut timer: Pin<&mut Sleep>,
        progress: Option<&Progress>,
        (begun, deadline): (Instant, Option<Instant>),
    ) -> Result<Response<Incoming>, Failed> {
        let due = |since: Instant| deadline.map_or(since + self.answer, |it| it.min(since + self.answer));
        let mut sending = std::pin::pin!(sending);
        let mut due_at = due(begun);
        let sent = loop {
            timer.as_mut().reset(due_at);
            let sent = std::future::poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(sent) => Poll::Ready(Some(sent)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            });
            if let Some(sent) = sent.await {
                break sent;
            }
            // The upstream cannot answer what is still being sent.
            let later = progress.map_or(due_at, |it| due(it.upstream_since()));
            if later <= due_at {
                let all_is_over = deadline.is_some_and(|it| it <= due_at);
                // Not the upstream's fault: it must not be ejected for it.
                let late = all_is_over && progress.is_some_and(Progress::awaits_client);
                return Err(Failed::Problem(if late { Problem::BodyLate } else { Problem::Slow }));
            }
            due_at = later;
        };
        sent.map_err(|mut error| match (progress.and_then(Progress::failure), error.take_message()) {
            (Some(UploadFailure::TooLarge), _) => Failed::Problem(Problem::BodyTooLarge),
            (Some(UploadFailure::Late), _) => Failed::Problem(Problem::BodyLate),
            (Some(UploadFailure::Broken), _) => Failed::Problem(Problem::BodyBroken),
            (None, Some(unsent)) => Failed::Unsent(Box::new(unsent)),
            (None, None) => Failed::Broken(error.into_error().to_string()),
        })
    }

    fn give_up(&self, at: usize, failed: Failed) -> Problem {
        let (problem, why) = match failed {
            Failed::Problem(Problem::Slow) => (Problem::Slow, "no answer in time".to_owned()),
            // The client's doing.
            Failed::Problem(problem) => return problem,
            Failed::Unsent(_) => (Problem::Unreachable, "connections are closed at once".to_owned()),
            Failed::Broken(why) => (Problem::BrokenOff, why),
        };
        self.upstreams.failed(at, &why);
        problem
    }

    fn pass_back(
        &self,
        mut response: Response<Incoming>,
        lent: Lent,
        client: Option<(HeaderValue, OnUpgrade)>,
        deadline: Option<Instant>,
    ) -> Result<Response<GatewayBody>, Problem> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upstream = hyper::upgrade::on(&mut response);
            let chosen = response.headers().get(UPGRADE);
            // Nobody asked, or for something else: then there is nothing to connect it to.
            let asked_for = |wanted: &HeaderValue| chosen.is_some_and(|it| tunnel::offers(wanted, it));
            let (_, client) = client.filter(|it| asked_for(&it.0)).ok_or(Problem::BrokenOff)?;
            let work = Outliving::default();
            response.extensions_mut().insert(work.clone());
            tunnel::open(client, upstream, (lent.load, work, lent.sender));
            return Ok(response.map(|_| GatewayBody::empty()));
        }
        if head::is_otherwise_encoded(response.headers()) {
            return Err(Problem::BrokenOff);
        }
        head::strip_nominated(response.headers_mut());
        head::strip_hop_by_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        let (pool, upload) = (Arc::clone(&self.pool), lent.progress);
        let lease = Lease { pool, upstream: lent.at, sender: lent.sender, upload };
        Ok(response.map(|body| GatewayBody::download(body, lease, lent.load, self.still, deadline)))
    }
}

/// What a request has of an upstream until its answer has passed.
struct Lent {
    at: usize,
    sender: Sender,
    load: Load,
    progress: Option<Arc<Progress>>,
}

/// The same request once more; it has no body.
fn copy(request: &Request<Upload>) -> Request<Upload> {
    let mut copy = Request::new(Upload::none());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy
}
