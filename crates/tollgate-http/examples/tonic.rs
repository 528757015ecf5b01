//! A gRPC service of tonic behind Tollgate.
//!
//! gRPC clients expect the status in `grpc-status`, not in the HTTP status, so the example replaces
//! the response to refused requests. The service is the health service of tonic, which needs no
//! generated code. The example serves itself: it makes three calls to a limit of two a minute, prints
//! the results, and ends.
//!
//! Run it with `cargo run -p tollgate-http --example tonic`.

use std::error::Error;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response};
use tokio::net::TcpListener;
use tollgate::Limiter;
use tollgate_http::{LimitLayer, Rejection};
use tonic::Code;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The path of a gRPC request is its service and its method.
const POLICY: &str = "limits: [{name: health, endpoint: /grpc.health.v1.Health/*, by: ip, bucket: 2/minute}]";

/// Creates a response without a message: `RESOURCE_EXHAUSTED`, the reason, and the wait that clients
/// with a retry policy follow.
fn refuse(rejection: &Rejection<'_, '_>, _: &Parts) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(Code::ResourceExhausted as i32));
    if let Ok(detail) = HeaderValue::from_str(rejection.detail()) {
        headers.insert("grpc-message", detail);
    }
    if let Some(wait) = rejection.retry_after() {
        headers.insert("grpc-retry-pushback-ms", HeaderValue::from(wait.millis()));
    }
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = LimitLayer::new(Limiter::from_policy(POLICY)?)
        .with_peer(|parts| Some(parts.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()))
        .with_rejection(refuse);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for _ in 0..3 {
        match client.check(HealthCheckRequest { service: String::new() }).await {
            Ok(reply) => println!("status {:?}", reply.into_inner().status()),
            Err(status) => {
                let pushback = status.metadata().get("grpc-retry-pushback-ms");
                let millis = pushback.and_then(|it| it.to_str().ok()).unwrap_or("-");
                println!("{:?}: {} (pushback: {millis} ms)", status.code(), status.message());
            }
        }
    }
    Ok(())
}
