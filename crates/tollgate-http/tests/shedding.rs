//! The layer counts requests in flight, and answers shed requests with 503.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::sync::Notify;
use tollgate::{Limiter, ManualClock, MemoryStore, NodeShedder, Policy, SharedLimiter, Span, Timestamp};
use tollgate_http::{LimitBody, LimitLayer, WaitingRoom};
use tollgate_testkit::poll_once;
use tower::{Layer as _, ServiceExt as _, service_fn};

type Answer = Response<LimitBody<Full<Bytes>>>;

/// A layer with a service that answers when the test lets it.
struct Site {
    clock: ManualClock,
    limiter: SharedLimiter<MemoryStore<ManualClock>>,
    layer: LimitLayer<MemoryStore<ManualClock>>,
    done: Arc<Notify>,
}

impl Site {
    fn new(policy: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}"));
        let limiter = Limiter::with_store(policy, MemoryStore::with_clock(100, clock.clone()));
        let limiter = limiter.with_node_shedder(NodeShedder::with_clock(clock.clone()));
        let limiter: SharedLimiter<_> = limiter.into();
        let layer = LimitLayer::new(limiter.clone());
        Self { clock, limiter, layer, done: Arc::default() }
    }

    fn send(&self) -> impl Future<Output = Answer> + use<> {
        let done = Arc::clone(&self.done);
        let service = self.layer.layer(service_fn(move |_: Request<()>| {
            let done = Arc::clone(&done);
            async move {
                done.notified().await;
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
            }
        }));
        async move { service.oneshot(Request::get("/").body(()).unwrap()).await.unwrap() }
    }

    fn in_flight(&self) -> u64 {
        self.limiter.load().node_shedder().in_flight()
    }

    fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.clock.advance(Span::from_millis(100));
            self.limiter.load().sample_load();
        }
    }
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_body_has_ended() {
    // With a limit and without one, which are different paths of the layer.
    for limits in ["[]", "[{by: global, bucket: 100/day}]", "[{by: global, bucket: 100/day, soft: 1%}]"] {
        let site = Site::new(&format!("limits: {limits}\nshed: {{node: {{inflight: 2}}}}"));
        let (mut kept, mut dropped) = (Box::pin(site.send()), Box::pin(site.send()));
        assert!(poll_once(kept.as_mut()).is_pending() && poll_once(dropped.as_mut()).is_pending());
        assert_eq!(site.in_flight(), 2, "{limits}");
        drop(dropped);
        assert_eq!(site.in_flight(), 1, "{limits}");
        site.done.notify_one();
        let Poll::Ready(answer) = poll_once(kept.as_mut()) else { panic!("{limits}") };
        assert_eq!((answer.status(), site.in_flight()), (StatusCode::OK, 1), "{limits}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((&body[..], site.in_flight()), (&b"hello"[..], 0), "{limits}");
    }
}

#[tokio::test]
async fn a_request_that_waits_in_a_queue_is_not_in_flight() {
    let policy = "limits: [{by: global, algorithm: leaky-queue, rate: 1/second, queue: {length: 5}}]
shed: {node: {inflight: 2}}";
    let mut site = Site::new(policy);
    let wake = Arc::new(Notify::new());
    let waiting = Arc::clone(&wake);
    site.layer = site.layer.with_waiting_room(WaitingRoom::new(5, move |_| {
        let waiting = Arc::clone(&waiting);
        async move { waiting.notified().await }
    }));
    let (mut first, mut second) = (Box::pin(site.send()), Box::pin(site.send()));
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    assert_eq!(site.in_flight(), 1);
    wake.notify_one();
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(site.in_flight(), 2);
    drop((first, second));
    assert_eq!(site.in_flight(), 0);
}

#[tokio::test]
async fn a_shed_request_is_answered_503_with_retry_after_and_does_not_reach_the_service() {
    let site = Site::new("shed: {node: {inflight: 2}}");
    let mut running: Vec<_> = (0..6).map(|_| Box::pin(site.send())).collect();
    assert!(running.iter_mut().all(|it| poll_once(it.as_mut()).is_pending()));
    site.pass(5);
    let answer = site.send().await;
    assert_eq!((answer.status(), site.in_flight()), (StatusCode::SERVICE_UNAVAILABLE, 6));
    let retry_after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3).contains(&retry_after), "{retry_after}");
    assert!(answer.headers().contains_key("tollgate-decision"), "{:?}", answer.headers());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert!(problem["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"), "{problem}");
    assert_eq!(problem["violated-policies"], serde_json::json!(["shed.node"]), "{problem}");
    // The load is gone: the level falls, and requests pass again.
    drop(running);
    site.pass(10);
    assert!(poll_once(Box::pin(site.send()).as_mut()).is_pending());
}
