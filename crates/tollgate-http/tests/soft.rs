//! Soft thresholds are reported to the service, and clients cannot forge them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Store, Timestamp};
use tollgate_http::{LimitLayer, SoftNotice, soft_limits, soft_value};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::remote_store::RemoteStore;

/// `search` is marked from 75 % on; one window of `both` is marked from the first request on.
const POLICY: &str = "limits:
  - {name: search, endpoint: /search, by: global, bucket: 4/hour, soft: 75%}
  - {name: both, endpoint: /search, by: global, windows: [4/minute, 100/hour], soft: 4%}
  - {name: hard, endpoint: /search, by: global, bucket: 4/hour}
  - {name: tried, endpoint: /search, by: global, bucket: 1/hour, soft: 1%, mode: shadow}";

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

fn limited<S: Store>(policy: &str, store: S) -> LimitLayer<S> {
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}"));
    LimitLayer::spawning(Limiter::with_store(policy, store), |work| drop(tokio::spawn(work)))
}

/// Echoes the lines of the header, then the names of the extension.
async fn echo_marks(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let lines = request.headers().get_all("tollgate-soft").iter().map(|it| it.to_str().unwrap());
    let soft = request.extensions().get::<SoftNotice>();
    assert!(soft.is_none_or(|it| it.held() == Duration::ZERO), "nothing holds requests back here");
    let names = soft.map(|it| it.limits().collect::<Vec<_>>().join("+")).unwrap_or_default();
    Ok(Response::new(Full::from(format!("{}|{names}", lines.collect::<Vec<_>>().join("/")))))
}

/// Creates a request whose client forges the mark twice.
fn forged(path: &str) -> Request<()> {
    Request::get(path).header("Tollgate-Soft", "forged").header("tollgate-soft", "twice").body(()).unwrap()
}

/// Returns the marks that the service saw; `None` if the request was refused.
async fn ask<S, B>(service: S, request: Request<()>) -> Option<String>
where
    S: tower::Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    let answer = service.oneshot(request).await.unwrap();
    if answer.status() != 200 {
        return None;
    }
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    Some(String::from_utf8(body.to_vec()).unwrap())
}

async fn check<S: Store>(store: S) {
    let service = limited(POLICY, store).layer(service_fn(echo_marks));
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(ask(service.clone(), forged("/search")).await);
    }
    let seen: Vec<_> = seen.iter().map(Option::as_deref).collect();
    let all = Some("search, both|search+both");
    assert_eq!(seen, [Some("both|both"), Some("both|both"), all, all, None]);
    assert_eq!(ask(service, forged("/free")).await.as_deref(), Some("|"), "no limit applies");
}

#[tokio::test]
async fn the_service_sees_the_marks_of_the_layer_and_not_those_of_clients() {
    check(memory()).await;
}

#[tokio::test]
async fn marks_are_the_same_on_a_store_that_has_to_be_awaited() {
    check(RemoteStore(memory())).await;
}

#[tokio::test]
async fn an_inner_layer_appends_to_the_marks_of_an_outer_layer_only() {
    let soft = |name: &str| format!("limits: [{{name: {name}, by: global, bucket: 100/hour, soft: 1%}}]");
    let none = "limits: [{by: global, bucket: 100/hour, endpoint: /other}]";
    for (outer, inner, expected) in [
        (soft("outer"), soft("inner"), "outer, inner|outer+inner"),
        (soft("outer"), none.to_owned(), "outer|outer"),
        (none.to_owned(), soft("inner"), "inner|inner"),
        (none.to_owned(), none.to_owned(), "|"),
        (soft("same"), soft("same"), "same|same"),
    ] {
        let inner = limited(&inner, memory()).layer(service_fn(echo_marks));
        let service = limited(&outer, memory()).layer(inner);
        assert_eq!(ask(service, forged("/")).await.as_deref(), Some(expected));
    }
}

#[test]
fn soft_limits_are_listed_once_and_not_for_refusals() {
    let policy = Policy::parse(POLICY).unwrap_or_else(|wrong| panic!("{wrong}"));
    let limiter = Limiter::with_store(policy, memory());
    let call = Call::new("GET", "/search");
    let mut names = Vec::new();
    for _ in 0..5 {
        let decision = limiter.check(&call);
        let joined = soft_limits(&decision).collect::<Vec<_>>().join(", ");
        assert_eq!(soft_value(&decision).map_or(String::new(), |it| it.to_str().unwrap().into()), joined);
        names.push(joined);
    }
    assert_eq!(names, ["both", "both", "search, both", "search, both", ""]);
    assert_eq!(soft_value(&limiter.check(&Call::new("GET", "/free"))), None);
}
