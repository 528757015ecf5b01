//! A request that waits holds a bounded number of bytes, also while the gateway passes large responses on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tollgate::{Limiter, SharedLimiter};
use tollgate_document::{Document, Problems};
use tollgate_gateway::{Gateway, GatewaySettings};
use tollgate_net::{Drain, Sockets};
use tollgate_testkit::{CountingAllocator, retained_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes of a waiting request with its connection, and with the client, which is in the same process.
const MAX_BYTES: usize = 8_192;

const REQUESTS: usize = 200;

/// The length of a response that lets the buffers of its connection grow.
const LARGE: usize = 1_000_000;

/// Answers each connection with one large response.
async fn serve_large_responses(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let _head = stream.read(&mut [0; 4_096]).await;
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {LARGE}\r\n\r\n");
        let _client_left = stream.write_all(&[head.as_bytes(), &vec![b'x'; LARGE]].concat()).await;
    }
}

/// Sends a request on a connection of its own.
async fn send(address: SocketAddr, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

#[test]
fn a_request_that_waits_keeps_no_buffer_that_grew_for_the_response_to_another_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let upstream = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let section = format!("gateway: {{upstream: [\"http://{}\"]}}\n", upstream.local_addr().unwrap());
    runtime.spawn(serve_large_responses(upstream));
    let document = Document::parse(&section).unwrap();
    let settings = GatewaySettings::read(document.root().get("gateway"), &mut Problems::default());
    let policy =
        "limits: [{endpoint: /wait, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 999}}]";
    let limiter = SharedLimiter::from(Limiter::from_policy(policy).unwrap());
    let gateway = Arc::new(Gateway::new(settings, limiter, None).unwrap());
    let room = gateway.waiting_room().clone();
    let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
    let (address, listener) = (sockets.address(), sockets.into_listeners().pop().unwrap());
    let (_drainer, drain) = Drain::new();
    let _serving = runtime.spawn(async move { gateway.serve(listener, drain).await });
    // The first request is not delayed.
    let mut first = runtime.block_on(send(address, "/wait"));
    runtime.block_on(first.read_to_end(&mut Vec::new())).unwrap();
    for large_responses in [0, 1, 1] {
        let (waiting, bytes) = retained_bytes(|| {
            runtime.block_on(async {
                let mut waiting = Vec::with_capacity(REQUESTS);
                while waiting.len() < REQUESTS {
                    for _ in 0..large_responses {
                        let mut response = Vec::new();
                        send(address, "/large").await.read_to_end(&mut response).await.unwrap();
                        assert!(response.len() > LARGE);
                    }
                    waiting.push(send(address, "/wait").await);
                    while room.waiting() < waiting.len() {
                        yield_now().await;
                    }
                }
                waiting
            })
        });
        let bytes = bytes / REQUESTS;
        println!("{bytes} bytes for each waiting request, {large_responses} large responses before it");
        drop(waiting);
        runtime.block_on(async {
            while room.waiting() > 0 {
                yield_now().await;
            }
        });
        assert!(bytes <= MAX_BYTES, "{bytes} bytes for each waiting request");
    }
}
