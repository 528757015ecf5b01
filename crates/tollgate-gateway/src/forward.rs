//! The service behind the limiter: forwards a request and returns its response.
//!
//! A request is retried only if it cannot execute twice: if it was never sent, or if an idle
//! connection broke under a request that is idempotent and has no body (RFC 9110, 9.2.2). If an
//! upstream cannot be connected to, another one is tried.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::upgrade::OnUpgrade;
use smallvec::SmallVec;
use tokio::time::{Instant, Sleep};
use tollgate::ThrottleShed;
use tollgate_http::{AdmittedRequest, Detached, ServiceTimer, SlotGuard};
use tollgate_net::Trusts;
use tower_service::Service;

use crate::body::{GatewayBody, Progress, Upload, UploadFailure};
use crate::connect::{ConnectError, Connector, Sender};
use crate::detached::{DetachedRequests, HeldAnswer, HeldSlots, discard};
use crate::head::{self, Caller};
use crate::pool::{Lease, Pool};
use crate::problem::Problem;
use crate::settings::Forwarding;
use crate::throttle::{CountedRequest, ThrottleClass};
use crate::tunnel;
use crate::upstream::{Load, Protocol, Upstreams};

/// The maximum number of retries of a request whose connection turns out to be closed.
pub(crate) const MAX_RETRIES: usize = 3;

/// Removes headers from a request.
pub(crate) type StripHeaders = Arc<dyn Fn(&mut HeaderMap) + Send + Sync>;

/// Answers a request that the throttle of its upstream refuses.
pub(crate) type RefuseThrottled =
    Arc<dyn Fn(&Parts, Option<AdmittedRequest>, ThrottleShed) -> Response<Bytes> + Send + Sync>;

/// The state with which a worker forwards requests.
pub(crate) struct Worker {
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) connector: Connector,
    pub(crate) forwarding: Forwarding,
    /// Whether a peer is trusted to name the client it forwards for.
    pub(crate) trusts: Trusts,
    pub(crate) strip_lookalikes: StripHeaders,
    /// Whether limits match the host of a request.
    pub(crate) needs_host: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Returns the priority class of a request for the throttle of its upstream.
    pub(crate) throttle_class: Arc<dyn Fn(&HeaderMap) -> ThrottleClass + Send + Sync>,
    /// Answers a request that the throttle of its upstream refuses.
    pub(crate) refuse_throttled: RefuseThrottled,
    /// The maximum number of headers of a request.
    pub(crate) headers: usize,
    pub(crate) answer: Duration,
    pub(crate) still: Duration,
    pub(crate) total: Option<Duration>,
    pub(crate) body: Option<u64>,
    /// The requests whose callers have disconnected.
    pub(crate) detached: Arc<DetachedRequests>,
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

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        let Some(guard) = request.extensions_mut().remove::<SlotGuard>() else {
            return Box::pin(async move {
                let (worker, caller) = &*shared;
                Ok(worker.forward(caller, request, None).await.unwrap_or_else(Problem::response))
            });
        };
        let detached = Arc::clone(&shared.0.detached);
        let answer = HeldAnswer::new(guard, &detached, |slots| {
            Box::pin(async move {
                let (worker, caller) = &*shared;
                worker.forward(caller, request, Some(slots)).await.unwrap_or_else(Problem::response)
            })
        });
        Box::pin(async move { Ok(answer.await) })
    }
}

/// The failure of one attempt.
enum AttemptError {
    /// The request was not sent and can be retried.
    Unsent(Box<Request<Upload>>),
    /// The connection broke; the upstream may have read the request.
    Broken(String),
    /// The upstream did not answer in time, or the gateway stopped waiting.
    Unanswered(Problem),
    Problem(Problem),
}

/// A request that was sent, resolving to the head of its response.
type Sending =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>> + Send>>;

