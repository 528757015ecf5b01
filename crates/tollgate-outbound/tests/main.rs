//! The outbound gateway in front of servers with limits that Tollgate did not write.

#![allow(clippy::unwrap_used, clippy::panic, clippy::items_after_statements)]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tollgate_net::{Drain, Drainer, HttpUrl, Sockets};
use tollgate_outbound::{Authorities, Credential, Outbound, OutboundSettings};
use tollgate_testkit::{Certificate, LimitedServer, Scratch};

/// A running outbound gateway, and an HTTP client for it.
struct Gateway {
    url: String,
    outbound: Outbound,
    client: Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
    _drainer: Drainer,
}

fn gateway(upstream: &str, change: impl FnOnce(&mut OutboundSettings)) -> Gateway {
    let mut settings = OutboundSettings {
        name: "test".to_owned(),
        listen: "127.0.0.1:0".to_owned(),
        upstream: HttpUrl::parse(upstream).unwrap(),
        authorities: Authorities::Public,
        host: None,
        credential: None,
        learn: true,
        timeout: Duration::from_secs(60),
        tries: 20,
    };
    change(&mut settings);
    let outbound = Outbound::new(settings).unwrap();
    let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
    let url = format!("http://{}", sockets.address());
    let (drainer, drain) = Drain::new();
    for listener in sockets.into_listeners() {
        let (outbound, drain) = (outbound.clone(), drain.clone());
        tokio::spawn(async move { outbound.serve(listener, drain).await });
    }
    Gateway { url, outbound, client: Client::builder(TokioExecutor::new()).build_http(), _drainer: drainer }
}

impl Gateway {
    async fn send(&self, method: Method, path: &str, body: &str) -> (StatusCode, HeaderMap, String) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", "Bearer secret")
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// Makes 2,000 calls by 100 tasks, about three times as many as the server admits. Everything succeeds, and nothing is
/// sent before the time that a refusal named.
async fn check_calls(dialect: &str, rate: f64) {
    const TASKS: usize = 100;
    const CALLS: usize = 20;
    let server = LimitedServer::start(dialect);
    let gateway = std::sync::Arc::new(gateway(&format!("http://127.0.0.1:{}", server.port), |_| {}));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let gateway = std::sync::Arc::clone(&gateway);
        tasks.spawn(async move {
            for _ in 0..CALLS {
                let (status, _, body) = gateway.send(Method::GET, "/items", "").await;
                assert_eq!((status, body.as_str()), (StatusCode::OK, "ok"));
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let stats = gateway.send(Method::GET, "/stats", "").await.2;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let seconds = stats["last"].as_f64().unwrap() - stats["first"].as_f64().unwrap();
    #[allow(clippy::cast_precision_loss)]
    let used = (TASKS * CALLS) as f64 / seconds / rate;
    println!("{dialect}: {stats}, {used:.3} of the limit, {:?}", gateway.outbound.client().counts());
    assert_eq!(stats["early"], 0, "{stats}");
    // A busy machine delays calls, which costs refusals and throughput; the numbers of a quiet one are printed above.
    assert!(stats["refused"].as_u64().unwrap() <= 100, "{stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_to_a_server_like_github_succeed() {
    check_calls("github", 500.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_to_a_server_like_discord_succeed() {
    check_calls("discord", 300.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_to_a_server_like_openai_succeed() {
    check_calls("openai", 400.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_cannot_be_sent_in_time_is_answered_with_503_and_the_reason() {
    let server = LimitedServer::start("github");
    let gateway =
        gateway(&format!("http://127.0.0.1:{}", server.port), |it| it.timeout = Duration::from_secs(2));
    let (status, headers, body) = gateway.send(Method::GET, "/never", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 3_000, "{headers:?}");
    assert!(body.contains("the rate limit of the route has units in"), "{body}");
    let (status, _, body) = gateway.send(Method::GET, "/slow", "").await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_tls_is_verified_and_gets_its_own_host() {
    let folder = Scratch::new();
    let certificate = Certificate::new(&folder);
    let server = LimitedServer::start_tls("github", &certificate);
    let upstream = format!("https://localhost:{}", server.port);
    let trusting = gateway(&upstream, |it| it.authorities = Authorities::File(certificate.ca.clone()));
    let (status, headers, body) = trusting.send(Method::GET, "/echo", "").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "echo"));
    assert_eq!(headers["x-host"], format!("localhost:{}", server.port));
    assert_eq!(headers["x-auth"], "Bearer secret");
    assert_eq!(trusting.send(Method::POST, "/post", "a body").await.2, "a body");
    let token = folder.write("token", "from-a-file\n");
    let with_credential = gateway(&upstream, |it| {
        it.authorities = Authorities::File(certificate.ca.clone());
        it.host = Some("api.example.com".to_owned());
        it.credential = Some(Credential { file: token, header: http::header::AUTHORIZATION });
    });
    let (_, headers, _) = with_credential.send(Method::GET, "/echo", "").await;
    assert_eq!(headers["x-host"], "api.example.com");
    assert_eq!(headers["x-auth"], "Bearer from-a-file");
    let other = gateway(&upstream, |it| it.tries = 1);
    assert_eq!(other.send(Method::GET, "/echo", "").await.0, StatusCode::BAD_GATEWAY);
}
