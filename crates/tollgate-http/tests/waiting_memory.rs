//! A request that waits in the queue of a limit holds a bounded number of bytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::Limiter;
use tollgate_http::{LimitLayer, WaitingRoom};
use tollgate_testkit::{CountingAllocator, poll_once, retained_bytes};
use tower::{Layer as _, ServiceExt as _, service_fn};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes of a waiting request in the layer, without its connection and its head. The READMEs of
/// this crate and of the gateway state it.
const MAX_BYTES: usize = 4_096;

const REQUESTS: usize = 1_000;

#[tokio::test]
async fn a_waiting_request_holds_at_most_four_kibibytes() {
    let limiter = Limiter::from_policy(
        "limits:
           - {by: global, algorithm: leaky-queue, rate: 1/minute, queue: {length: 100000}}
           - {by: global, bucket: 1000000/day}",
    )
    .unwrap();
    let room = WaitingRoom::new(REQUESTS, tokio::time::sleep);
    let service = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    let service = LimitLayer::new(limiter).with_waiting_room(room.clone()).layer(service);
    assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 200);
    let (waiting, bytes) = retained_bytes(|| {
        let send = |_| {
            let mut response = Box::pin(service.clone().oneshot(Request::new(())));
            assert!(poll_once(response.as_mut()).is_pending());
            response
        };
        (0..REQUESTS).map(send).collect::<Vec<_>>()
    });
    assert_eq!(room.waiting(), REQUESTS);
    let bytes = bytes / REQUESTS;
    println!("{bytes} bytes for each waiting request");
    assert!(bytes <= MAX_BYTES, "{bytes} bytes for each waiting request");
    let ((), left) = retained_bytes(|| drop(waiting));
    assert!(left.wrapping_neg() >= REQUESTS * bytes, "all of it is free again");
    assert_eq!(room.waiting(), 0);
}