impl Worker {
    async fn forward(
        &self,
        caller: &Caller,
        mut request: Request<Incoming>,
        slots: Option<HeldSlots>,
    ) -> Result<Response<GatewayBody>, Problem> {
        let started_at = Instant::now();
        let deadline = self.total.map(|total| started_at + total);
        let too_large = |most| http_body::Body::size_hint(request.body()).lower() > most;
        if self.body.is_some_and(too_large) {
            return Err(Problem::BodyTooLarge);
        }
        // The HTTP/1.1 parser enforces the cap itself.
        if request.version() == Version::HTTP_2 && head::sent(&request) > self.headers {
            return Err(Problem::ManyHeaders);
        }
        let wanted = tunnel::wanted(request.version(), request.headers());
        let on_upgrade = wanted.map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        let (mut parts, body) = request.into_parts();
        (self.strip_lookalikes)(&mut parts.headers);
        head::prepare(&mut parts, caller, self.forwarding, &*self.trusts, &*self.needs_host)?;
        let admitted = parts.extensions.remove::<AdmittedRequest>();
        let timer = parts.extensions.remove::<ServiceTimer>();
        let (upload, progress) = Upload::new(body, self.body, self.still, (slots.is_some(), timer));
        let repeatable = progress.is_none() && parts.method.is_idempotent();
        let mut request = Request::from_parts(parts, upload);
        let (mut retries, mut tried) = (0, SmallVec::<[usize; 4]>::new());
        // A retry at the same upstream is the same request to its throttle.
        let mut counted: Option<(usize, Option<CountedRequest>)> = None;
        loop {
            let (at, load) = self.upstreams.choose(&tried).ok_or(Problem::Unreachable)?;
            if counted.as_ref().is_none_or(|it| it.0 != at) {
                let class = || (self.throttle_class)(request.headers());
                match self.upstreams.admit(at, progress.is_some(), class) {
                    Ok(request) => counted = Some((at, request)),
                    Err(_) if tried.len() + 1 < self.upstreams.len() => {
                        tried.push(at);
                        continue;
                    }
                    Err(shed) => {
                        let refusal = (self.refuse_throttled)(&request.into_parts().0, admitted, shed);
                        return Ok(refusal.map(GatewayBody::full));
                    }
                }
            }
            let (mut sender, reused) = match self.connection(at, started_at).await {
                Ok(found) => found,
                Err(Problem::Busy) => return Err(Problem::Busy),
                Err(problem) => {
                    if let Some((_, Some(request))) = counted.take() {
                        request.failed();
                    }
                    if tried.len() + 1 >= self.upstreams.len() {
                        return Err(problem);
                    }
                    tried.push(at);
                    continue;
                }
            };
            request = self.convert(at, &sender, request)?;
            let spare = (reused && repeatable && retries < MAX_RETRIES).then(|| copy(&request));
            let times = (started_at, deadline);
            let (attempted, sending) = match &slots {
                None => (self.attempt(&mut sender, request, progress.as_deref(), times).await, None),
                Some(slots) => {
                    slots.set_sent(true);
                    if let Some(progress) = &progress {
                        progress.set_half_close(sender.half_close());
                    }
                    Box::pin(self.attempt_held(&mut sender, request, progress.as_deref(), times)).await
                }
            };
            match attempted {
                Ok(response) => {
                    self.upstreams.succeeded(at);
                    if let Some((_, Some(request))) = counted {
                        request.answered(response.status());
                    }
                    let lent = UpstreamLease { at, sender, load, progress, slots };
                    return self.pass_back(response, lent, on_upgrade, deadline);
                }
                Err(failed) => match (failed, spare) {
                    (AttemptError::Unsent(unsent), _) if retries < MAX_RETRIES => request = *unsent,
                    (AttemptError::Broken(_), Some(spare)) => request = spare,
                    (failed, _) => {
                        let problem = self.give_up(at, &failed);
                        if let Some((_, Some(request))) = counted
                            && problem.is_measured()
                        {
                            request.failed();
                        }
                        if let Some(slots) = slots {
                            let lent = UpstreamLease { at, sender, load, progress, slots: None };
                            self.leave(&failed, sending, lent, slots);
                        }
                        return Err(problem);
                    }
                },
            }
            if let Some(slots) = &slots {
                slots.set_sent(false);
            }
            retries += 1;
            self.pool.forget(at);
        }
    }

    /// Converts the request to the protocol of this connection, whatever the previous attempt used.
    fn convert(
        &self,
        at: usize,
        sender: &Sender,
        mut request: Request<Upload>,
    ) -> Result<Request<Upload>, Problem> {
        let http2 = matches!(sender, Sender::Two(_));
        if !http2 && request.version() != Version::HTTP_2 {
            head::set_transfer_encoding(&mut request);
            return Ok(request);
        }
        let (mut parts, body) = request.into_parts();
        if parts.version == Version::HTTP_2 {
            head::to_http1(&mut parts);
        }
        if http2 {
            head::to_http2(&mut parts, self.upstreams.protocol(at) == Protocol::Tls)?;
            return Ok(Request::from_parts(parts, body));
        }
        let mut request = Request::from_parts(parts, body);
        head::set_transfer_encoding(&mut request);
        Ok(request)
    }

