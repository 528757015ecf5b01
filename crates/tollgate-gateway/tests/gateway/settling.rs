//! Costs that the upstream states in its response: the gateway settles them while it forwards the
//! response.

use std::net::TcpListener;
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::support::{Behind, Message, ServedGateway, Upstream, eventually};

/// A policy with 1,000 units a day, of which a request reserves 100.
fn tokens(settle: &str) -> String {
    format!("limits: [{{by: global, bucket: 1000/day, cost: {{reserve: 100, settle: '{settle}'}}}}]")
}

#[track_caller]
fn settles(gateway: &ServedGateway, left: u64) {
    eventually(&format!("{left} are left"), || gateway.left() == left);
}

/// Checks the remaining units of 1,000 after one request with this response, and returns the
/// response. A client that accepts trailers is served by hyper in any case, and one that does not is not.
#[track_caller]
fn check(settle: &str, answer: &str, left: u64) -> Message {
    let [_, response] = ["", "te: trailers\r\n"].map(|te| {
        let upstream = Upstream::always(answer);
        let gateway = Behind::new(&upstream).limited(&tokens(settle)).serve();
        let lines = format!("{te}x-used: 1\r\naccept-encoding: gzip\r\n");
        let response = gateway.connect().ask(format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n"));
        settles(&gateway, left);
        response
    });
    response
}

fn chunked(kind: &str, chunks: &[&str], trailers: &str) -> String {
    let chunks: Vec<_> = chunks.iter().map(|it| format!("{:x}\r\n{it}\r\n", it.len())).collect();
    let chunks = chunks.concat();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntrailer: x-used\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n{trailers}\r\n"
    )
}

#[test]
fn a_response_header_settles_the_cost() {
    let response =
        check("response:X-Used", "HTTP/1.1 200 OK\r\nx-used: 250\r\ncontent-length: 2\r\n\r\nok", 750);
    assert_eq!((response.header("x-used"), response.text().as_str()), ("250", "ok"), "nothing is taken away");
    assert_eq!(
        response.header("x-ratelimit-remaining"),
        "900",
        "the answer tells what was known when it began"
    );
    // A header of the request is not a header of the response.
    check("response:X-Used", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 900);
    check("response:X-Used", "HTTP/1.1 204 No Content\r\nx-used: 250\r\n\r\n", 750);
}

#[test]
fn a_response_trailer_settles_the_cost() {
    let response = check("response:X-Used", &chunked("text/plain", &["he", "llo"], "x-used: 250\r\n"), 750);
    assert_eq!((response.text().as_str(), response.is_whole), ("hello", true));
    assert_eq!(response.trailers, [("x-used".to_owned(), "250".to_owned())]);
}

#[test]
fn json_and_event_streams_settle_the_cost_and_pass_unchanged() {
    let body = r#"{"text":"a \"quoted\" word","usage":{"input":50,"total":250}}"#;
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(check("json:usage.total", &whole, 750).text(), body);
    let (one, other) = body.split_at(37);
    assert_eq!(check("json:usage.total", &chunked("application/json", &[one, other], ""), 750).text(), body);
    let events = [
        "data: {\"text\":\"a\",\"usage\":null}\n\nda",
        "ta: {\"usage\":{\"total\":250}}\n\n",
        "data: [DONE]\n\n",
    ];
    assert_eq!(
        check("json:usage.total", &chunked("text/event-stream", &events, ""), 750).text(),
        events.concat()
    );
    let large = format!(r#"{{"text":"{}","usage":{{"total":250}}}}"#, "x".repeat(3_000_000));
    let chunks: Vec<_> = large.as_bytes().chunks(65_536).map(|it| std::str::from_utf8(it).unwrap()).collect();
    assert_eq!(check("json:usage.total", &chunked("application/json", &chunks, ""), 750).text(), large);
}

#[test]
fn a_cost_is_found_in_a_response_that_arrives_byte_by_byte() {
    let events =
        ["data: {\"usage\":null}\n\nda", "ta: {\"usage\":{\"total\":250}}\r\n\r\n", "data: [DONE]\n\n"];
    for (settle, answer) in [
        ("response:x-used", chunked("text/plain", &["he", "llo"], "a: b\r\nx-used: 250\r\n")),
        ("json:usage.total", chunked("application/json", &["{\"usage\":{\"tot", "al\":250}}"], "")),
        ("json:usage.total", chunked("text/event-stream", &events, "")),
    ] {
        let upstream = Upstream::script(move |turn| {
            turn.request();
            answer.as_bytes().chunks(1).for_each(|byte| turn.wire.send(byte));
        });
        let gateway = Behind::new(&upstream).limited(&tokens(settle)).serve();
        let response = gateway.get("/");
        assert_eq!((response.status(), response.is_whole), (200, true), "{settle}");
        settles(&gateway, 750);
    }
}

#[test]
fn costs_that_cannot_be_are_no_gain() {
    for (used, left) in
        [("-250", 900), ("18446744073709551615", 0), ("1e9", 900), ("99999999999999999999999", 0)]
    {
        let answer = format!("HTTP/1.1 200 OK\r\nx-used: {used}\r\ncontent-length: 2\r\n\r\nok");
        check("response:x-used", &answer, left);
    }
    // The trailer replaces the header: a cost is settled once.
    let twice = chunked("text/plain", &["a"], "x-used: 250\r\n").replacen("\r\n", "\r\nx-used: 10\r\n", 1);
    check("response:x-used", &twice, 750);
}

#[test]
fn clients_that_leave_at_random_pay_for_every_request_that_the_upstream_saw_and_for_no_other() {
    const RESERVE: u64 = 10;
    const COST: u64 = 3;
    let upstream =
        Upstream::always(format!("HTTP/1.1 200 OK\r\nx-used: {COST}\r\ncontent-length: 2\r\n\r\nok"));
    let policy = format!(
        "limits:
          - {{by: global, bucket: 9000/day, cost: {{reserve: {RESERVE}, settle: 'response:x-used'}}}}
          - {{by: global, algorithm: leaky-queue, rate: 200/second, queue: {{length: 20}}}}"
    );
    let gateway = Behind::new(&upstream).limited(&policy).serve();
    thread::scope(|scope| {
        for seed in 0..20 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..20 {
                    let mut client = gateway.connect();
                    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
                    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
                    let part = &post[..post.len() - 1];
                    match rng.u8(..4) {
                        0 => client.send([get, post][rng.usize(..2)]),
                        leaving => {
                            client.send([get, post, part][rng.usize(..3)]);
                            match leaving {
                                1 => client.reset_on_close(),
                                2 => client.stop_sending(),
                                _ => {}
                            }
                            continue;
                        }
                    }
                    assert!(matches!(client.try_status(), Some(200 | 429)));
                }
            });
        }
    });
    eventually("no request waits", || gateway.waiting_room.waiting() == 0);
    let is_paid = || {
        // A request whose client leaves while its connection is opened keeps its reserve.
        let (used, seen) = (9_000 - gateway.left(), upstream.seen().len() as u64);
        let (min, max) = (COST * seen, RESERVE * (seen + upstream.connections() as u64));
        // A unit is refilled in ten seconds.
        min <= used + 2 && used <= max
    };
    eventually("all requests are paid for", is_paid);
}

