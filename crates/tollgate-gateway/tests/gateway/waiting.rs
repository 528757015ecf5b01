//! Queues of limits: requests that wait for their turn, and the same arrivals through nginx.
//!
//! Long waits (a minute for each place) show which requests wait without a race against the clock.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use http::Request;
use tollgate::{Clock as _, Span, SystemClock, Timestamp};

use crate::nginx::Nginx;
use crate::support::{Behind, Feed, OK, Upstream, Wire, eventually, http2, wait_for};

/// One request starts immediately and three wait, for one to three minutes. There are ten slots.
const SLOW: &str = "limits:
  - {name: queue, by: global, algorithm: leaky-queue, rate: 1/minute, queue: {length: 3}}
  - {name: slots, endpoint: /slot, by: global, slots: 1}";

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Sends a request on each of several connections, without waiting for an answer.
fn sent(address: SocketAddr, count: usize) -> Vec<Wire> {
    let send = |_| {
        let mut client = Wire::to(address);
        client.send(GET);
        client
    };
    (0..count).map(send).collect()
}

#[test]
fn waiting_requests_are_forwarded_in_their_turn_with_the_usual_headers() {
    let upstream = Upstream::ok();
    let policy = "limits: [{by: global, algorithm: leaky-queue, rate: 20/second, queue: {length: 4}}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let clock = SystemClock::new();
    let begun = clock.now();
    for client in &mut sent(gateway.address, 5) {
        let answer = client.answer();
        assert_eq!(answer.status(), 200);
        assert!(answer.find("tollgate-decision").is_some() && answer.find("ratelimit").is_some());
    }
    assert!(clock.now().since(begun) >= Span::from_millis(4 * 50), "the turn of the last one");
    assert_eq!((gateway.waiting_room.waiting(), gateway.waiting_room.refused()), (0, 0));
    assert_eq!(upstream.seen().len(), 5);
}

#[test]
fn a_full_queue_refuses_and_says_when_there_is_room() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(SLOW).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let _waiting = sent(gateway.address, 3);
    eventually("all of them wait", || gateway.waiting_room.waiting() == 3);
    let refused = gateway.get("/");
    assert_eq!(refused.status(), 429);
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!((upstream.seen().len(), gateway.waiting_room.refused()), (1, 0));
}

#[test]
fn requests_beyond_the_cap_are_refused_and_take_no_place_in_the_queue() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {waiting: 2}").limited(SLOW).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let _waiting = sent(gateway.address, 2);
    eventually("both wait", || gateway.waiting_room.waiting() == 2);
    for refused in 1..4 {
        let answer = gateway.get("/");
        assert_eq!(answer.status(), 429);
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!((61..=180).contains(&seconds), "it would wait for three minutes: {seconds}");
        assert_eq!((gateway.waiting_room.refused(), gateway.left()), (refused, 1));
    }
    assert_eq!((upstream.seen().len(), gateway.waiting_room.held()), (1, 2));

    let never = Behind::new(&upstream).with("caps: {waiting: 0}").limited(SLOW).serve();
    assert_eq!((never.get("/").status(), never.get("/").status()), (200, 429));
    assert_eq!((never.waiting_room.held(), never.waiting_room.refused(), never.left()), (0, 1, 3));
}

