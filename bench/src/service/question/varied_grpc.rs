//! gRPC calls of which each has its own key and its own tracing headers, as an Envoy with tracing sends them: 4 connections of
//! 16 streams.
//!
//! h2load repeats one header block, which a server may know from the call before. Here each block has two values that are new, in
//! addition to those that Envoy repeats, and replaces entries of the table of HPACK.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::grpc::{CONNECTIONS, Grpc, STREAMS};
use super::{Amount, Answer, KEYS, Limit, Question, key};
use crate::sample::Pace;
use crate::stopwatch::mark;

/// The distance between consecutive keys. It is coprime to their number, so all keys are used.
const STEP: u64 = 7_919;

/// A method that is called with headers that vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariedGrpc(pub Grpc);

impl VariedGrpc {
    /// Returns the call with this number.
    fn request(self, server: SocketAddr, number: u64) -> io::Result<Request<Full<Bytes>>> {
        let body = self.0.body(&key(number * STEP % KEYS));
        // Ids look random: their digits have all values.
        let [high, low] =
            [1, 2].map(|salt| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(salt * 17));
        Request::post(format!("http://{server}{}", self.0.path()))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "1000m")
            .header(
                "x-request-id",
                format!("{:08x}-{:04x}-4000-8000-{:012x}", high >> 32, low >> 48, high >> 16),
            )
            .header("traceparent", format!("00-{high:016x}{low:016x}-{:016x}-01", high ^ low))
            .header("x-envoy-internal", "true")
            .header("x-forwarded-for", "10.0.0.12")
            .header("x-envoy-expected-rq-timeout-ms", "1000")
            .body(Full::new(body.into()))
            .map_err(io::Error::other)
    }

    /// Sends calls one after the other, until as many as wanted have been sent on all streams.
    async fn send(
        self,
        server: SocketAddr,
        mut client: SendRequest<Full<Bytes>>,
        sent: Arc<AtomicU64>,
        wanted: u64,
    ) -> io::Result<()> {
        loop {
            let number = sent.fetch_add(1, Ordering::Relaxed);
            if number >= wanted {
                return Ok(());
            }
            let answer =
                client.send_request(self.request(server, number)?).await.map_err(io::Error::other)?;
            let http = answer.status();
            let answer = answer.into_body().collect().await.map_err(io::Error::other)?;
            let status = answer.trailers().and_then(|it| it.get("grpc-status"));
            if http != StatusCode::OK || status.is_none_or(|it| it != "0") {
                return Err(io::Error::other(format!("a call failed: {http}, grpc-status {status:?}")));
            }
        }
    }
}

impl Question for VariedGrpc {
    fn ample(&self) -> Limit {
        self.0.ample()
    }

    fn ask(&self, server: SocketAddr, limit: Limit, key: &str) -> io::Result<Answer> {
        self.0.ask(server, limit, key)
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn load(&self, server: SocketAddr, amount: Amount, _folder: &Path) -> io::Result<Pace> {
        let requests = amount.requests();
        let started_at = mark();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (sent, mut streams) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
            for _ in 0..CONNECTIONS {
                let stream = TcpStream::connect(server).await?;
                stream.set_nodelay(true)?;
                let builder = http2::Builder::new(TokioExecutor::new());
                let (client, connection) =
                    builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
                tokio::spawn(connection);
                for _ in 0..STREAMS {
                    streams.spawn(self.send(server, client.clone(), Arc::clone(&sent), requests));
                }
            }
            while let Some(ended) = streams.join_next().await {
                ended??;
            }
            Ok::<_, io::Error>(())
        })?;
        let per_second = requests as f64 / started_at.elapsed().as_secs_f64();
        Ok(Pace { requests, per_second, p50_us: f64::NAN, p99_us: f64::NAN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_headers_of_its_own() {
        let server = SocketAddr::from(([127, 0, 0, 1], 9));
        let calls = [0, 1, 2].map(|number| VariedGrpc(Grpc::Descriptor).request(server, number).unwrap());
        for name in ["x-request-id", "traceparent"] {
            let [first, second, third] = calls.each_ref().map(|call| call.headers()[name].to_str().unwrap());
            assert!(
                first != second && second != third && first != third,
                "{name}: {first}, {second}, {third}"
            );
        }
        let request_id = calls[0].headers()["x-request-id"].to_str().unwrap();
        assert_eq!(request_id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{request_id}");
        assert_eq!(calls[0].headers()["traceparent"].len(), 55);
    }
}
