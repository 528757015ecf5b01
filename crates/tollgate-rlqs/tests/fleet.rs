//! Simulated Envoys on a real quota service, in virtual time.
//!
//! An Envoy here behaves like Envoy 1.40: reports every five seconds, whole seconds of elapsed
//! time, a first report at the first request, tokens that are scaled when a bucket is replaced.
//! Messages are encoded by their descriptors, and arrive late.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use tollgate::{Clock as _, Limiter, ManualClock, MemoryStore, Policy, SharedLimiter, Span, Timestamp};
use tollgate_rlqs::{QuotaStream, Quotas};

/// The step of the simulation.
pub(crate) const STEP: Span = Span::from_millis(50);
/// The interval between two reports of Envoy.
const TICK: u64 = 5_000_000;

pub(crate) fn pool() -> DescriptorPool {
    let set = include_bytes!("../../tollgate-rls/proto/descriptors.bin");
    DescriptorPool::decode(&set[..]).unwrap()
}

/// A request body that a test feeds.
#[derive(Clone, Default)]
pub(crate) struct Pipe(Arc<Mutex<(VecDeque<Bytes>, bool)>>);

impl Pipe {
    pub(crate) fn send(&self, message: &[u8]) {
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        self.0.lock().0.push_back(framed.into());
    }
}

impl Body for Pipe {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut pipe = self.0.lock();
        match (pipe.0.pop_front(), pipe.1) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, true) => Poll::Ready(None),
            (None, false) => Poll::Pending,
        }
    }
}

/// A service on a store in memory, with a manual clock.
pub(crate) struct Service {
    pub(crate) quotas: Quotas,
    pub(crate) limiter: SharedLimiter<MemoryStore<ManualClock>>,
    pub(crate) clock: ManualClock,
    pool: DescriptorPool,
}

impl Service {
    pub(crate) fn new(policy: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_000));
        let store = MemoryStore::with_seed(1_000, clock.clone(), 1);
        let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{}", wrong.render("policy")));
        let limiter = SharedLimiter::from(Limiter::with_store(policy, store));
        Self { quotas: Quotas::new(limiter.clone(), clock.clone()), limiter, clock, pool: pool() }
    }

    /// Starts again with nothing but the policy, as a process that was killed does.
    pub(crate) fn restart(&mut self) {
        self.quotas = Quotas::new(self.limiter.clone(), self.clock.clone());
    }

    pub(crate) fn encode(&self, message: &str, value: &Value) -> Vec<u8> {
        let descriptor = self.pool.get_message_by_name(message).unwrap();
        DynamicMessage::deserialize(descriptor, value).unwrap().encode_to_vec()
    }

    pub(crate) fn decode(&self, message: &str, bytes: &[u8]) -> Value {
        let descriptor = self.pool.get_message_by_name(message).unwrap();
        let message = DynamicMessage::decode(descriptor, bytes).unwrap();
        let options = SerializeOptions::new().skip_default_fields(false);
        message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
    }

    pub(crate) fn connect(&self) -> Connection {
        let pipe = Pipe::default();
        Connection::new(self.quotas.open(pipe.clone()).unwrap(), pipe)
    }
}

/// An open stream.
pub(crate) struct Connection {
    pub(crate) pipe: Pipe,
    stream: Pin<Box<QuotaStream<Pipe>>>,
}

/// The next event of a stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    Actions(Value),
    Ended(String),
    Nothing,
}

impl Connection {
    pub(crate) fn new(stream: QuotaStream<Pipe>, pipe: Pipe) -> Self {
        Self { pipe, stream: Box::pin(stream) }
    }

    pub(crate) fn report(&self, service: &Service, domain: &str, usages: &Value) {
        let message = json!({"domain": domain, "bucketQuotaUsages": usages});
        let name = "envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports";
        self.pipe.send(&service.encode(name, &message));
    }

    pub(crate) fn receive(&mut self, service: &Service) -> Received {
        let mut context = Context::from_waker(Waker::noop());
        match self.stream.as_mut().poll_frame(&mut context) {
            Poll::Pending | Poll::Ready(None) => Received::Nothing,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let name = "envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse";
                    Received::Actions(service.decode(name, &data[5..])["bucketAction"].take())
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    Received::Ended(trailers["grpc-status"].to_str().unwrap().to_owned())
                }
            },
        }
    }
}

/// A simulated Envoy with one bucket.
pub(crate) struct Envoy {
    pub(crate) offered: f64,
    connection: Option<Connection>,
    /// Messages under way to Tollgate and back, with their times of arrival.
    up: VecDeque<(Timestamp, Value)>,
    down: VecDeque<(Timestamp, Value)>,
    next_tick: Timestamp,
    reported_at: Option<Timestamp>,
    counts: (u64, u64),
    /// Tokens per second, capacity, and the end of the assignment.
    bucket: Option<(f64, f64, Timestamp)>,
    tokens: f64,
    due: f64,
    pub(crate) admitted: u64,
    /// Tokens that replacements of the bucket have added.
    pub(crate) injected: f64,
}

