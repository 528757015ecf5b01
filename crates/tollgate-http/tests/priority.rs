//! Priority classes: the service sees those of the layer, and shed requests get 503.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Store, Timestamp};
use tollgate_http::{LimitLayer, RequestPriority};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::remote_store::RemoteStore;

const CLASSES: &str = "priorities:
  - {name: critical, endpoint: /pay}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
";

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

fn limited<S: Store>(policy: &str, store: S) -> LimitLayer<S> {
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}"));
    LimitLayer::spawning(Limiter::with_store(policy, store), |work| drop(tokio::spawn(work)))
}

/// Echoes the lines of the header, then the name in the extension.
async fn echo(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let lines = request.headers().get_all("tollgate-priority").iter().map(|it| it.to_str().unwrap());
    let name = request.extensions().get::<RequestPriority>().map_or("", RequestPriority::name);
    Ok(Response::new(Full::from(format!("{}|{name}", lines.collect::<Vec<_>>().join("/")))))
}

/// Creates a request whose client claims a class, in every header that it can think of.
fn claiming(path: &str) -> http::request::Builder {
    Request::get(path)
        .header("Tollgate-Priority", "critical")
        .header("tollgate-priority", "critical")
        .header("x-priority", "critical")
}

async fn ask<S, B>(service: S, request: Request<()>) -> Response<Bytes>
where
    S: tower::Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    let (parts, body) = service.oneshot(request).await.unwrap().into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

async fn check<S: Store>(store: S) {
    let policy =
        format!("{CLASSES}allow: [{{ip: 192.0.2.1}}]\nlimits: [{{endpoint: /pay, by: global, bucket: 9/s}}]");
    let service = limited(&policy, store).layer(service_fn(echo));
    for (path, expected) in [("/pay", "critical|critical"), ("/", "normal|normal")] {
        let answer = ask(service.clone(), claiming(path).body(()).unwrap()).await;
        assert_eq!(answer.body(), expected, "{path}");
    }
    let lower = Request::get("/").header("x-priority", "bulk").body(()).unwrap();
    assert_eq!(ask(service, lower).await.body(), "bulk|bulk");
}

#[tokio::test]
async fn the_service_sees_the_class_of_the_layer_and_not_the_claim_of_a_client() {
    check(memory()).await;
    check(RemoteStore(memory())).await;
}

#[tokio::test]
async fn a_layer_without_classes_removes_the_claim_and_keeps_the_class_of_an_outer_layer() {
    let plain = "limits: [{by: global, bucket: 9/s}]";
    let service = limited(plain, memory()).layer(service_fn(echo));
    assert_eq!(ask(service, claiming("/pay").body(()).unwrap()).await.body(), "|");
    let inner = limited(plain, memory()).layer(service_fn(echo));
    let service = limited(&format!("{CLASSES}{plain}"), memory()).layer(inner);
    assert_eq!(ask(service, claiming("/").body(()).unwrap()).await.body(), "normal|normal");
}

#[tokio::test]
async fn a_shed_request_gets_503_with_a_random_wait_and_no_numbers_of_the_fleet() {
    let policy = format!(
        "{CLASSES}shed: {{fleet: {{slots: 2, reserve: {{critical: 1}}}}}}\nlimits: [{{name: api, by: global, bucket: 50/minute}}]"
    );
    let policy = Policy::parse(&policy).unwrap();
    let layer = LimitLayer::new(Limiter::with_store(policy, memory()));
    let service = layer.layer(service_fn(echo));
    let held = service.clone().oneshot(Request::get("/").body(()).unwrap()).await.unwrap();
    assert_eq!(held.status(), 200);
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let answer = ask(service.clone(), claiming("/").body(()).unwrap()).await;
        assert_eq!(answer.status(), 503);
        let (headers, problem): (_, Value) =
            (answer.headers(), serde_json::from_slice(answer.body()).unwrap());
        assert_eq!(
            problem["type"],
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        );
        assert_eq!(problem["violated-policies"], json!(["shed.fleet"]));
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.starts_with("the service is overloaded and refuses requests of priority `normal`"),
            "{detail}"
        );
        // Of the limits, callers see their own.
        assert_eq!(headers["ratelimit-policy"], r#""api";q=50;w=60"#);
        assert_eq!(headers["x-ratelimit-limit"], "50");
        assert!(headers.contains_key("tollgate-decision"));
        let seconds: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=3).contains(&seconds), "{seconds}");
        waits.insert(headers["retry-after-ms"].clone().to_str().unwrap().to_owned());
    }
    assert!(waits.len() > 10, "callers return at different times: {waits:?}");
    assert_eq!(ask(service.clone(), Request::get("/pay").body(()).unwrap()).await.status(), 200);
    drop(held);
    assert_eq!(ask(service, Request::get("/").body(()).unwrap()).await.status(), 200, "released");
}
