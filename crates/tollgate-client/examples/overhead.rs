//! Measures the overhead of the client for a call without a limit.
//!
//! `cargo run --release -p tollgate-client --example overhead`

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use tollgate::{Clock, SystemClock};
use tollgate_client::{Call, Client};

const CALLS: u32 = 1_000_000;

fn main() {
    let (client, clock) = (Client::default(), SystemClock::new());
    let uri = Uri::from_static("http://api.test/users/7/posts");
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer token"));
    let call = Call::new(&Method::GET, &uri, &headers);
    let mut answer = Response::new(());
    for (name, value) in
        [("content-type", "application/json"), ("date", "Tue, 17 Nov 2026 11:00:00 GMT"), ("server", "x")]
    {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    for round in 0..5 {
        let start = clock.now();
        for _ in 0..CALLS {
            let sent = pollster::block_on(client.call(&call, |_| ready(Ok::<_, Infallible>(answer.clone()))));
            assert!(sent.is_ok());
        }
        let each = Duration::from(clock.now().since(start)) / CALLS;
        println!("round {round}: {each:?} a call, with a copy of the response");
    }
}
