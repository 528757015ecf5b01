//! The client: the state that all calls of a program share, and the life of one call.
//!
//! ```text
//! Client::start ─► Session::permit ─► (send) ─► SendPermit::answered ─► done
//!                    ▲   waits for buckets,          │ retry: wait for the backoff
//!                    └── then for the shared budget ─┘
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderMap, Method, StatusCode, Uri};
use tollgate::{Clock, SleepFuture, Sleeper, SystemClock, Timestamp};
use tracing::{Instrument, Span};

use crate::budget::{Budget, BudgetRequest, Reservation, ReserveFuture};
use crate::call::{CallKey, CallOptions, host_of};
use crate::error::{Error, GaveUp, GaveUpCause};
use crate::headers::Advice;
use crate::registry::BucketView;
use crate::retry::Safety;
use crate::scheduler::{Attempt, CallRequest, Counts, Grant, NextStep, Scheduler, Start, WaitState};
use crate::settings::Settings;
use crate::span;

/// The longest time between the reservation of shared units and their use.
const MAX_RESERVATION_AGE: tollgate::Span = tollgate::Span::from_millis(100);

/// Paces and retries the calls of a program. Clones share everything that was learned.
///
/// ```
/// # use http::{HeaderMap, Method, Response};
/// # use tollgate_client::{Call, Client};
/// # pollster::block_on(async {
/// let client = Client::default();
/// let (uri, headers) = ("https://api.example.com/users".parse().unwrap(), HeaderMap::new());
/// let call = Call::new(&Method::GET, &uri, &headers);
/// let answer = client.call(&call, |_try| async { Ok::<_, std::io::Error>(Response::new("ann")) }).await;
/// assert_eq!(answer.unwrap().into_body(), "ann");
/// # });
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    settings: Settings,
    hashes: RandomState,
    clock: Box<dyn Clock>,
    sleeper: Sleeper,
    budget: Option<Box<dyn Budget>>,
    scheduler: Mutex<Scheduler>,
    rng: Mutex<fastrand::Rng>,
}

/// Builds a [`Client`].
pub struct ClientBuilder {
    settings: Settings,
    clock: Box<dyn Clock>,
    sleeper: Sleeper,
    budget: Option<Box<dyn Budget>>,
    rng: fastrand::Rng,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            clock: Box::new(SystemClock::new()),
            sleeper: Sleeper::default(),
            budget: None,
            rng: fastrand::Rng::new(),
        }
    }
}

impl ClientBuilder {
    /// Changes the settings.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Sets the clock. The default is the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Sets the timer, such as `tokio::time::sleep`. The default is a thread of this process.
    #[must_use]
    pub fn sleeper(mut self, sleeper: Sleeper) -> Self {
        self.sleeper = sleeper;
        self
    }

    /// Sets a budget that other processes share.
    #[must_use]
    pub fn budget(mut self, budget: impl Budget) -> Self {
        self.budget = Some(Box::new(budget));
        self
    }

    /// Makes the jitter repeatable.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = fastrand::Rng::with_seed(seed);
        self
    }

    /// Creates the client.
    pub fn build(self) -> Client {
        let hashes = RandomState::new();
        let scheduler = Mutex::new(Scheduler::new(self.settings.clone(), hashes.clone()));
        let Self { settings, clock, sleeper, budget, rng } = self;
        Client(Arc::new(Inner { settings, hashes, clock, sleeper, budget, scheduler, rng: Mutex::new(rng) }))
    }
}

impl Default for Client {
    fn default() -> Self {
        ClientBuilder::default().build()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

/// A response, as far as a client reads it.
pub trait Answer {
    /// Returns the status.
    fn status(&self) -> StatusCode;
    /// Returns the headers.
    fn headers(&self) -> &HeaderMap;
}

impl<B> Answer for http::Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

/// The head of a call, which identifies its server, route and credential.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    pub(crate) method: &'c Method,
    pub(crate) uri: &'c Uri,
    pub(crate) headers: &'c HeaderMap,
    pub(crate) options: CallOptions,
}

impl<'c> Call<'c> {
    /// Creates a call.
    pub fn new(method: &'c Method, uri: &'c Uri, headers: &'c HeaderMap) -> Self {
        Self { method, uri, headers, options: CallOptions::default() }
    }

