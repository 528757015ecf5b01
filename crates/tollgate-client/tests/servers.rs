//! Simulated servers with limits, in the dialects of real ones.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode, Uri};
use tokio::time::{Instant, sleep};
use tollgate::{Clock, Sleeper, Span, Timestamp};
use tollgate_client::{Call, CallOptions, Client, ClientBuilder, Settings};

/// The paused clock of tokio, and the clock of a server that is ahead of it.
#[derive(Clone, Copy)]
pub(crate) struct TokioClock(pub(crate) Instant);

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        START + Span::from(self.0.elapsed())
    }
}

pub(crate) fn client(change: impl FnOnce(&mut Settings)) -> (Client, TokioClock) {
    let clock = TokioClock(Instant::now());
    let sleeper = Sleeper::new(sleep);
    (ClientBuilder::default().clock(clock).sleeper(sleeper).seed(7).settings(change).build(), clock)
}

/// How a server counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counting {
    /// A token bucket: capacity, units per second.
    Refill(f64, f64),
    /// Windows that begin with a request: units, seconds.
    Window(f64, f64),
    /// Windows aligned to the clock: units, seconds.
    Aligned(f64, f64),
    /// Windows that follow each other from a fraction of a second on: units, seconds.
    Phased(f64, f64),
    /// Windows that begin with a request and end at a whole second: units, seconds.
    WholeSecond(f64, f64),
}

/// How a server rounds the date of a reset to whole seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    Up,
    Down,
    Nearest,
}

/// The fraction of a second at which windows begin that follow each other.
const PHASE: f64 = 0.37;

/// The headers of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Dialect {
    /// Draft 11, with `Retry-After`.
    Ietf,
    /// Draft 11 with `retry-after-ms`, as Tollgate writes it.
    Tollgate,
    /// `X-RateLimit-*` with dates.
    GitHub,
    /// `X-RateLimit-*` with a bucket and fractions of seconds.
    Discord,
    OpenAi,
    /// Only `Retry-After`.
    RetryAfter,
    /// Only the status.
    Silent,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) counting: Counting,
    pub(crate) dialect: Dialect,
    /// How far its clock is ahead, in microseconds.
    pub(crate) ahead: i64,
    pub(crate) rounding: Rounding,
    /// Whether a refusal has `Retry-After`.
    pub(crate) has_retry_after: bool,
    /// Whether responses have `Date`.
    pub(crate) has_date: bool,
    /// The largest part of a network delay that is random, in seconds.
    pub(crate) jitter: f64,
    /// A limit that the headers do not show: calls, and the seconds in which they are counted.
    pub(crate) secondary: Option<(usize, f64)>,
    /// A limit of all routes, in calls per second, that no header shows.
    pub(crate) global: Option<f64>,
    /// A second bucket of the dialect of `OpenAI`: tokens, and tokens per second. A call costs 20 to 60.
    pub(crate) tokens: Option<(f64, f64)>,
    is_one: bool,
    clock: TokioClock,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    buckets: HashMap<String, (f64, f64)>,
    rng: latency::Rng,
    recent: VecDeque<f64>,
    second: (f64, f64),
    /// Tokens that are left, at a time.
    tokens: Option<(f64, f64)>,
    log: Vec<(f64, bool)>,
    /// The time before which nothing may be sent, from the refusals that were received.
    retry_at: f64,
    received: f64,
    early: usize,
}

/// A small generator, so that the latencies are repeatable.
mod latency {
    #[derive(Default)]
    pub(crate) struct Rng(u64);
    impl Rng {
        pub(crate) fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[allow(clippy::cast_precision_loss)]
            let unit = (self.0 >> 40) as f64 / (1_u64 << 24) as f64;
            unit
        }
    }
}

pub(crate) struct Report {
    pub(crate) calls: usize,
    pub(crate) refused: usize,
    pub(crate) early: usize,
    /// The time from the first call to the last.
    pub(crate) seconds: f64,
}

impl Server {
    pub(crate) fn new(counting: Counting, dialect: Dialect, clock: TokioClock) -> Self {
        Self {
            counting,
            dialect,
            ahead: 0,
            rounding: Rounding::Up,
            has_retry_after: true,
            has_date: true,
            jitter: 0.006,
            secondary: None,
            global: None,
            tokens: None,
            is_one: false,
            clock,
            state: Arc::default(),
        }
    }

    /// Counts all routes in one bucket.
    pub(crate) fn one_bucket(&self) -> Self {
        Self { is_one: true, ..self.clone() }
    }

    fn latency(&self) -> Duration {
        let random = self.state.lock().unwrap().rng.next();
        Duration::from_secs_f64(0.002 + self.jitter * random)
    }