impl Envoy {
    pub(crate) fn new(offered: f64, phase: Span, now: Timestamp) -> Self {
        Self {
            offered,
            connection: None,
            up: VecDeque::new(),
            down: VecDeque::new(),
            next_tick: now + phase,
            reported_at: None,
            counts: (0, 0),
            bucket: None,
            tokens: 0.0,
            due: 0.0,
            admitted: 0,
            injected: 0.0,
        }
    }

    pub(crate) fn disconnect(&mut self) {
        (self.connection, self.up, self.down) = (None, VecDeque::new(), VecDeque::new());
    }

    /// Returns the rate that the Envoy applies now. Without an assignment it denies all requests.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        self.bucket.filter(|it| now < it.2).map_or(0.0, |it| it.0)
    }

    pub(crate) fn step(&mut self, service: &Service, delay: Span) {
        let now = service.clock.now();
        self.offer(now);
        self.report(service, now, delay);
        let Some(connection) = &mut self.connection else { return };
        while self.up.front().is_some_and(|it| it.0 <= now) {
            let (_, usages) = self.up.pop_front().unwrap();
            connection.report(service, "edge", &usages);
        }
        loop {
            match connection.receive(service) {
                Received::Actions(actions) => self.down.push_back((now + delay, actions)),
                Received::Ended(_) => return self.disconnect(),
                Received::Nothing => break,
            }
        }
        while self.down.front().is_some_and(|it| it.0 <= now) {
            let (_, actions) = self.down.pop_front().unwrap();
            for action in actions.as_array().unwrap() {
                self.apply(&action["quotaAssignmentAction"], now);
            }
        }
    }

    fn offer(&mut self, now: Timestamp) {
        let seconds = 0.05;
        let rate = self.rate(now);
        let capacity = self.bucket.map_or(0.0, |it| it.1);
        self.tokens = (self.tokens + rate * seconds).min(capacity);
        self.due += self.offered * seconds;
        while self.due >= 1.0 {
            self.due -= 1.0;
            if rate > 0.0 && self.tokens >= 1.0 {
                self.tokens -= 1.0;
                self.admitted += 1;
                self.counts.0 += 1;
            } else {
                self.counts.1 += 1;
            }
        }
    }

    fn report(&mut self, service: &Service, now: Timestamp, delay: Span) {
        let is_first = self.reported_at.is_none() && self.counts != (0, 0);
        let is_tick = now >= self.next_tick;
        if is_tick {
            self.next_tick = self.next_tick + Span::from_micros(TICK);
        }
        if !is_first && (!is_tick || self.reported_at.is_none()) {
            return;
        }
        self.connection.get_or_insert_with(|| service.connect());
        let elapsed = self.reported_at.map_or(0, |at| now.since(at).as_micros() / 1_000_000);
        let usage = json!([{
            "bucketId": {"bucket": {"name": "search"}},
            "timeElapsed": format!("{elapsed}s"),
            "numRequestsAllowed": self.counts.0.to_string(),
            "numRequestsDenied": self.counts.1.to_string(),
        }]);
        (self.counts, self.reported_at) = ((0, 0), Some(now));
        self.up.push_back((now + delay, usage));
    }

    fn apply(&mut self, action: &Value, now: Timestamp) {
        // Envoy reads whole seconds only.
        let seconds =
            |it: &Value| it.as_str().unwrap().split(['s', '.']).next().unwrap().parse::<u32>().unwrap();
        let until = now + Span::from_secs(seconds(&action["assignmentTimeToLive"]).into());
        let bucket = &action["rateLimitStrategy"]["tokenBucket"];
        if bucket.is_null() {
            (self.bucket, self.tokens) = (Some((0.0, 0.0, until)), 0.0);
            return;
        }
        let per_fill = bucket["tokensPerFill"].as_f64().unwrap();
        let rate = per_fill / f64::from(seconds(&bucket["fillInterval"]));
        let capacity = bucket["maxTokens"].as_f64().unwrap();
        assert!(per_fill >= 1.0 && capacity >= 1.0, "{bucket}");
        let before = self.tokens;
        self.tokens = match self.bucket {
            Some((_, old, _)) if old > 0.0 => capacity * (self.tokens / old),
            _ => capacity,
        };
        self.injected += (self.tokens - before).max(0.0);
        self.bucket = Some((rate, capacity, until));
    }
}