    /// Sets the urgency and the cost.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }
}

impl Client {
    /// Returns a builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Sends a call with `send`, which gets the number of the try, until the call is answered or given up.
    ///
    /// A response that no retry can replace is returned as it is, whatever its status.
    pub async fn call<A, E, F>(&self, call: &Call<'_>, send: impl FnMut(u32) -> F) -> Result<A, Error<E>>
    where
        A: Answer,
        F: Future<Output = Result<A, E>>,
    {
        self.run(call, send, true).await
    }

    /// Makes a call. `is_repeatable` says whether it can be sent again.
    pub(crate) async fn run<A, E, F>(
        &self,
        call: &Call<'_>,
        mut send: impl FnMut(u32) -> F,
        is_repeatable: bool,
    ) -> Result<A, Error<E>>
    where
        A: Answer,
        F: Future<Output = Result<A, E>>,
    {
        let mut session = self.start(call);
        loop {
            let permit = session.permit().await?;
            let sent = send(session.tries).instrument(session.span.clone()).await;
            let step = match &sent {
                Ok(answer) => permit.answered(answer.status(), answer.headers(), &session, is_repeatable),
                Err(_) => permit.failed(&session, is_repeatable),
            };
            match (step, sent) {
                (NextStep::Retry(wait), sent) => {
                    drop(sent);
                    self.sleep(wait).await;
                }
                (NextStep::Return, Ok(answer)) => return Ok(answer),
                (NextStep::Return, Err(source)) => {
                    return Err(Error::Failed { tries: session.tries, source });
                }
            }
        }
    }

    /// Returns the events since the start.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Returns the number of calls that wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Returns a view of each bucket.
    pub fn bucket_views(&self) -> Vec<BucketView> {
        self.with(Scheduler::views)
    }

    /// Returns the number of buckets that are remembered.
    pub fn buckets(&self) -> usize {
        self.lock().buckets()
    }

    pub(crate) fn start(&self, call: &Call<'_>) -> Session {
        let key = CallKey::of(&self.0.hashes, (call.method, call.uri, call.headers), &call.options);
        let since = self.0.clock.now();
        let timeout = call.options.timeout.unwrap_or(self.0.settings.timeout);
        let budget = self.0.budget.as_ref().map(|_| BudgetRequest::new(call));
        // Only the first call of a scope needs the name of its server.
        let host = self.lock().is_new_scope(key.scope).then(|| host_of((call.uri, call.headers)));
        let request = CallRequest {
            key,
            options: call.options,
            since,
            deadline: since + timeout.into(),
            is_retry: false,
        };
        let safety = call.options.safety.unwrap_or_else(|| Safety::of(call.method, call.headers));
        let span = span::call_span(call);
        Session { client: self.clone(), request, safety, host, budget, span, tries: 0, reservation: None }
    }

    pub(crate) async fn sleep(&self, wait: tollgate::Span) {
        if !wait.is_zero() {
            self.0.sleeper.sleep(wait.into()).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Scheduler> {
        // The scheduler does not panic; after one elsewhere its state is still consistent.
        self.0.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a function on the scheduler, and wakes the calls that it concerns.
    fn with<T>(&self, run: impl FnOnce(&mut Scheduler, Timestamp) -> T) -> T {
        let now = self.0.clock.now();
        let mut scheduler = self.lock();
        let result = run(&mut scheduler, now);
        if scheduler.wakes.is_empty() {
            return result;
        }
        let wakes = std::mem::take(&mut scheduler.wakes);
        drop(scheduler);
        for waker in wakes {
            waker.wake();
        }
        result
    }

    fn random(&self) -> [f64; 2] {
        let mut rng = self.0.rng.lock().unwrap_or_else(PoisonError::into_inner);
        [rng.f64(), rng.f64()]
    }
}

/// One call with its attempts.
pub(crate) struct Session {
    client: Client,
    request: CallRequest,
    safety: Safety,
    host: Option<String>,
    budget: Option<BudgetRequest>,
    /// The span of the call, with the fields of `span`.
    pub(crate) span: Span,
    pub(crate) tries: u32,
    /// Units of the shared budget for the next attempt.
    reservation: Option<Box<dyn Reservation>>,
}

impl Session {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the time that the call has left.
    pub(crate) fn time_left(&self) -> tollgate::Span {
        self.request.deadline.since(self.client.0.clock.now())
    }

    /// Waits until the next attempt may be sent.
    pub(crate) async fn permit(&mut self) -> Result<SendPermit, GaveUp> {
        let permit = self.next_permit().await;
        if !self.span.is_disabled() {
            let waited = self.client.0.clock.now().since(self.request.since);
            span::record_permit(&self.span, self.tries, waited.into(), permit.as_ref().err());
        }
        permit
    }

    async fn next_permit(&mut self) -> Result<SendPermit, GaveUp> {
        loop {
            let requested_at = self.client.0.clock.now();
            let grant = self.granted().await?;
            self.request.is_retry = true;
            // Reserved units that are held for long would be sent together with those that others reserve meanwhile.
            let is_old = self.client.0.clock.now().since(requested_at) > MAX_RESERVATION_AGE;
            if let Some(old) = self.reservation.take_if(|_| is_old) {
                old.cancel();
            }
            let mut permit =
                SendPermit { client: self.client.clone(), grant: Some(grant), reservation: None };
            let (Some(budget), Some(request)) = (&self.client.0.budget, &self.budget) else {
                self.tries += 1;
                return Ok(permit);
            };
            if self.reservation.is_none() {
                // The units of a bucket are not held while the call waits for those of the budget.
                permit.withdraw();
                let left = self.time_left().into();
                let timeout = self.client.0.sleeper.sleep(left);
                let reserved = reserve_in_time(budget.reserve(request, left), timeout).await;
                self.reservation = Some(reserved.map_err(|cause| GaveUp {
                    host: request.host.clone(),
                    waited: self.client.0.clock.now().since(self.request.since).into(),
                    cause,
                })?);
                continue;
            }
            permit.reservation = self.reservation.take();
            self.tries += 1;
            return Ok(permit);
        }
    }

    async fn granted(&mut self) -> Result<Grant, GaveUp> {
        let (request, host) = (self.request, self.host.take());
        match self.client.with(|it, now| it.start(request, || host.unwrap_or_default(), now))? {
            Start::Granted(grant) => Ok(grant),
            Start::Waiting(id) => Waiting { client: &self.client, id: Some(id), sleep: None }.await,
        }
    }

    fn attempt(&self, is_repeatable: bool) -> Attempt {
        Attempt {
            tries: self.tries,
            safety: self.safety,
            is_repeatable,
            deadline: self.request.deadline,
            random: self.client.random(),
        }
    }
}

/// The permission to send one attempt. Dropping it without a result counts as no response.
pub(crate) struct SendPermit {
    client: Client,
    grant: Option<Grant>,
    reservation: Option<Box<dyn Reservation>>,
}

impl SendPermit {
    /// Ends the attempt with the head of a response.
    pub(crate) fn answered(
        mut self,
        status: StatusCode,
        headers: &HeaderMap,
        session: &Session,
        is_repeatable: bool,
    ) -> NextStep {
        let advice = Advice::read(headers);
        if let Some(reservation) = self.reservation.take() {
            reservation.settle(status, headers, advice.is_refusal(status));
        }
        span::record_answer(&session.span, status, advice.is_refusal(status));
        let Some(grant) = self.grant.take() else { return NextStep::Return };
        let attempt = session.attempt(is_repeatable);
        self.client.with(|it, now| it.answered(&grant, (status, &advice), &attempt, now))
    }

    /// Ends the attempt without a response.
    pub(crate) fn failed(mut self, session: &Session, is_repeatable: bool) -> NextStep {
        let Some(grant) = self.grant.take() else { return NextStep::Return };
        let attempt = session.attempt(is_repeatable);
        self.client.with(|it, now| it.failed(&grant, &attempt, now))
    }
}

impl SendPermit {
    /// Gives back the permission: nothing was sent.
    fn withdraw(mut self) {
        if let Some(grant) = self.grant.take() {
            self.client.with(|it, now| it.withdraw(&grant, now));
        }
    }
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.client.with(|it, now| it.cancel(&grant, now));
        }
    }
}

/// Waits for a reservation, or for the end of the time of its call.
async fn reserve_in_time(
    mut reserve: ReserveFuture<'_>,
    mut timeout: SleepFuture,
) -> Result<Box<dyn Reservation>, GaveUpCause> {
    poll_fn(|context| match reserve.as_mut().poll(context) {
        Poll::Ready(reserved) => Poll::Ready(reserved),
        Poll::Pending => timeout.as_mut().poll(context).map(|()| Err(GaveUpCause::SharedBudgetQueue)),
    })
    .await
}

/// A call that waits for its buckets.
struct Waiting<'c> {
    client: &'c Client,
    id: Option<u64>,
    sleep: Option<(Timestamp, SleepFuture)>,
}

impl Future for Waiting<'_> {
    type Output = Result<Grant, GaveUp>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(id) = self.id else { return Poll::Pending };
        loop {
            let (state, now) = self.client.with(|it, now| (it.poll(id, context.waker(), now), now));
            let until = match state {
                Some(WaitState::Pending(until)) => until,
                Some(WaitState::Done(result)) => {
                    self.id = None;
                    return Poll::Ready(result);
                }
                None => return Poll::Pending,
            };
            if self.sleep.as_ref().is_none_or(|(set, _)| *set != until) {
                let sleep = self.client.0.sleeper.sleep(until.since(now).into());
                self.sleep = Some((until, sleep));
            }
            let Some((_, sleep)) = &mut self.sleep else { return Poll::Pending };
            match sleep.as_mut().poll(context) {
                Poll::Ready(()) => self.sleep = None,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.client.with(|it, now| it.leave(id, now));
        }
    }
}
