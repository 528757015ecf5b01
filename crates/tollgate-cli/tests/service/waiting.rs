//! SIGTERM while requests wait in the queues of their limits, or for a slot.

use std::thread;
use std::time::Duration;

use tollgate_testkit::Tollgate;

use super::client::{Client, get};
use super::upstream::Upstream;
use super::{BINARY, alone};

/// The second request for each path waits: for an hour, 6 s, or 12 s, which is longer than the body of an
/// API request may take.
const POLICY: &str = "limits:
  - {name: long, endpoint: /long, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}
  - {name: soon, endpoint: /soon, by: global, algorithm: leaky-queue, rate: 10/minute, queue: {length: 9}}
  - {name: late, endpoint: /late, by: global, algorithm: leaky-queue, rate: 5/minute, queue: {length: 9}}
";

#[test]
fn requests_in_a_queue_are_served_if_their_turn_comes_within_the_drain_and_answered_otherwise() {
    let _alone = alone();
    let upstream = Upstream::start();
    let config = format!("{POLICY}{}", upstream.section("timeouts: {drain: 5m}"));
    let mut tollgate = Tollgate::start(BINARY, &config);
    let (gateway, api) = (tollgate.gateway, tollgate.api);
    for path in ["/long", "/soon", "/late"] {
        assert_eq!(get(gateway, path).status, 200, "{path}");
    }
    let proxied = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let auth = |path: &str| {
        format!("GET /v1/auth/original HTTP/1.1\r\nHost: localhost\r\nX-Original-URI: {path}\r\n\r\n")
    };
    let requests = [
        (gateway, proxied("/long")),
        (gateway, proxied("/soon")),
        (api, auth("/long")),
        (api, auth("/late")),
    ];
    let (answers, code) = thread::scope(|scope| {
        let asking = requests.map(|(address, request)| {
            scope.spawn(move || Client::connect(address).unwrap().ask(&request).map(|it| it.status))
        });
        loop {
            let metrics = String::from_utf8(get(api, "/metrics").body).unwrap();
            if metrics.contains("\ntollgate_waiting_held_total 4\n") {
                assert!(metrics.contains("\ntollgate_waiting_refused_total 0\n"), "{metrics}");
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        tollgate.program.signal("TERM");
        let code = tollgate.program.wait().code();
        (asking.map(|it| it.join().unwrap()), code)
    });
    assert_eq!(answers, [Ok(503), Ok(200), Ok(503), Ok(200)], "{}", tollgate.log());
    assert_eq!(code, Some(0), "the server ends well: {}", tollgate.log());
}

#[test]
fn requests_that_wait_for_a_slot_wait_as_long_as_the_drain_permits_and_none_is_lost() {
    let _alone = alone();
    let upstream = Upstream::start();
    let policy = "limits: [{name: db, by: global, slots: 1, queue: {length: 9, wait: 1h}}]\n";
    let config = format!("{policy}{}", upstream.section("timeouts: {drain: 6s}"));
    let mut tollgate = Tollgate::start(BINARY, &config);
    let (gateway, api) = (tollgate.gateway, tollgate.api);
    let ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        move || Client::connect(gateway).unwrap().ask(&request).map(|it| it.status)
    };
    let waits = |count: usize| {
        let line = format!("\ntollgate_waiting_requests {count}\n");
        while !String::from_utf8(get(api, "/metrics").body).unwrap().contains(&line) {
            thread::sleep(Duration::from_millis(5));
        }
    };
    let (answers, code) = thread::scope(|scope| {
        // The second gets the slot during the drain, and keeps it for longer than the drain lasts.
        let first = scope.spawn(ask("/wait/1000"));
        upstream.waiting.recv().unwrap();
        let second = scope.spawn(ask("/wait/60000"));
        waits(1);
        let others = [scope.spawn(ask("/a")), scope.spawn(ask("/b"))];
        waits(3);
        tollgate.program.signal("TERM");
        let code = tollgate.program.wait().code();
        drop(second);
        ([first].into_iter().chain(others).map(|it| it.join().unwrap()).collect::<Vec<_>>(), code)
    });
    assert_eq!(answers, [Ok(200), Ok(503), Ok(503)], "{}", tollgate.log());
    assert!(code.is_some(), "the server ends by itself: {}", tollgate.log());
}
