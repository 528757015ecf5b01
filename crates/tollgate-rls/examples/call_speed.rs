//! Measures the time of a call without sockets: `cargo run --release --example call_speed --
//! FILE…`, where each file is the body of a `ShouldRateLimit` call, including the gRPC prefix.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tollgate::{Clock as _, Limiter, SystemClock};
use tollgate_rls::{Rls, RlsSettings};

const POLICY: &str = "
limits:
  - {name: per-ip, by: ip, bucket: 1000000/second}
  - {name: per-user, domain: edge, descriptor: [user], bucket: 1000000/second}
";
const CALLS: u64 = 300_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rls = Rls::new(Limiter::from_policy(POLICY)?.into(), RlsSettings::default());
    let clock = SystemClock::new();
    for _ in 0..2 {
        for file in std::env::args().skip(1) {
            let body = Bytes::from(std::fs::read(&file)?);
            let begun = clock.now();
            for _ in 0..CALLS {
                let request = Request::post("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
                    .header("content-type", "application/grpc")
                    .body(Full::new(body.clone()))?;
                drop(pollster::block_on(rls.answer(request)));
            }
            println!("{file}: {} ns", clock.now().since(begun).as_micros() * 1_000 / CALLS);
        }
    }
    Ok(())
}
