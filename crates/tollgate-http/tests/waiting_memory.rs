//! A request that waits in the queue of a limit holds a bounded number of bytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{Limiter, SharedLimiter};
use tollgate_http::{LimitLayer, WaitingRoom};
use tollgate_testkit::{CountingAllocator, poll_once, retained_bytes};
use tower::{Layer as _, ServiceExt as _, service_fn};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes of a waiting request in the layer, without its connection and its head. The READMEs of
/// this crate and of the gateway state them.
const MAX_BYTES_IN_QUEUE: usize = 4_096;
const MAX_BYTES_IN_LINE: usize = 12_288;
/// In a queue, if a more important request may take its place.
const MAX_BYTES_DISPLACEABLE: usize = 5_120;

const REQUESTS: usize = 1_000;

async fn check_bytes(policy: &str, max_bytes: usize) {
    let limiter = SharedLimiter::from(Limiter::from_policy(policy).unwrap());
    let room = WaitingRoom::new(REQUESTS, tokio::time::sleep);
    let service = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    let service = LimitLayer::new(limiter.clone()).with_waiting_room(room.clone()).layer(service);
    let first = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(first.status(), 200);
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
    assert!(bytes <= max_bytes, "{bytes} bytes for each waiting request");
    let ((), left) = retained_bytes(|| drop(waiting));
    assert!(left.wrapping_neg() >= REQUESTS * (bytes - bytes / 20), "all of it is free again");
    assert_eq!((room.waiting(), limiter.load().waiting()), (0, 0));
}

#[tokio::test]
async fn a_request_in_a_leaky_queue_holds_at_most_four_kibibytes() {
    let policy = "limits:
           - {by: global, algorithm: leaky-queue, rate: 1/minute, queue: {length: 100000}}
           - {by: global, bucket: 1000000/day}";
    check_bytes(policy, MAX_BYTES_IN_QUEUE).await;
}

#[tokio::test]
async fn a_request_in_line_for_a_slot_holds_at_most_twelve_kibibytes() {
    let policy = "limits:
           - {by: global, slots: 1, queue: {length: 1000}}
           - {by: global, bucket: 1000000/day}";
    check_bytes(policy, MAX_BYTES_IN_LINE).await;
}

#[tokio::test]
async fn a_request_that_may_be_displaced_holds_at_most_five_kibibytes() {
    let policy = "priorities: [{name: critical, endpoint: /pay}, {name: normal}]
limits:
  - {by: global, algorithm: leaky-queue, rate: 1/minute, queue: {length: 100000}}
  - {by: global, bucket: 1000000/day}";
    check_bytes(policy, MAX_BYTES_DISPLACEABLE).await;
}