    /// Returns a connection to an upstream, and whether it was used before.
    async fn connection(&self, at: usize, now: Instant) -> Result<(Sender, bool), Problem> {
        if let Some(sender) = self.pool.take(at, now).await {
            return Ok((sender, true));
        }
        // Boxed: connecting has a large state that most requests do not need.
        match Box::pin(self.connector.connect(self.upstreams.origin(at))).await {
            Ok(sender) => {
                if let Sender::Two(shared) = &sender {
                    self.pool.share(at, shared);
                }
                Ok((sender, false))
            }
            Err(error) => Err(self.connecting_failed(at, error)),
        }
    }

    /// Records that an upstream cannot be connected to.
    pub(crate) fn connecting_failed(&self, at: usize, error: ConnectError) -> Problem {
        if let ConnectError::OutOfSockets(error) = error {
            tracing::warn!(%error, "cannot open another connection to an upstream");
            return Problem::Busy;
        }
        self.upstreams.failed(at, &error.to_string());
        let timed_out = matches!(error, ConnectError::TimedOut(_));
        if timed_out { Problem::TooSlow } else { Problem::Unreachable }
    }

    /// Sends a request and waits for the head of its response.
    async fn attempt(
        &self,
        sender: &mut Sender,
        request: Request<Upload>,
        progress: Option<&Progress>,
        times: (Instant, Option<Instant>),
    ) -> Result<Response<Incoming>, AttemptError> {
        match sender {
            Sender::One(line) => {
                let sending = line.sender.try_send_request(request);
                self.answer_to(sending, line.timer.as_mut(), progress, times).await
            }
            Sender::Two(shared) => {
                let sending = shared.sender.try_send_request(request);
                // Boxed: HTTP/2 upstreams are rare, and the timer would enlarge every request.
                let timer = &mut Box::pin(tokio::time::sleep(self.answer));
                Box::pin(self.answer_to(sending, timer.as_mut(), progress, times)).await
            }
        }
    }

    /// Sends a request that holds slots; on a failure returns the sent request, so that its end can
    /// be awaited.
    async fn attempt_held(
        &self,
        sender: &mut Sender,
        request: Request<Upload>,
        progress: Option<&Progress>,
        times: (Instant, Option<Instant>),
    ) -> (Result<Response<Incoming>, AttemptError>, Option<Sending>) {
        let mut sending: Sending = match sender {
            Sender::One(line) => Box::pin(line.sender.try_send_request(request)),
            Sender::Two(shared) => Box::pin(shared.sender.try_send_request(request)),
        };
        let timer = &mut Box::pin(tokio::time::sleep(self.answer));
        let answer = self.answer_to(sending.as_mut(), timer.as_mut(), progress, times).await;
        (answer, Some(sending))
    }

    /// Releases the slots of a failed request when its upstream has finished it: immediately if the
    /// request was not sent or the connection is closed, else after its response.
    fn leave(&self, failed: &AttemptError, sending: Option<Sending>, lent: UpstreamLease, slots: HeldSlots) {
        let (AttemptError::Unanswered(_), Some(sending)) = (failed, sending) else { return slots.release() };
        let (pool, still) = (Arc::clone(&self.pool), self.still);
        slots.detach(|slots| async move {
            match sending.await {
                Ok(response) => {
                    let lease = Lease { pool, upstream: lent.at, sender: lent.sender, upload: lent.progress };
                    let download =
                        |body| GatewayBody::download(body, (lease, lent.load), Some(slots), still, None);
                    discard(response.map(download)).await;
                }
                Err(_closed) => slots.release(),
            }
        });
    }

