//! Costs that are known when the answer is there: the upstream says them, and the gateway
//! settles while it passes the answer on.

use std::net::TcpListener;
use std::sync::{Mutex, mpsc};

use crate::support::{Behind, Message, ServedGateway, Upstream, eventually};

/// A thousand a day, of which a request reserves a hundred.
fn tokens(settle: &str) -> String {
    format!("limits: [{{by: global, bucket: 1000/day, cost: {{reserve: 100, settle: '{settle}'}}}}]")
}

#[track_caller]
fn settles(gateway: &ServedGateway, left: u64) {
    eventually(&format!("{left} are left"), || gateway.left() == left);
}

/// What is left of a thousand after one request that is answered so. What the client gets.
#[track_caller]
fn check(settle: &str, answer: &str, left: u64) -> Message {
    let upstream = Upstream::always(answer);
    let gateway = Behind::new(&upstream).limited(&tokens(settle)).serve();
    let mut client = gateway.connect();
    let told =
        client.ask("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nx-used: 1\r\naccept-encoding: gzip\r\n\r\n");
    settles(&gateway, left);
    told
}

fn chunked(kind: &str, chunks: &[&str], trailers: &str) -> String {
    let chunks: Vec<_> = chunks.iter().map(|it| format!("{:x}\r\n{it}\r\n", it.len())).collect();
    let chunks = chunks.concat();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntrailer: x-used\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n{trailers}\r\n"
    )
}

#[test]
fn a_header_of_the_upstream_says_what_a_request_cost() {
    let told = check("response:X-Used", "HTTP/1.1 200 OK\r\nx-used: 250\r\ncontent-length: 2\r\n\r\nok", 750);
    assert_eq!((told.header("x-used"), told.text().as_str()), ("250", "ok"), "nothing is taken away");
    assert_eq!(told.header("x-ratelimit-remaining"), "900", "the answer tells what was known when it began");
    // The client's own header is not the answer's.
    check("response:X-Used", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 900);
    check("response:X-Used", "HTTP/1.1 204 No Content\r\nx-used: 250\r\n\r\n", 750);
}

#[test]
fn a_trailer_of_the_upstream_says_it_too() {
    let told = check("response:X-Used", &chunked("text/plain", &["he", "llo"], "x-used: 250\r\n"), 750);
    assert_eq!((told.text().as_str(), told.is_whole), ("hello", true));
    assert_eq!(told.trailers, [("x-used".to_owned(), "250".to_owned())]);
}

#[test]
fn json_and_streams_of_events_pass_unchanged_and_are_read_on_the_way() {
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
fn an_upstream_that_could_compress_the_number_away_is_asked_not_to() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(&tokens("json:usage.total")).serve();
    gateway.connect().ask("GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip, br\r\n\r\n");
    assert_eq!(upstream.only().header("accept-encoding"), "identity");
}

#[test]
fn nothing_is_held_back_and_a_stream_that_is_cut_off_is_settled_by_what_it_said() {
    for (settle, left) in [("json:usage.total", 960), ("response:x-used", 900), ("time:1h", 999)] {
        let (cut, told) = mpsc::channel::<()>();
        let told = Mutex::new(told);
        let upstream = Upstream::script(move |turn| {
            turn.request();
            let event = "data: {\"usage\":{\"total\":40}}\n\n";
            turn.wire.send(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            );
            turn.wire.send(format!("{:x}\r\n{event}\r\n", event.len()));
            told.lock().unwrap().recv().unwrap();
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
fn a_client_that_is_gone_has_cost_what_is_known() {
    for (settle, left) in [("json:usage.total", 900), ("time:1h", 999)] {
        let upstream = Upstream::script(|turn| {
            turn.request();
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"usage\":");
            // The gateway has nobody left to fetch it for.
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
fn an_upstream_that_is_not_reached_gives_the_reserve_back_and_one_that_breaks_off_does_not() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for settle in ["json:usage.total", "response:x-used", "time:1h"] {
        let gateway = Behind::all(&[format!("http://{nobody}")]).limited(&tokens(settle)).serve();
        gateway.get("/").assert_problem(502);
        settles(&gateway, 1_000);
    }
    let upstream = Upstream::script(|turn| drop(turn.request()));
    let gateway = Behind::new(&upstream).limited(&tokens("response:x-used")).serve();
    gateway.get("/").assert_problem(502);
    settles(&gateway, 900);
}
