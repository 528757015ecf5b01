//! The load generator against servers that tell the truth, lie, or are slow.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tollgate_load::{FindingKind, LoadPlan, LoadReport, Manner, WaitSource, run};
use tollgate_net::HttpUrl;

/// Serves responses: a function gets the number of the request, from one.
async fn server<F, R>(answer: F) -> String
where
    F: Fn(u64) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Full<Bytes>>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/items", listener.local_addr().unwrap());
    let (answer, count) = (Arc::new(answer), Arc::new(AtomicU64::new(0)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
            let service = service_fn(move |_| {
                let (answer, number) = (Arc::clone(&answer), count.fetch_add(1, Ordering::Relaxed) + 1);
                async move { Ok::<_, Infallible>(answer(number).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    url
}

fn response(status: u16, headers: &[(&'static str, &str)]) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

async fn load(url: &str, change: impl FnOnce(&mut LoadPlan)) -> LoadReport {
    let mut plan = LoadPlan {
        url: HttpUrl::parse(url).unwrap(),
        tls: None,
        method: Method::GET,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        rate: 200.0,
        duration: Duration::from_millis(500),
        connections: 10,
        timeout: Duration::from_secs(30),
        manner: Manner::Hammer,
        checks: 2,
        max_wait: Duration::from_secs(30),
    };
    change(&mut plan);
    run(plan, std::future::pending()).await.unwrap()
}

#[tokio::test]
async fn latencies_of_a_slow_server_count_from_the_scheduled_arrival() {
    let url = server(async |_| {
        sleep(Duration::from_millis(10)).await;
        response(200, &[])
    })
    .await;
    let report = load(&url, |plan| plan.connections = 1).await;
    assert_eq!((report.arrivals, report.sent, report.admitted, report.unsent), (100, 100, 100, 0));
    // 100 requests take a second, one after the other, and arrive within half a second.
    assert!(report.latency_ms.max >= 450.0, "{:?}", report.latency_ms);
    assert!(report.latency_ms.p50 > report.service_time_ms.p50, "{report:?}");
}

#[tokio::test]
async fn arrivals_that_are_never_sent_count_with_their_wait() {
    let url = server(async |_| {
        sleep(Duration::from_millis(300)).await;
        response(200, &[])
    })
    .await;
    let report = load(&url, |plan| (plan.connections, plan.timeout) = (1, Duration::from_millis(500))).await;
    assert!(report.unsent > 0 && report.sent + report.unsent == 100, "{report:?}");
    assert_eq!(report.latency_ms.count, 100);
    assert!(report.latency_ms.max >= 400.0, "{:?}", report.latency_ms);
}

#[tokio::test]
async fn a_wait_that_is_too_short_and_headers_that_contradict_are_found() {
    let url = server(async |number| match number {
        1 => response(
            200,
            &[("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "60")],
        ),
        _ => response(
            429,
            &[
                ("retry-after", "1"),
                ("retry-after-ms", "20"),
                ("x-ratelimit-limit", "6"),
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "60"),
            ],
        ),
    })
    .await;
    let report = load(&url, |_| {}).await;
    assert_eq!((report.admitted, report.refused, report.class(4)), (1, 99, 99));
    let checks: Vec<_> = report.retry_after.checks.iter().map(|it| (it.source, it.accepted)).collect();
    assert_eq!(checks, [(WaitSource::RetryAfter, false), (WaitSource::Milliseconds, false)]);
    let kinds: Vec<_> = report.headers.findings.iter().map(|it| it.kind).collect();
    for kind in
        [FindingKind::RemainingAboveLimit, FindingKind::LimitChanged, FindingKind::RefusedWithUnitsLeft]
    {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    assert!(report.has_findings());
}

#[tokio::test]
async fn a_true_wait_is_accepted() {
    // Every second request is refused for ten milliseconds.
    let url = server(async |number| match number % 2 {
        1 => response(200, &[]),
        _ => response(429, &[("retry-after-ms", "10")]),
    })
    .await;
    let report = load(&url, |plan| plan.connections = 1).await;
    assert_eq!((report.admitted, report.refused), (50, 50));
    assert_eq!(report.retry_after.with_wait, 50);
    assert!(report.retry_after.checks.iter().all(|check| check.accepted && check.status == 200));
    assert_eq!((report.retry_after.checks.len(), report.has_findings()), (2, false));
}

#[tokio::test]
async fn calls_that_respect_a_limit_all_succeed() {
    let url = server(async |number| match number {
        1 => response(429, &[("retry-after-ms", "20")]),
        _ => response(200, &[]),
    })
    .await;
    let report = load(&url, |plan| (plan.manner, plan.connections) = (Manner::Respect, 1)).await;
    assert_eq!((report.arrivals, report.sent, report.admitted), (100, 101, 100));
    assert_eq!((report.retry_after.retries_accepted, report.retry_after.retries_refused), (1, 0));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let plan = LoadPlan {
        url: HttpUrl::parse(&url).unwrap(),
        tls: None,
        method: Method::GET,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        rate: 100.0,
        duration: Duration::from_millis(50),
        connections: 2,
        timeout: Duration::from_secs(30),
        manner: Manner::Hammer,
        checks: 0,
        max_wait: Duration::from_secs(1),
    };
    let error = run(plan, std::future::pending()).await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached"), "{error}");
}