    async fn answer_to(
        &self,
        sending: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>,
        mut timer: Pin<&mut Sleep>,
        progress: Option<&Progress>,
        (started_at, deadline): (Instant, Option<Instant>),
    ) -> Result<Response<Incoming>, AttemptError> {
        let due = |since: Instant| deadline.map_or(since + self.answer, |it| it.min(since + self.answer));
        let mut sending = std::pin::pin!(sending);
        let mut due_at = due(started_at);
        let sent = loop {
            timer.as_mut().reset(due_at);
            let sent = std::future::poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(sent) => Poll::Ready(Wake::Answer(sent)),
                Poll::Pending => match progress.map_or(Poll::Pending, |it| it.poll_failure(cx)) {
                    Poll::Ready(failure) => Poll::Ready(Wake::Failure(failure)),
                    Poll::Pending => timer.as_mut().poll(cx).map(|()| Wake::Due),
                },
            });
            match sent.await {
                Wake::Answer(sent) => break sent,
                Wake::Failure(failure) => return Err(AttemptError::Unanswered(failure.into())),
                Wake::Due => {}
            }
            // The upstream cannot answer a request that is still being sent.
            let later = progress.map_or(due_at, |it| due(it.upstream_since()));
            if later <= due_at {
                let all_is_over = deadline.is_some_and(|it| it <= due_at);
                // The client is late, so the upstream must not be ejected.
                let late = all_is_over && progress.is_some_and(Progress::awaits_client);
                return Err(AttemptError::Unanswered(if late { Problem::BodyLate } else { Problem::Slow }));
            }
            due_at = later;
        };
        sent.map_err(|mut error| match (progress.and_then(Progress::failure), error.take_message()) {
            (Some(failure), _) => AttemptError::Problem(failure.into()),
            (None, Some(unsent)) => AttemptError::Unsent(Box::new(unsent)),
            (None, None) => AttemptError::Broken(error.into_error().to_string()),
        })
    }

    fn give_up(&self, at: usize, failed: &AttemptError) -> Problem {
        let (problem, why) = match failed {
            AttemptError::Unanswered(Problem::Slow) => (Problem::Slow, "no response in time"),
            // Caused by the client.
            AttemptError::Problem(problem) | AttemptError::Unanswered(problem) => return *problem,
            AttemptError::Unsent(_) => (Problem::Unreachable, "connections are closed immediately"),
            AttemptError::Broken(why) => (Problem::BrokenOff, &**why),
        };
        self.upstreams.failed(at, why);
        problem
    }

    fn pass_back(
        &self,
        mut response: Response<Incoming>,
        lent: UpstreamLease,
        client: Option<(HeaderValue, OnUpgrade)>,
        deadline: Option<Instant>,
    ) -> Result<Response<GatewayBody>, Problem> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upstream = hyper::upgrade::on(&mut response);
            let chosen = response.headers().get(UPGRADE);
            // The upgrade was not requested, or another protocol was.
            let is_offered = |wanted: &HeaderValue| chosen.is_some_and(|it| tunnel::offers(wanted, it));
            let Some((_, client)) = client.filter(|it| is_offered(&it.0)) else {
                return Err(lent.close());
            };
            let work = Detached::default();
            response.extensions_mut().insert(work.clone());
            tunnel::open(client, upstream, lent.slots, (lent.load, work, lent.sender));
            return Ok(response.map(|_| GatewayBody::empty()));
        }
        if head::is_otherwise_encoded(response.headers()) {
            return Err(lent.close());
        }
        head::strip_nominated(response.headers_mut());
        head::strip_hop_by_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        let (pool, upload) = (Arc::clone(&self.pool), lent.progress);
        let lease = (Lease { pool, upstream: lent.at, sender: lent.sender, upload }, lent.load);
        let (slots, still) = (lent.slots, self.still);
        Ok(response.map(|body| GatewayBody::download(body, lease, slots, still, deadline)))
    }
}

/// The resources of an upstream that a request holds until its response has passed.
struct UpstreamLease {
    at: usize,
    sender: Sender,
    load: Load,
    progress: Option<Arc<Progress>>,
    slots: Option<HeldSlots>,
}

impl UpstreamLease {
    /// Ends a request whose response cannot be passed on: the upstream has answered, and its connection is closed.
    fn close(self) -> Problem {
        if let Some(slots) = self.slots {
            slots.release();
        }
        Problem::BrokenOff
    }
}

/// The event that ends the wait for a response.
enum Wake<A> {
    Answer(A),
    /// The request body failed, but the upstream may still answer.
    Failure(UploadFailure),
    Due,
}

impl From<UploadFailure> for Problem {
    fn from(failure: UploadFailure) -> Self {
        match failure {
            UploadFailure::TooLarge => Self::BodyTooLarge,
            UploadFailure::Late => Self::BodyLate,
            UploadFailure::Broken => Self::BodyBroken,
        }
    }
}

/// Copies a request, which has no body.
fn copy(request: &Request<Upload>) -> Request<Upload> {
    let mut copy = Request::new(Upload::none());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy
}
