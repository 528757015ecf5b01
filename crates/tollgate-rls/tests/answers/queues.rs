//! Limits with a queue: an answer is held until the request may start, or the request is refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tollgate::{Descriptor, Limiter, ManualClock, MemoryStore, Policy, Sleeper, Timestamp};
use tollgate_http::ShuttingDown;
use tollgate_rls::{GrpcBody, Headers, Rls, RlsSettings};

use crate::support::{SHOULD_RATE_LIMIT, START, Store, decode, encode, framed, read};

const POLICY: &str = "limits:
  - {name: reports, domain: edge, descriptor: [user], algorithm: leaky-queue, rate: 10/second, queue: {length: 3}}
  - {name: plain, domain: edge, descriptor: [route], bucket: 5/hour}
  - {name: path, endpoint: /reports, by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 3}}";

/// A service whose answers are held until a test ends their sleeps.
struct Queued {
    rls: Rls<Store>,
    sleeps: Arc<Mutex<Vec<Sleep>>>,
}

#[derive(Clone)]
struct Sleep {
    time: Duration,
    is_over: Arc<AtomicBool>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_over.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A call that may not be answered yet.
struct Call<'s>(Pin<Box<dyn Future<Output = Response<GrpcBody>> + 's>>);

impl Call<'_> {
    /// Returns the answer, if there is one.
    fn answer(&mut self) -> Option<Value> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => None,
            Poll::Ready(response) => {
                let (status, message) = read(response);
                assert_eq!(status, "0");
                Some(decode("envoy.service.ratelimit.v3.RateLimitResponse", &message.unwrap()))
            }
        }
    }

    #[track_caller]
    fn code(&mut self) -> String {
        self.answer().expect("it is answered")["overallCode"].as_str().unwrap().to_owned()
    }
}

impl Queued {
    fn new(settings: RlsSettings) -> Self {
        Self::with_policy(POLICY, settings)
    }

    fn with_policy(policy: &str, settings: RlsSettings) -> Self {
        let store = MemoryStore::with_seed(1_000, ManualClock::at(Timestamp::from_secs(START)), 1);
        let limiter = Limiter::with_store(Policy::parse(policy).unwrap(), store);
        let sleeps = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&sleeps);
        let sleeper = Sleeper::new(move |time| {
            let sleep = Sleep { time, is_over: Arc::default() };
            kept.lock().unwrap().push(sleep.clone());
            sleep
        });
        Self { rls: Rls::with_sleeper(limiter.into(), settings, sleeper), sleeps }
    }

    fn call(&self, request: &Value, timeout: Option<&str>) -> Call<'_> {
        let message = encode("envoy.service.ratelimit.v3.RateLimitRequest", request);
        let mut built = Request::post(format!("http://rls.test{SHOULD_RATE_LIMIT}"))
            .header("content-type", "application/grpc");
        if let Some(timeout) = timeout {
            built = built.header("grpc-timeout", timeout);
        }
        Call(Box::pin(self.rls.answer(built.body(Full::new(Bytes::from(framed(&message)))).unwrap())))
    }

    fn ask(&self, timeout: Option<&str>) -> Call<'_> {
        self.call(&of_ann(), timeout)
    }

    /// The lengths of the sleeps so far, in milliseconds.
    fn slept(&self) -> Vec<u128> {
        self.sleeps.lock().unwrap().iter().map(|it| it.time.as_millis()).collect()
    }

    fn end_sleep(&self, at: usize) {
        self.sleeps.lock().unwrap()[at].is_over.store(true, Ordering::SeqCst);
    }

    #[track_caller]
    fn expect_metric(&self, line: &str) {
        let mut metrics = String::new();
        self.rls.metrics(&mut metrics);
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
}

fn of_ann() -> Value {
    json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]})
}

fn in_general() -> RlsSettings {
    RlsSettings { headers: Some(Headers::Off), ..RlsSettings::default() }
}

#[test]
fn an_answer_is_held_until_the_request_may_start() {
    let service = Queued::new(in_general());
    assert_eq!(service.ask(None).code(), "OK");
    let (mut second, mut third) = (service.ask(None), service.ask(Some("1S")));
    assert!(second.answer().is_none() && third.answer().is_none());
    assert_eq!(service.slept(), [100, 200]);
    service.expect_metric("tollgate_rls_waiting 2");
    service.end_sleep(0);
    assert_eq!(second.code(), "OK");
    assert!(third.answer().is_none());
    service.end_sleep(1);
    assert_eq!(third.code(), "OK");
    drop((second, third));
    service.expect_metric("tollgate_rls_waiting 0");
    service.expect_metric("tollgate_rls_waits_total{result=\"held\"} 2");
    // Requests that have started keep their places.
    assert!(service.ask(None).answer().is_none());
    assert_eq!(service.slept(), [100, 200, 300]);
}

#[test]
fn a_request_whose_proxy_does_not_wait_long_enough_is_refused_and_takes_no_place() {
    let service = Queued::new(RlsSettings { headers: Some(Headers::All), ..RlsSettings::default() });
    assert_eq!(service.ask(Some("20m")).code(), "OK");
    for _ in 0..10 {
        let refused = service.ask(Some("20m")).answer().unwrap();
        assert_eq!(refused["overallCode"], "OVER_LIMIT", "{refused}");
        assert_eq!(refused["statuses"][0]["currentLimit"]["name"], "reports", "{refused}");
        let headers = refused["responseHeadersToAdd"].as_array().unwrap();
        assert!(headers.contains(&json!({"key": "retry-after", "value": "1"})), "{refused}");
    }
    let mut second = service.ask(Some("112m"));
    assert!(second.answer().is_none());
    assert_eq!(service.slept(), [100], "the refused requests have given their places back");
    service.expect_metric("tollgate_rls_waits_total{result=\"refused\"} 10");
}

