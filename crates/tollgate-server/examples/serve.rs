//! The API on a socket, for trying it out and for tools that test APIs:
//! `cargo run -p tollgate-server --example serve -- 127.0.0.1:7070`.
//!
//! Not here: anything a real server needs. That is `tollgate serve`.
#![allow(clippy::unwrap_used, reason = "an example that cannot go on has failed")]

use std::convert::Infallible;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tollgate::{Limiter, Timestamp};
use tollgate_server::{Access, Api, Status};

const POLICY: &str = "
limits:
  - {name: per-ip, by: ip, bucket: 1000000/second}
  - {name: search, endpoint: /api/v1/search, by: api_key, windows: [100/second, 10000/hour]}
  - {name: everybody, by: global, bucket: 1000000000/second}
  - {name: jobs, endpoint: /jobs, by: user, slots: 3}
";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7070".to_owned());
    let status = Arc::new(Status::new());
    status.loaded(Timestamp::from_secs(1_772_366_400));
    let limiter = Limiter::from_policy(POLICY).unwrap();
    let api = Api::new(limiter.into(), status, Access::open());
    let listener = TcpListener::bind(&address).await.unwrap();
    println!("listening on http://{}", listener.local_addr().unwrap());
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let api = api.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let api = api.clone();
                async move { Ok::<_, Infallible>(api.answer(request, peer.ip()).await) }
            });
            // A client that breaks off is its own business.
            let _gone = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
