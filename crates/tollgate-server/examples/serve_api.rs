//! Serves the API and the dashboard with generated traffic, to try them out: `cargo run -p
//! tollgate-server --example serve_api -- 7070` (or an address).
//!
//! The real server is `tollgate serve`.
#![allow(clippy::unwrap_used, reason = "an example that cannot go on has failed")]

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::interval;
use tollgate::{Call, Clock, Limiter, SharedLimiter, SystemClock};
use tollgate_server::{Access, Api, Gauges, Status};
use tollgate_telemetry::{WatchSettings, Watcher};

const POLICY: &str = "
deny: [{ip: 192.0.2.66}]
limits:
  - {name: per-ip, by: ip, bucket: 600/minute, soft: 80%}
  - {name: search, endpoint: /api/v1/search, by: api_key, windows: [8/second, 2000/hour], plans: {pro: [80/second, 20000/hour]}}
  - {name: login, endpoint: /login, method: POST, by: ip, algorithm: sliding-log, bucket: 10/minute}
  - {name: uploads, endpoint: '/files/{name}', method: PUT, by: user, bucket: '30/minute, burst 10', cost: 'header:x-size'}
  - {name: exports, endpoint: /exports, by: tenant, algorithm: fixed-window, bucket: 20/minute, mode: shadow}
  - {name: reports, endpoint: /reports/**, by: tenant, algorithm: sliding-window, bucket: 60/minute, candidate: {algorithm: sliding-window, bucket: 30/minute}}
  - {name: jobs, endpoint: /jobs, by: user, slots: 3}
  - {name: everybody, by: global, bucket: 1000000/second}
";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7070".to_owned());
    let address = if address.contains(':') { address } else { format!("127.0.0.1:{address}") };
    let clock = SystemClock::new();
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter = Limiter::from_policy(POLICY).unwrap().with_observer(watcher.clone());
    let limiter = SharedLimiter::from(limiter);
    let status = Arc::new(Status::new());
    status.loaded(clock.now());
    let counted = limiter.clone();
    let api = Api::new(limiter.clone(), status, Access::open()).with_watcher(watcher.clone()).with_gauges(
        move || {
            let usage = counted.load().usage();
            Gauges {
                keys: u64::try_from(usage.keys).ok(),
                evictions: Some(usage.evictions),
                tarpit_most: 1_000,
                ..Gauges::default()
            }
        },
    );
    let ticked = api.clone();
    let listener = TcpListener::bind(&address).await.unwrap();
    println!("listening on http://{}", listener.local_addr().unwrap());
    tokio::spawn(make_traffic(limiter));
    tokio::spawn(async move {
        let mut seconds = interval(Duration::from_secs(1));
        loop {
            seconds.tick().await;
            watcher.tick(clock.now());
            ticked.tick(clock.now());
        }
    });
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let api = api.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let api = api.clone();
                async move { Ok::<_, Infallible>(api.answer(request, peer.ip()).await) }
            });
            // An aborted connection is not an error of the server.
            let _gone = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Sends some hundred requests a second, of which some are refused.
async fn make_traffic(limiter: SharedLimiter) {
    let mut pace = interval(Duration::from_millis(20));
    loop {
        pace.tick().await;
        let limiter = limiter.load();
        for _ in 0..fastrand::u32(1..8) {
            let (who, client) = (fastrand::u8(..).leading_zeros() + 1, fastrand::u8(..));
            let address = IpAddr::from([203, 0, 113, client]);
            let (user, key, tenant) =
                (format!("user-{who}"), format!("key-{who}-of-customer"), format!("tenant-{who}"));
            let (file, size) = (format!("/files/{client}.png"), (client % 4).to_string());
            let call = match fastrand::u8(..20) {
                0 => Call::new("POST", "/login").ip([203, 0, 113, (client % 3)]),
                1 => Call::new("PUT", &file).user(&user).header("x-size", &size),
                2 | 3 => Call::new("GET", "/exports").tenant(&tenant),
                4 | 5 => Call::new("GET", "/reports/weekly").tenant(&tenant),
                6 => Call::new("GET", "/").ip([192, 0, 2, 66]),
                7..=14 => Call::new("GET", "/api/v1/search?q=x").api_key(&key).ip(address),
                _ => Call::new("GET", "/").ip(address),
            };
            drop(limiter.check(&call));
        }
    }
}