#[test]
fn a_proxy_that_hangs_up_gives_its_place_back() {
    let service = Queued::new(in_general());
    assert_eq!(service.ask(None).code(), "OK");
    for _ in 0..10 {
        assert!(service.ask(None).answer().is_none());
    }
    assert_eq!(service.slept(), [100; 10]);
    service.expect_metric("tollgate_rls_waiting 0");
}

#[test]
fn an_answer_that_a_shutdown_does_not_let_wait_is_a_refusal_that_takes_no_place() {
    let service = Queued::new(in_general());
    let stops = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stops);
    let room = service.rls.waiting_room().sleeping(move |_| {
        let stops = Arc::clone(&stopping);
        std::future::poll_fn(move |_| {
            if stops.load(Ordering::SeqCst) { Poll::Ready(Err(ShuttingDown)) } else { Poll::Pending }
        })
    });
    service.rls.hold_in(room);
    assert_eq!(service.ask(None).code(), "OK");
    let mut second = service.ask(None);
    assert!(second.answer().is_none());
    service.expect_metric("tollgate_rls_waiting 1");
    stops.store(true, Ordering::SeqCst);
    let refused = second.answer().expect("it does not wait any more");
    assert_eq!(
        refused["overallCode"], "OVER_LIMIT",
        "Envoy lets a request pass without an answer: {refused}"
    );
    assert_eq!(refused["statuses"][0]["code"], "OVER_LIMIT", "{refused}");
    service.expect_metric("tollgate_rls_waiting 0");
    let limiter = service.rls.limiter().load();
    let entries = [("user", "ann")];
    let next = pollster::block_on(limiter.consider(&Descriptor::new("edge", &entries))).unwrap();
    assert_eq!(next.wait(), Duration::from_millis(100), "the place was given back");
}

#[test]
fn the_number_of_held_answers_and_their_time_are_bounded() {
    let service = Queued::new(RlsSettings { max_waiting: 1, ..in_general() });
    assert_eq!(service.ask(None).code(), "OK");
    let mut second = service.ask(None);
    assert!(second.answer().is_none());
    assert_eq!(service.ask(None).code(), "OVER_LIMIT");
    drop(second);
    assert!(service.ask(None).answer().is_none());
    assert_eq!(service.slept(), [100, 100]);

    let service = Queued::new(RlsSettings { max_wait: Duration::from_millis(150), ..in_general() });
    assert_eq!(service.ask(None).code(), "OK");
    let mut second = service.ask(Some("1H"));
    assert!(second.answer().is_none());
    assert_eq!(service.ask(Some("1H")).code(), "OVER_LIMIT");
}

#[test]
fn a_held_answer_of_a_less_important_request_yields_its_place() {
    let policy = "priorities: [{name: critical, endpoint: /pay}, {name: normal}]
limits: [{name: all, by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 9}}]";
    let service = Queued::with_policy(policy, RlsSettings { max_waiting: 1, ..in_general() });
    let ask = |path: &str| {
        let entries = json!([{"key": "path", "value": path}, {"key": "user", "value": "ann"}]);
        service.call(&json!({"domain": "tollgate", "descriptors": [{"entries": entries}]}), None)
    };
    assert_eq!(ask("/").code(), "OK");
    let mut normal = ask("/");
    assert!(normal.answer().is_none());
    assert_eq!(ask("/").code(), "OVER_LIMIT", "within a class, the newcomer is refused");
    let mut critical = ask("/pay");
    assert!(critical.answer().is_none(), "it waits, although as many answers are held as may be");
    assert_eq!(normal.code(), "OVER_LIMIT");
    assert_eq!(ask("/pay").code(), "OVER_LIMIT");
    for line in ["{result=\"held\"} 2", "{result=\"refused\"} 2", "{result=\"displaced\"} 1"] {
        service.expect_metric(&format!("tollgate_rls_waits_total{line}"));
    }
    service.end_sleep(1);
    assert_eq!(critical.code(), "OK");
    service.expect_metric("tollgate_rls_waiting 0");
}

#[test]
fn a_refused_wait_refunds_every_descriptor_of_the_call() {
    let service = Queued::new(in_general());
    assert_eq!(service.ask(None).code(), "OK");
    let both = json!({"domain": "edge", "descriptors": [
        {"entries": [{"key": "route", "value": "x"}], "hitsAddend": 2},
        {"entries": [{"key": "user", "value": "ann"}]},
    ]});
    let refused = service.call(&both, Some("20m")).answer().unwrap();
    let statuses = &refused["statuses"];
    assert_eq!(
        (&statuses[0]["code"], &statuses[1]["code"]),
        (&json!("OK"), &json!("OVER_LIMIT")),
        "{refused}"
    );
    assert_eq!((&statuses[0]["limitRemaining"], &statuses[1]["limitRemaining"]), (&json!(5), &json!(3)));
    let route = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "route", "value": "x"}]}]});
    assert_eq!(service.call(&route, None).answer().unwrap()["statuses"][0]["limitRemaining"], 4);
}

#[test]
fn requests_in_the_domain_of_tollgate_wait_and_so_do_requests_in_json() {
    let service = Queued::new(in_general());
    let request = json!({"domain": "tollgate", "descriptors": [{"entries":
        [{"key": "path", "value": "/reports"}, {"key": "user", "value": "ann"}]}]});
    assert_eq!(service.call(&request, None).code(), "OK");
    let body = request.to_string();
    let mut second = Box::pin(service.rls.json(body.as_bytes()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(service.slept(), [100]);
    service.end_sleep(0);
    let Poll::Ready((status, _)) = second.as_mut().poll(&mut context) else { panic!("it is held") };
    assert_eq!(status, 200);
}
