//! A service with one limit for all clients, and the network before it.

use std::sync::Mutex;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Response, StatusCode};
use tollgate::{Call, Decision, Limiter, ManualClock, MemoryStore, Span};

use super::world::Timers;
use super::{Limit, seconds};
use crate::executor::lock;

/// The time of a message in one direction, in microseconds: from, to.
const LATENCY_US: (u64, u64) = (2_000, 8_000);
/// The keys of the store: the limit has one.
const MAX_KEYS: usize = 64;

pub(super) struct Service {
    timers: Timers,
    limiter: Limiter<MemoryStore<ManualClock>>,
    period: Span,
    per_second: f64,
    state: Mutex<State>,
}

struct State {
    rng: fastrand::Rng,
    counts: ServiceCounts,
}

/// The counts of the responses of the service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceCounts {
    pub(super) attempts: u64,
    pub(super) refused: u64,
}

impl Service {
    pub(super) fn new(limit: &Limit, timers: Timers, seed: u64) -> Self {
        let store = MemoryStore::with_seed(MAX_KEYS, timers.clock(), seed);
        let state =
            Mutex::new(State { rng: fastrand::Rng::with_seed(seed), counts: ServiceCounts::default() });
        let (period, per_second) = (limit.rate.period, limit.per_second());
        Self { limiter: Limiter::with_store(limit.policy.clone(), store), timers, period, per_second, state }
    }

    /// Answers an attempt, after the time of both messages.
    pub(super) async fn answer(&self) -> Response<()> {
        self.travel().await;
        let decided = self.limiter.try_decide(&Call::new("GET", "/"), |decision| self.respond(decision));
        // A store in memory does not wait.
        let response = decided.unwrap_or_default();
        self.travel().await;
        response
    }

    pub(super) fn counts(&self) -> ServiceCounts {
        lock(&self.state).counts
    }

    async fn travel(&self) {
        let micros = lock(&self.state).rng.u64(LATENCY_US.0..LATENCY_US.1);
        self.timers.sleep(Duration::from_micros(micros)).await;
    }

    /// Writes the headers of the gateway.
    fn respond(&self, decision: &Decision<'_>) -> Response<()> {
        let mut response = Response::new(());
        let counts = &mut lock(&self.state).counts;
        counts.attempts += 1;
        let headers = response.headers_mut();
        if let Some(limit) = decision.limiting() {
            let window = seconds(self.period).ceil().max(1.0);
            let quota = self.per_second * window;
            insert(headers, "ratelimit-policy", &format!("\"api\";q={quota:.0};w={window}"));
            let reset = limit.reset_after().as_secs_f64().ceil();
            insert(headers, "ratelimit", &format!("\"api\";r={};t={reset}", limit.remaining()));
        }
        if let Some(wait) = decision.retry_after().filter(|_| !decision.is_allowed()) {
            counts.refused += 1;
            insert(headers, "retry-after", &wait.as_secs_f64().ceil().max(1.0).to_string());
            insert(headers, "retry-after-ms", &(wait.as_secs_f64() * 1e3).ceil().to_string());
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        response
    }
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = value.parse() {
        headers.insert(HeaderName::from_static(name), value);
    }
}
