//! Limits that learn their number of slots, in front of a service.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::future::pending;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tollgate::policy::Policy;
use tollgate::{Limiter, ManualClock, MemoryStore, SharedLimiter, Span, Store, Timestamp};
use tollgate_http::{LimitLayer, SlotGuard, Unmeasured};
use tollgate_testkit::poll_once;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::remote_store::RemoteStore;

const ONE: &str = "limits: [{name: upstream, by: global, slots: {adaptive: {max: 1}}}]";

type Reply = Result<Response<Full<Bytes>>, Infallible>;

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

fn shared(policy: &str, clock: &ManualClock) -> SharedLimiter<MemoryStore<ManualClock>> {
    let store = MemoryStore::with_clock(100, clock.clone());
    Limiter::with_store(Policy::parse(policy).unwrap(), store).with_latency_clock(clock.clone()).into()
}

fn in_flight<S: Store>(limiter: &SharedLimiter<S>) -> u64 {
    limiter.load().adaptive_summaries()[0].in_flight
}

async fn hello(_: Request<()>) -> Reply {
    Ok(Response::new(Full::from("hello")))
}

fn request() -> Request<()> {
    Request::new(())
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_body_is_sent_and_others_get_503() {
    let limiter = shared(ONE, &clock());
    let service = LimitLayer::new(limiter.clone()).with_rng(|| 0).layer(service_fn(hello));
    let first = service.clone().oneshot(request()).await.unwrap();
    assert_eq!((first.status(), in_flight(&limiter)), (StatusCode::OK, 1));
    let shed = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(shed.headers()["retry-after"], "1");
    assert!(shed.headers().contains_key("tollgate-decision"));
    let body: Value = serde_json::from_slice(&shed.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let kind = body["type"].as_str().unwrap();
    assert!(kind.ends_with("#temporary-reduced-capacity"), "{body}");
    assert_eq!(body["violated-policies"][0], "upstream");
    first.into_body().collect().await.unwrap();
    assert_eq!(in_flight(&limiter), 0);
    assert_eq!(service.oneshot(request()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_request_unless_the_service_keeps_the_guard() {
    let limiter = shared(ONE, &clock());
    let stuck = service_fn(|_: Request<()>| pending::<Reply>());
    let mut service = LimitLayer::new(limiter.clone()).layer(stuck);
    let mut waiting = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert_eq!(in_flight(&limiter), 1);
    drop(waiting);
    assert_eq!(in_flight(&limiter), 0);

    let (kept, guards) = std::sync::mpsc::channel();
    let keeping = service_fn(move |request: Request<()>| {
        kept.send(request.extensions().get::<SlotGuard>().cloned().unwrap()).unwrap();
        pending::<Reply>()
    });
    let mut service = LimitLayer::new(limiter.clone()).layer(keeping);
    let mut waiting = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(waiting);
    assert_eq!(in_flight(&limiter), 1, "the work continues");
    drop(guards.recv().unwrap());
    assert_eq!(in_flight(&limiter), 0);
}

/// Serves 2,000 requests one after the other, each of 10 ms, and returns the learned slots and baseline.
async fn after(
    policy: &str,
    answer: impl Fn() -> Response<Full<Bytes>> + Clone + Send + 'static,
) -> (u32, u128) {
    let clock = clock();
    let limiter = shared(policy, &clock);
    let service = service_fn(move |_: Request<()>| {
        clock.advance(Span::from_millis(10));
        let response = answer();
        async move { Ok::<_, Infallible>(response) }
    });
    let service = LimitLayer::new(limiter.clone()).layer(service);
    for _ in 0..2_000 {
        service.clone().oneshot(request()).await.unwrap().into_body().collect().await.unwrap();
    }
    let limiter = limiter.load();
    let view = &limiter.adaptive_views(1)[0];
    (view.slots, view.baseline.unwrap_or_default().as_millis())
}

fn with_status(status: StatusCode) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::default()).unwrap()
}

#[tokio::test]
async fn statuses_of_an_overloaded_service_are_failures_and_all_others_are_measured() {
    let one = "limits: [{name: upstream, by: global, slots: {adaptive: {min: 1, max: 1}}}]";
    for status in [200, 404, 429, 500] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(after(one, move || with_status(status)).await, (1, 10), "{status}");
    }
    for status in [502, 503, 504] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(after(one, move || with_status(status)).await, (1, 0), "{status} has no latency");
    }
    let unmeasured = || {
        let mut response = with_status(StatusCode::PAYLOAD_TOO_LARGE);
        response.extensions_mut().insert(Unmeasured);
        response
    };
    assert_eq!(after(one, unmeasured).await, (1, 0));
}

#[tokio::test]
async fn a_request_that_waits_for_the_store_is_counted_before_and_released_after() {
    let policy = "limits:
  - {name: upstream, by: global, slots: {adaptive: {max: 1}}}
  - {name: units, by: global, bucket: 2/hour}";
    let store = RemoteStore(MemoryStore::with_clock(100, clock()));
    let limiter = SharedLimiter::from(Limiter::with_store(Policy::parse(policy).unwrap(), store));
    let layer = LimitLayer::spawning(limiter.clone(), |work| drop(tokio::spawn(work)));
    let service = layer.layer(service_fn(hello));
    let first = service.clone().oneshot(request()).await.unwrap();
    assert_eq!((first.status(), in_flight(&limiter)), (StatusCode::OK, 1));
    let shed = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), StatusCode::OK);
    let refused = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "the shed request was not charged");
    assert_eq!(in_flight(&limiter), 0);
}