#[test]
fn a_client_that_leaves_gives_back_its_place_and_its_slot() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(SLOW).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let left = gateway.left();
    for _ in 0..20 {
        let mut leavers = sent(gateway.address, 2);
        leavers.push(gateway.connect());
        leavers[2].send(GET.replace(" / ", " /slot "));
        eventually("all of them wait", || gateway.waiting_room.waiting() == 3);
        assert_eq!((gateway.left(), gateway.get("/slot").status()), (0, 429));
        // The last one leaves first: only the last place of a queue goes to others.
        while let Some(leaver) = leavers.pop() {
            drop(leaver);
            let (waiting, given_back) = (leavers.len(), left - leavers.len() as u64);
            eventually("it has left", || {
                gateway.waiting_room.waiting() == waiting && gateway.left() == given_back
            });
        }
    }
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let get = Request::get("http://a/slot").body(Feed::nothing()).unwrap();
        let answer = tokio::spawn(client.requests.send_request(get));
        while gateway.waiting_room.waiting() != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Cancels one stream; the connection stays open.
        answer.abort();
        while gateway.waiting_room.waiting() != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!client.ended.is_finished());
    });
    // A request leaves the waiting room before its charge is compensated.
    eventually("its place is free", || gateway.left() == left);
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn a_client_that_leaves_while_its_body_waits_gives_back_its_place() {
    let upstream = Upstream::ok();
    // hyper notices this only after the wait.
    let gateway = Behind::new(&upstream).with("http1: native").limited(SLOW).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let left = gateway.left();
    for (framing, rest) in [
        ("content-length: 5\r\n\r\nhello", ""),
        ("content-length: 5\r\n\r\nhel", ""),
        ("content-length: 5\r\n\r\n", "hello"),
        ("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", ""),
        ("transfer-encoding: chunked\r\n\r\n5\r\nhel", "lo\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\n\r\n5\r\nhel", "lo\r\n"),
    ] {
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}"));
        eventually("it waits", || gateway.waiting_room.waiting() == 1);
        client.send(rest);
        drop(client);
        eventually("it has left", || gateway.waiting_room.waiting() == 0 && gateway.left() == left);
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn a_body_that_arrives_during_the_wait_is_forwarded_and_so_is_the_next_request() {
    let upstream = Upstream::ok();
    let policy = "limits: [{by: global, algorithm: leaky-queue, rate: 20/second, queue: {length: 9}}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let large = "x".repeat(100_000);
    for (head, body) in [
        ("content-length: 5\r\n\r\nhe", "llo".to_owned()),
        ("transfer-encoding: chunked\r\n\r\n5\r\nhe", "llo\r\n0\r\n\r\n".to_owned()),
        ("content-length: 100000\r\n\r\n", large.clone()),
    ] {
        let before = upstream.seen().len();
        assert_eq!(gateway.get("/").status(), 200);
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{head}"));
        client.send(format!("{body}{GET}"));
        assert_eq!((client.answer().status(), client.answer().status()), (200, 200), "{head}");
        let seen = upstream.seen();
        assert_eq!(seen.len(), before + 3);
        let expected = if body == large { &*large } else { "hello" };
        assert!(seen[before + 1].text() == expected && seen[before + 1].is_whole, "{head}");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "clients leave after a while")]
fn clients_that_leave_at_random_while_they_wait_gain_no_request() {
    const RATE: u64 = 50;
    let upstream = Upstream::ok();
    let policy = format!(
        "limits: [{{by: global, algorithm: leaky-queue, rate: {RATE}/second, queue: {{length: 10}}}}]"
    );
    let gateway = Behind::new(&upstream).limited(&policy).serve();
    let (clock, served) = (SystemClock::new(), AtomicUsize::new(0));
    let begun = clock.now();
    thread::scope(|scope| {
        for seed in 0..20 {
            let (gateway, served) = (&gateway, &served);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..20 {
                    let mut client = gateway.connect();
                    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n";
                    client.send([GET, &GET.repeat(2), post, &format!("{post}hello")][rng.usize(..4)]);
                    if rng.bool() {
                        thread::sleep(Duration::from_millis(rng.u64(..60)));
                    } else {
                        client.stop_sending();
                        served.fetch_add(usize::from(client.try_status() == Some(200)), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    eventually("no request waits", || gateway.waiting_room.waiting() == 0);
    let (took, seen) = (clock.now().since(begun), upstream.seen().len());
    let most = 1 + took.as_micros() * RATE / 1_000_000;
    assert!(u64::try_from(seen).unwrap() <= most, "{seen} requests in {took:?}");
    assert!(served.into_inner() <= seen);
    eventually("all places are free", || gateway.left() == 11);
}

#[test]
fn a_client_that_closes_its_sending_side_while_it_waits_has_left() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(SLOW).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let left = gateway.left();
    for head in [GET.to_owned(), GET.replace("GET", "HEAD"), GET.replace(" / ", " /slot ")] {
        let mut client = gateway.connect();
        client.send(head);
        eventually("it waits", || gateway.waiting_room.waiting() == 1);
        client.stop_sending();
        client.assert_closed();
        eventually("it has left", || gateway.waiting_room.waiting() == 0 && gateway.left() == left);
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn clients_that_are_not_watched_keep_their_turn_and_leave_no_place_or_slot_behind() {
    let upstream = Upstream::ok();
    let policy = "limits:
      - {name: queue, by: global, algorithm: leaky-queue, rate: 20/second, queue: {length: 9}}
      - {name: slots, by: global, slots: 1}";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    // The next request, its start, and a body that is longer than a buffer hide the end of the connection.
    let long = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999\r\n\r\n{}", "x".repeat(50_000));
    for request in [GET.repeat(2), format!("{GET}G"), long] {
        for resets in [false, true] {
            assert_eq!(gateway.get("/").status(), 200);
            let (held, before) = (gateway.waiting_room.held(), upstream.seen().len());
            let mut client = gateway.connect();
            if resets {
                client.reset_on_close();
            }
            client.send(&request);
            eventually("it waits", || gateway.waiting_room.held() > held);
            drop(client);
            eventually("no request waits", || gateway.waiting_room.waiting() == 0);
            eventually("its place and its slot are free", || {
                gateway.left() == 10 && gateway.free_slots() == 1
            });
            assert!(upstream.seen().len() <= before + 2, "{:?}", upstream.seen());
        }
    }
}

#[test]
fn a_body_whose_malformed_part_arrives_during_the_wait_is_no_next_request() {
    let policy = "limits: [{by: global, algorithm: leaky-queue, rate: 20/second, queue: {length: 9}}]";
    let inner = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for rest in ["fffffffffffffffff\r\n", "5\r\nhello!\r\n", "0\r\nno name\r\n\r\n"] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).limited(policy).serve();
        assert_eq!(gateway.get("/").status(), 200);
        let mut client = gateway.connect();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\n");
        eventually("it waits", || gateway.waiting_room.held() == 1);
        client.send(format!("ab\r\n{rest}0\r\n\r\n{inner}"));
        let answers = String::from_utf8(client.rest()).unwrap();
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{rest:?}: {answers}");
        assert!(answers.starts_with("HTTP/1.1 400 "), "{rest:?}: {answers}");
        assert!(upstream.seen().iter().skip(1).all(|it| !it.is_whole), "{rest:?}: {:?}", upstream.seen());
    }
}

#[test]
fn of_pipelined_requests_one_waits() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(SLOW).serve();
    let mut client = gateway.connect();
    client.send(GET.repeat(9));
    assert_eq!(client.answer().status(), 200);
    eventually("the second one waits", || gateway.waiting_room.waiting() == 1);
    assert_eq!((gateway.left(), gateway.waiting_room.held(), upstream.seen().len()), (2, 1, 1));
}

#[test]
fn a_request_that_waits_keeps_its_turn_when_the_policy_is_replaced_and_is_refunded_when_it_leaves() {
    let upstream = Upstream::ok();
    let policy = |more: &str| format!("{SLOW}\n  - {{name: all, by: global, bucket: 100/hour}}{more}");
    let gateway = Behind::new(&upstream).limited(&policy("")).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let left = gateway.left();
    let waiting = sent(gateway.address, 3);
    eventually("all of them wait", || gateway.waiting_room.waiting() == 3);
    gateway.limit_by(&policy("\n  - {name: more, by: global, bucket: 100/hour}"));
    assert_eq!((gateway.left(), gateway.get("/").status()), (0, 429), "the places are still taken");
    drop(waiting);
    eventually("all have left", || gateway.waiting_room.waiting() == 0 && gateway.left() == left);
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn a_request_in_line_for_a_slot_is_served_when_it_is_free_and_leaves_the_line_with_its_client() {
    let (upstream, go_on) = Upstream::released();
    let policy = "limits: [{name: line, by: global, slots: 1, queue: {length: 2, wait: 10m}}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let mut first = gateway.connect();
    first.send(GET);
    eventually("it is forwarded", || upstream.seen().len() == 1);
    let mut waiting = sent(gateway.address, 2);
    eventually("both wait", || gateway.waiting_room.waiting() == 2);
    assert_eq!(gateway.get("/").status(), 429, "the line is full");
    drop(waiting.remove(0));
    eventually("it has left", || gateway.waiting_room.waiting() == 1);
    go_on.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    eventually("the next is forwarded", || upstream.seen().len() == 2);
    assert_eq!(gateway.waiting_room.waiting(), 0);
    go_on.send(()).unwrap();
    let answer = waiting[0].answer();
    assert_eq!((answer.status(), answer.find("tollgate-decision").is_some()), (200, true));
    eventually("the slot is free", || gateway.left() == 1);
    assert_eq!(upstream.seen().len(), 2);
}

#[test]
fn a_request_in_line_waits_as_long_as_a_drain_permits_and_is_answered_then() {
    let (upstream, _go_on) = Upstream::released();
    let policy = "limits: [{name: line, by: global, slots: 1, queue: {length: 2, wait: 10m}}]";
    let gateway = Behind::new(&upstream).with("timeouts: {drain: 2s}").limited(policy).serve();
    let mut first = gateway.connect();
    first.send(GET);
    eventually("it is forwarded", || upstream.seen().len() == 1);
    let mut second = gateway.connect();
    second.send(GET);
    eventually("it waits", || gateway.waiting_room.waiting() == 1);
    let (clock, mut late) = (SystemClock::new(), gateway.connect());
    late.send("GET / HTTP/1.1\r\nhost: a\r\n");
    gateway.drainer.begin();
    let begun = clock.now();
    late.send("\r\n");
    for client in [&mut second, &mut late] {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.header("connection")), (503, "close"));
        assert_eq!((answer.header("retry-after"), answer.find("tollgate-decision")), ("1", None));
    }
    assert!(clock.now().since(begun) >= Span::from_secs(1), "a slot might have become free");
    assert_eq!((gateway.waiting_room.waiting(), upstream.seen().len()), (0, 1));
}

#[test]
fn a_more_important_request_takes_the_place_of_one_that_waits() {
    let upstream = Upstream::ok();
    let policy = format!("priorities: [{{name: critical, endpoint: /pay}}, {{name: normal}}]\n{SLOW}");
    let gateway = Behind::new(&upstream).with("caps: {waiting: 1}").limited(&policy).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let left = gateway.left();
    let mut normal = gateway.connect();
    normal.send("GET / HTTP/1.1\r\nhost: a\r\naccept: text/plain\r\n\r\n");
    eventually("it waits", || gateway.waiting_room.waiting() == 1);
    let mut critical = gateway.connect();
    critical.send(GET.replace(" / ", " /pay "));
    let displaced = normal.answer();
    assert_eq!((displaced.status(), displaced.header("content-type")), (429, "text/plain; charset=utf-8"));
    assert!(displaced.find("tollgate-decision").is_some() && displaced.find("retry-after").is_some());
    assert_eq!((gateway.waiting_room.displaced(), gateway.waiting_room.waiting()), (1, 1));
    // The last place of the queue is taken, so that of the displaced one is not given to others.
    assert_eq!(normal.get("/").status(), 429, "the connection goes on");
    drop(critical);
    eventually("its place is free", || gateway.waiting_room.waiting() == 0);
    assert!(gateway.left() <= left);
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn a_request_that_loses_its_place_gets_the_whole_refusal_while_its_body_arrives() {
    let upstream = Upstream::ok();
    let policy = format!("priorities: [{{name: critical, endpoint: /pay}}, {{name: normal}}]\n{SLOW}");
    for framing in ["content-length: 900000", "transfer-encoding: chunked"] {
        let gateway = Behind::new(&upstream).with("caps: {waiting: 1}").limited(&policy).serve();
        assert_eq!(gateway.get("/").status(), 200);
        let mut normal = gateway.connect();
        // More than the gateway reads before the turn of the request.
        let body = format!("10000\r\n{}", "x".repeat(0x10000));
        normal.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{body}"));
        eventually("it waits", || gateway.waiting_room.waiting() == 1);
        let mut critical = gateway.connect();
        critical.send(GET.replace(" / ", " /pay "));
        normal.answer().assert_problem(429);
        normal.assert_closed();
    }
}

#[test]
fn a_drain_serves_those_whose_turn_comes_in_time_and_answers_the_others() {
    let upstream = Upstream::script(|turn| turn.always(OK));
    let policy = "limits:
      - {name: short, endpoint: /short, by: global, algorithm: leaky-queue, rate: 2/second, queue: {length: 9}}
      - {name: long, endpoint: /long, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}";
    let gateway = Behind::new(&upstream).limited(policy).with("timeouts: {drain: 30m}").serve();
    let mut late = gateway.connect();
    assert_eq!((gateway.get("/short").status(), gateway.get("/long").status()), (200, 200));
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for (path, clients) in [("/short", &mut short), ("/long", &mut long)] {
        for _ in 0..3 {
            let mut client = gateway.connect();
            client.send(GET.replace(" / ", &format!(" {path} ")));
            clients.push(client);
        }
    }
    eventually("all are decided", || gateway.waiting_room.held() >= 6);
    gateway.drainer.begin();
    for client in &mut long {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.header("connection")), (503, "close"));
        assert_eq!(answer.header("retry-after"), "1");
        assert!(answer.text().contains("shutting down") && answer.find("tollgate-decision").is_some());
    }
    for client in &mut short {
        assert_eq!(client.answer().status(), 200);
    }
    let answer = late.ask(GET.replace(" / ", " /long "));
    assert_eq!(answer.status(), 503, "later requests follow the same rule");
    assert_eq!((gateway.waiting_room.waiting(), upstream.seen().len()), (0, 5));
    gateway.drainer.close_idle();
    drop((short, long, late));
    gateway.ended();
}

/// Starts nginx with one limit for all requests, in front of an upstream.
fn start_nginx(upstream: SocketAddr, rate: &str, limit: &str) -> Nginx {
    Nginx::start(
        &format!("limit_req_zone $server_name zone=all:1m rate={rate}; limit_req_status 429;"),
        &format!(
            "server_name all; location / {{ limit_req zone=all {limit}; proxy_pass http://{upstream}; }}"
        ),
    )
}

/// Sends a burst, and returns how many requests are answered with 200 and with 429. The others wait
/// for at least a minute.
fn burst(address: SocketAddr, count: usize, answered: usize) -> (usize, usize, Vec<Wire>) {
    let (sender, answers) = std::sync::mpsc::channel();
    let clients = sent(address, count);
    for client in &clients {
        let (mut twin, sender) = (client.twin(), sender.clone());
        thread::spawn(move || {
            if let Some(status) = twin.try_status() {
                let _over = sender.send(status);
            }
        });
    }
    // Ends the list if fewer answers come in time.
    drop(sender);
    let statuses: Vec<_> = answers.iter().take(answered).collect();
    let of = |status| statuses.iter().filter(|it| **it == status).count();
    (of(200), of(429), clients)
}

#[test]
fn the_same_arrivals_are_admitted_delayed_and_refused_as_by_nginx() {
    for (nginx, queue, immediate) in [
        ("burst=6", "{length: 6}", 1),
        ("burst=6 delay=4", "{length: 6, free: 4}", 5),
        ("burst=6 nodelay", "{length: 6, free: 6}", 7),
    ] {
        let upstream = Upstream::ok();
        let theirs = start_nginx(upstream.address, "1r/m", nginx);
        let policy =
            format!("limits: [{{by: global, algorithm: leaky-queue, rate: 1/minute, queue: {queue}}}]");
        let ours = Behind::new(&upstream).limited(&policy).serve();
        for address in [theirs.address, ours.address] {
            // Of twelve, seven are admitted. The second burst finds a full queue.
            let (passed, refused, _waiting) = burst(address, 12, immediate + 5);
            assert_eq!((passed, refused), (immediate, 5), "{nginx}, {address}");
            let (passed, refused, _none) = burst(address, 4, 4);
            assert_eq!((passed, refused), (0, 4), "{nginx}, {address}");
        }
        assert_eq!(ours.waiting_room.waiting(), 7 - immediate);
    }
}

/// Sends requests from threads of their own, and returns their statuses with the times of their
/// responses.
fn timed_burst(address: SocketAddr, count: usize) -> (Timestamp, Vec<(u16, Timestamp)>) {
    let (clock, start) = (SystemClock::new(), Arc::new(Barrier::new(count + 1)));
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (clock, start, mut client) = (clock.clone(), Arc::clone(&start), Wire::to(address));
            thread::spawn(move || {
                start.wait();
                let status = client.get("/").status();
                (status, clock.now())
            })
        })
        .collect();
    let begun = clock.now();
    start.wait();
    (begun, threads.into_iter().map(|it| it.join().unwrap()).collect())
}

#[test]
fn no_delayed_response_comes_before_its_time_from_nginx_or_the_gateway() {
    const LENGTH: usize = 6;
    const FREE: usize = 2;
    const GAP: Span = Span::from_millis(100);
    let upstream = Upstream::ok();
    let theirs = start_nginx(upstream.address, "10r/s", "burst=6 delay=2");
    let policy =
        "limits: [{by: global, algorithm: leaky-queue, rate: 10/second, queue: {length: 6, free: 2}}]";
    let ours = Behind::new(&upstream).limited(policy).serve();
    for address in [theirs.address, ours.address] {
        // When the last request of the first burst starts, the free places are still taken. nginx rounds
        // to milliseconds.
        for min_admitted in [LENGTH + 1, LENGTH - FREE - 1] {
            let (begun, answers) = timed_burst(address, 12);
            let mut admitted: Vec<_> = answers.iter().filter(|it| it.0 == 200).map(|it| it.1).collect();
            admitted.sort_unstable();
            let refused = answers.iter().filter(|it| it.0 == 429).count();
            assert_eq!(admitted.len() + refused, 12, "{address}");
            // A slow machine sends them apart, so that more are admitted.
            assert!(admitted.len() >= min_admitted, "{address}: {answers:?}");
            for (number, at) in admitted.iter().enumerate() {
                let turn = GAP.as_micros() * u64::try_from(number.saturating_sub(FREE)).unwrap();
                // nginx counts in milliseconds.
                let slack = Span::from_millis(2);
                assert!(at.since(begun) + slack >= Span::from_micros(turn), "{address}: {number}");
            }
        }
    }
}