#[test]
fn requests_ask_for_uncompressed_responses_when_the_cost_is_in_json() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(&tokens("json:usage.total")).serve();
    gateway.connect().ask("GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip, br\r\n\r\n");
    assert_eq!(upstream.only().header("accept-encoding"), "identity");
}

#[test]
fn streams_are_not_delayed_and_a_broken_stream_settles_the_last_cost() {
    for (settle, left) in [("json:usage.total", 960), ("response:x-used", 900), ("time:1h", 999)] {
        let (cut, may_cut) = mpsc::channel::<()>();
        let may_cut = Mutex::new(may_cut);
        let upstream = Upstream::script(move |turn| {
            turn.request();
            let event = "data: {\"usage\":{\"total\":40}}\n\n";
            turn.wire.send(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            );
            turn.wire.send(format!("{:x}\r\n{event}\r\n", event.len()));
            may_cut.lock().unwrap().recv().unwrap();
        });
        let gateway = Behind::new(&upstream).limited(&tokens(settle)).serve();
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(client.until(b"\"total\":40}}").is_some(), "it is here before the upstream goes on");
        assert_eq!(gateway.left(), 900, "not before the end");
        cut.send(()).unwrap();
        client.rest();
        settles(&gateway, left);
    }
}

#[test]
fn a_disconnect_settles_the_known_cost() {
    for (settle, left) in [("json:usage.total", 900), ("time:1h", 999)] {
        let upstream = Upstream::script(|turn| {
            turn.request();
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"usage\":");
            // The gateway has canceled the request.
            turn.wire.assert_closed();
        });
        let gateway = Behind::new(&upstream).limited(&tokens(settle)).serve();
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(client.until(b"usage").is_some());
        drop(client);
        settles(&gateway, left);
    }
}

#[test]
fn a_client_that_leaves_while_its_request_waits_gets_its_reserve_back() {
    let upstream = Upstream::ok();
    let queue = "{name: queue, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}";
    for settle in ["json:usage.total", "response:x-used", "time:1h"] {
        let policy = tokens(settle).replace("}}]", &format!("}}}}, {queue}]"));
        let gateway = Behind::new(&upstream).limited(&policy).serve();
        assert_eq!(gateway.get("/").status(), 200);
        let left = if settle == "time:1h" { 999 } else { 900 };
        settles(&gateway, left);
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        settles(&gateway, left - 100);
        drop(client);
        settles(&gateway, left);
    }
}

#[test]
fn unreachable_upstreams_refund_the_reserve_and_broken_responses_do_not() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for settle in ["json:usage.total", "response:x-used", "time:1h"] {
        let gateway = Behind::all(&[format!("http://{closed}")]).limited(&tokens(settle)).serve();
        gateway.get("/").assert_problem(502);
        settles(&gateway, 1_000);
    }
    let upstream = Upstream::script(|turn| drop(turn.request()));
    let gateway = Behind::new(&upstream).limited(&tokens("response:x-used")).serve();
    gateway.get("/").assert_problem(502);
    settles(&gateway, 900);
}
