//! Serves a policy on a port, on one thread: `cargo run --example serve_rls -- 127.0.0.1:8081`.
//!
//! For testing clients and for benchmarks; production deployments use `tollgate serve`.

use std::convert::Infallible;

use tollgate::Limiter;
use tollgate_net::{Drain, HttpServer};
use tollgate_rls::{Rls, RlsSettings};

const POLICY: &str = "
limits:
  - {name: per-ip, by: ip, bucket: 1000000/second}
  - {name: per-user, domain: edge, descriptor: [user], bucket: 1000000/second}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let rls = Rls::new(Limiter::from_policy(POLICY)?.into(), RlsSettings::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = std::net::TcpListener::bind(&address)?;
        listener.set_nonblocking(true)?;
        let make = move |_: &tollgate_net::Connection| {
            let rls = rls.clone();
            hyper::service::service_fn(move |request| {
                let rls = rls.clone();
                async move { Ok::<_, Infallible>(rls.answer(request).await) }
            })
        };
        let (_gate, drain) = Drain::new();
        HttpServer::default().serve(listener, make, drain).await?;
        Ok(())
    })
}
