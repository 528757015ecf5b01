//! Measures the cost of writing rate-limit headers and refusals, compared with the decision.
//!
//! ```text
//! cargo run --release -p tollgate-http --example header_speed [ROUNDS]
//! ```

use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::Full;
use tollgate::{Call, Decision, Limiter};
use tollgate_http::{LimitLayer, Peer, RawExchange, RawRequest, Rejection, RetryAfter, write_headers};
use tower::{Layer as _, Service as _, service_fn};

const POLICY: &str = "
limits:
  - {name: api-by-ip, by: ip, bucket: 1000000/minute}
  - {name: api-by-user, endpoint: /, by: user, bucket: 2000000/minute}
  - {name: everything, by: global, bucket: 1000000/second}
  - {name: narrow, endpoint: /narrow, by: ip, bucket: 1/day}
";

fn main() -> Result<(), tollgate::PolicyError> {
    let limiter = Limiter::from_policy(POLICY)?;
    let settings = limiter.policy().headers();
    let admitted = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]).user("ann"));
    let narrow = Call::new("GET", "/narrow").ip([203, 0, 113, 9]);
    drop(limiter.check(&narrow));
    let refused = limiter.check(&narrow);
    let retry_after = RetryAfter::of(&refused, 0, 0);
    let request = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("*/*"))]);

    measure("an empty answer, for comparison", upstream);
    measure("admitted, three limits", || {
        let mut headers = upstream();
        write_headers(&mut headers, &admitted, limiter.id_of(&admitted), settings, None);
        headers
    });
    measure("refused, three limits", || {
        let rejection =
            Rejection::of(&refused, limiter.id_of(&refused), retry_after).expect("it was refused");
        let mut response = rejection.response(&request, settings);
        rejection.write_headers(response.headers_mut(), settings);
        response
    });

    let layer = LimitLayer::new(limiter.clone());
    let (raw, shared) = (layer.raw(), Arc::new(limiter.clone()));
    let request = RawRequest {
        method: "GET",
        path: "/",
        query: None,
        host: "example.com",
        client: None,
        headers: &request,
    };
    let conclude = |decision: &Decision<'_>, out: &mut Vec<u8>| {
        let mut exchange =
            RawExchange { request, is_head: false, out, write_connection: |_: &mut Vec<u8>| () };
        raw.conclude(&shared, decision, &mut exchange)
    };
    measure("admitted, three limits, as lines", || conclude(&admitted, &mut Vec::new()));
    let mut out = Vec::new();
    measure("refused, three limits, as lines with the body", || {
        out.clear();
        conclude(&refused, &mut out);
        out.len()
    });

    let mut service = layer.layer(service_fn(|_: Request<()>| {
        let mut response = http::Response::new(Full::new(Bytes::new()));
        *response.headers_mut() = upstream();
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    for (what, path) in [("the whole layer, admitted", "/"), ("the whole layer, refused", "/narrow")] {
        let request = || {
            let peer = Peer(SocketAddr::from(([203, 0, 113, 9], 4711)));
            let mut request = Request::new(());
            *request.uri_mut() = Uri::from_static(path);
            request.headers_mut().insert("x-user-id", HeaderValue::from_static("ann"));
            request.headers_mut().insert(http::header::ACCEPT, HeaderValue::from_static("*/*"));
            request.extensions_mut().insert(peer);
            request
        };
        measure("  a request, for comparison", request);
        measure(what, || pollster::block_on(service.call(request())));
    }
    Ok(())
}

/// The headers of an upstream response.
fn upstream() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("13"));
    headers.insert(http::header::DATE, HeaderValue::from_static("Sun, 15 Nov 2026 13:00:00 GMT"));
    headers
}

#[allow(clippy::disallowed_methods, reason = "it measures real time")]
fn measure<T>(what: &str, mut act: impl FnMut() -> T) {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(200_000_u32);
    let best = (0..7).map(|_| {
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(act());
        }
        start.elapsed() / rounds.max(1)
    });
    let best = best.min().unwrap_or_default();
    println!("{:>6} ns  {what}", best.as_nanos());
}