    /// Answers a request after the latency of the network.
    pub(crate) async fn answer(&self, uri: &Uri) -> Result<Response<()>, std::io::Error> {
        let seconds = || self.clock.0.elapsed().as_secs_f64();
        {
            let mut state = self.state.lock().unwrap();
            // A call that was granted at the instant of the receipt had not seen it.
            state.early += usize::from(seconds() < state.retry_at && seconds() > state.received);
        }
        sleep(self.latency()).await;
        let response = self.decide(uri);
        sleep(self.latency()).await;
        if let Some(retry_after) = response.headers().get("retry-after") {
            let retry_after: f64 = retry_after.to_str().unwrap().parse().unwrap();
            let mut state = self.state.lock().unwrap();
            (state.retry_at, state.received) = (state.retry_at.max(seconds() + retry_after), seconds());
        }
        Ok(response)
    }

    fn decide(&self, uri: &Uri) -> Response<()> {
        let now = self.clock.0.elapsed().as_secs_f64();
        let key = if self.is_one { String::new() } else { uri.path().to_owned() };
        let mut state = self.state.lock().unwrap();
        if let Some(refusal) = self.refuse_globally(&mut state, now) {
            return refusal;
        }
        let is_burst = self.is_burst(&mut state, now);
        let tokens = self.take_tokens(&mut state, now);
        let has_tokens = tokens.is_none_or(|(_, wait)| wait == 0.0);
        let (allowed, limit, remaining, reset, retry, window) = match self.counting {
            Counting::Refill(capacity, rate) => {
                let (level, at) = *state.buckets.get(&key).unwrap_or(&(capacity, now));
                let level = (level + (now - at) * rate).min(capacity);
                let allowed = level >= 1.0 && has_tokens;
                let left = if allowed { level - 1.0 } else { level };
                state.buckets.insert(key, (left, now));
                let retry = tokens.map_or(0.0, |it| it.1).max((1.0 - level) / rate).max(0.0);
                let reset = if allowed { (capacity - left) / rate } else { retry };
                (allowed, capacity, left, reset, retry, capacity / rate)
            }
            Counting::Window(units, seconds)
            | Counting::Aligned(units, seconds)
            | Counting::Phased(units, seconds)
            | Counting::WholeSecond(units, seconds) => {
                let start = match self.counting {
                    Counting::Aligned(..) => (now / seconds).floor() * seconds,
                    Counting::Phased(..) => ((now - PHASE) / seconds).floor() * seconds + PHASE,
                    Counting::WholeSecond(..) => now.floor(),
                    _ => now,
                };
                let (used, since) = *state.buckets.get(&key).unwrap_or(&(0.0, start));
                let (used, since) = if now >= since + seconds { (0.0, start) } else { (used, since) };
                let allowed = used < units && !is_burst;
                let used = if allowed { used + 1.0 } else { used };
                state.buckets.insert(key, (used, since));
                let reset = since + seconds - now;
                let retry = if used < units { 1.0 } else { reset };
                (allowed, units, units - used, reset, retry, seconds)
            }
        };
        state.log.push((now, allowed));
        let mut response = Response::new(());
        if !allowed {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        self.write(response.headers_mut(), allowed, (limit, remaining, reset, retry, window), now);
        let headers = response.headers_mut();
        let mut put = |name: &'static str, value: String| headers.insert(name, value.parse().unwrap());
        if let (Some((limit, rate)), Some((left, _))) = (self.tokens, tokens) {
            put("x-ratelimit-limit-tokens", limit.to_string());
            put("x-ratelimit-remaining-tokens", left.floor().to_string());
            put("x-ratelimit-reset-tokens", format!("{}ms", ((limit - left) / rate * 1e3).round()));
        }
        if is_burst {
            put("retry-after", "1".to_owned());
        }
        response
    }

    /// Counts a call in the limit of all routes. Returns its refusal.
    fn refuse_globally(&self, state: &mut State, now: f64) -> Option<Response<()>> {
        let limit = self.global?;
        if now >= state.second.0 + 1.0 {
            state.second = (now, 0.0);
        }
        if state.second.1 < limit {
            state.second.1 += 1.0;
            return None;
        }
        state.log.push((now, false));
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let wait = (state.second.0 + 1.0 - now).ceil();
        for (name, value) in [("retry-after", wait.to_string()), ("x-ratelimit-global", "true".to_owned())] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        Some(response)
    }

    /// Counts a call in the limit that no header shows.
    fn is_burst(&self, state: &mut State, now: f64) -> bool {
        let Some((limit, seconds)) = self.secondary else { return false };
        while state.recent.front().is_some_and(|at| *at <= now - seconds) {
            state.recent.pop_front();
        }
        let is_burst = state.recent.len() >= limit;
        if !is_burst {
            state.recent.push_back(now);
        }
        is_burst
    }

    /// Takes the tokens of a call. Returns those that are left, and the wait of a call that lacks them.
    fn take_tokens(&self, state: &mut State, now: f64) -> Option<(f64, f64)> {
        let (capacity, rate) = self.tokens?;
        let cost = (20.0 + 40.0 * state.rng.next()).floor();
        let (level, at) = state.tokens.unwrap_or((capacity, now));
        let level = (level + (now - at) * rate).min(capacity);
        let left = if level >= cost { level - cost } else { level };
        state.tokens = Some((left, now));
        Some((left, (cost - level).max(0.0) / rate))
    }

    /// Writes the headers of a response.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn write(
        &self,
        headers: &mut HeaderMap,
        allowed: bool,
        (limit, remaining, reset, retry, window): (f64, f64, f64, f64, f64),
        now: f64,
    ) {
        let mut put = |name: &'static str, value: String| headers.insert(name, value.parse().unwrap());
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let epoch = 1_700_000_000.0 + now + self.ahead as f64 / 1e6;
        let date = std::time::UNIX_EPOCH + Duration::from_secs(epoch as u64);
        if self.has_date {
            put("date", httpdate::fmt_http_date(date));
        }
        let ceil = |value: f64| (value - 1e-9).ceil().max(0.0) as u64;
        match self.dialect {
            Dialect::Ietf | Dialect::Tollgate => {
                // The sustained rate in whole seconds, as Tollgate writes it.
                let seconds = window.ceil().max(1.0);
                put("ratelimit-policy", format!("\"api\";q={};w={seconds}", limit / window * seconds));
                put("ratelimit", format!("\"api\";r={};t={}", remaining as u64, ceil(reset)));
            }
            Dialect::GitHub => {
                put("x-ratelimit-limit", limit.to_string());
                put("x-ratelimit-remaining", (remaining as u64).to_string());
                // The sum of two floats of this size is off by less than a microsecond.
                let date = match self.rounding {
                    Rounding::Up => (epoch + reset - 1e-6).ceil(),
                    Rounding::Down => (epoch + reset + 1e-6).floor(),
                    Rounding::Nearest => (epoch + reset).round(),
                };
                put("x-ratelimit-reset", (date as u64).to_string());
                put("x-ratelimit-resource", "core".to_owned());
            }
            Dialect::Discord => {
                put("x-ratelimit-limit", limit.to_string());
                put("x-ratelimit-remaining", (remaining as u64).to_string());
                put("x-ratelimit-reset-after", format!("{:.3}", reset + 0.000_5));
                put("x-ratelimit-bucket", "abcd".to_owned());
            }
            Dialect::OpenAi => {
                put("x-ratelimit-limit-requests", limit.to_string());
                put("x-ratelimit-remaining-requests", (remaining as u64).to_string());
                put("x-ratelimit-reset-requests", format!("{}ms", ceil(reset * 1e3)));
            }
            Dialect::RetryAfter | Dialect::Silent => {}
        }
        if allowed || self.dialect == Dialect::Silent || !self.has_retry_after {
            return;
        }
        put("retry-after", ceil(retry).max(1).to_string());
        if matches!(self.dialect, Dialect::Tollgate | Dialect::OpenAi) {
            put("retry-after-ms", ceil(retry * 1e3).max(1).to_string());
        }
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.state.lock().unwrap();
        let refused = state.log.iter().filter(|(_, allowed)| !allowed).count();
        let seconds = state.log.last().zip(state.log.first()).map_or(0.0, |(last, first)| last.0 - first.0);
        Report { calls: state.log.len(), refused, early: state.early, seconds }
    }
}

/// Makes `calls` calls by `tasks` tasks, as fast as the client permits. Returns the number that succeeded.
pub(crate) async fn run(
    client: &Client,
    server: &Server,
    tasks: usize,
    calls: usize,
    uris: &'static [&'static str],
) -> usize {
    let mut workers = Vec::new();
    for task in 0..tasks {
        let (client, server) = (client.clone(), server.clone());
        workers.push(tokio::spawn(async move {
            let (mut succeeded, headers) = (0, HeaderMap::new());
            for call in 0..calls / tasks {
                let uri: Uri = uris[(task + call) % uris.len()].parse().unwrap();
                let call = Call::new(&Method::GET, &uri, &headers)
                    .options(CallOptions::default().timeout(Duration::from_secs(600)));
                let answer = client.call(&call, |_| server.answer(&uri)).await;
                succeeded += usize::from(answer.is_ok_and(|it| it.status().is_success()));
            }
            succeeded
        }));
    }
    let mut succeeded = 0;
    for worker in workers {
        succeeded += worker.await.unwrap();
    }
    succeeded
}
