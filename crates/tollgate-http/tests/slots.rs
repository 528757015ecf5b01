//! Slots are released when a request ends, however it ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tollgate::policy::Policy;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Limiter, ManualClock, MemoryStore, Outcome, Rule, SharedLimiter, Span, Store, StoreError,
    Timestamp,
};
use tollgate_http::LimitLayer;
use tollgate_testkit::poll_once;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

const POLICY: &str = "limits: [{name: at-once, by: global, slots: 1}]";

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

fn shared<S>(store: S) -> SharedLimiter<S> {
    Limiter::with_store(Policy::parse(POLICY).unwrap(), store).into()
}

fn request() -> Request<()> {
    Request::new(())
}

async fn hello(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[tokio::test]
async fn a_slot_is_held_until_the_body_is_sent() {
    let service = LimitLayer::new(shared(memory())).layer(service_fn(hello));
    let first = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(first.headers()["ratelimit"], r#""at-once";r=0"#);
    let second = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "hello");
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_slot_is_held_no_longer_than_its_ttl() {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let limiter = shared(MemoryStore::with_clock(100, clock.clone()));
    let service = LimitLayer::new(limiter).layer(service_fn(hello));
    let unsent = service.clone().oneshot(request()).await.unwrap();
    let refused = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(
        (refused.status(), &refused.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
    clock.advance(Span::from_secs(60));
    assert_eq!(service.oneshot(request()).await.unwrap().status(), StatusCode::OK);
    drop(unsent);
}

#[tokio::test]
async fn a_slot_is_released_when_the_response_is_dropped_unread() {
    let service = LimitLayer::new(shared(memory())).layer(service_fn(hello));
    for _ in 0..3 {
        assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_slot_is_released_when_the_caller_stops_waiting() {
    let stuck = |_: Request<()>| pending::<Result<Response<Full<Bytes>>, Infallible>>();
    let limiter = shared(memory());
    let mut service = LimitLayer::new(limiter.clone()).layer(service_fn(stuck));
    let mut waiting = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let others = LimitLayer::new(limiter).layer(service_fn(hello));
    assert_eq!(others.clone().oneshot(request()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    drop(waiting);
    assert_eq!(others.oneshot(request()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_slot_is_released_when_the_service_fails() {
    let broken = |_: Request<()>| async { Err::<Response<Full<Bytes>>, &str>("broken") };
    let service = LimitLayer::new(shared(memory())).layer(service_fn(broken));
    for _ in 0..3 {
        assert_eq!(service.clone().oneshot(request()).await.err(), Some("broken"));
    }
}

/// A store that does not release slots immediately, like a remote store.
pub(crate) struct Remote(pub(crate) MemoryStore<ManualClock>);

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        tokio::task::yield_now().await;
        self.0.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        self.0.adjust(rule, key, adjustment).await
    }
}

#[tokio::test]
async fn unfinished_work_of_a_remote_store_goes_to_the_spawn_hook() {
    let background = Arc::new(Mutex::new(Vec::new()));
    let later = Arc::clone(&background);
    let spawn = move |work| later.lock().expect("the lock is not poisoned").push(work);
    let layer = LimitLayer::spawning(shared(Remote(memory())), spawn);
    let service = layer.layer(service_fn(hello));
    drop(service.clone().oneshot(request()).await.unwrap());
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    let work = background.lock().unwrap().pop().expect("one slot to give back");
    work.await;
    assert_eq!(service.oneshot(request()).await.unwrap().status(), StatusCode::OK);
}
