//! Bodies stream in both directions, however they end.

use std::sync::{Mutex, mpsc};

use crate::support::{Behind, OK, ONCE, Upstream};

#[test]
fn response_bytes_are_forwarded_before_the_response_ends() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = Upstream::script(move |turn| {
        turn.request();
        turn.wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        may_go_on.lock().unwrap().recv().unwrap();
        turn.wire.send("4\r\nlast\r\n0\r\n\r\n");
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    assert_eq!(client.until(b"first\r\n").unwrap(), b"5\r\nfirst\r\n");
    go_on.send(()).unwrap();
    assert_eq!(client.until(b"0\r\n\r\n").unwrap(), b"4\r\nlast\r\n0\r\n\r\n");
}

#[test]
fn request_bytes_are_forwarded_before_the_request_ends() {
    let (saw, seen) = mpsc::channel();
    let upstream = Upstream::script(move |turn| {
        let head = turn.wire.head().unwrap();
        saw.send(head.header("transfer-encoding").to_owned()).unwrap();
        saw.send(String::from_utf8(turn.wire.until(b"first\r\n").unwrap()).unwrap()).unwrap();
        let rest = turn.wire.until(b"0\r\n\r\n").unwrap();
        turn.wire.send(OK);
        saw.send(String::from_utf8(rest).unwrap()).unwrap();
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    assert_eq!(seen.recv().unwrap(), "chunked");
    assert_eq!(seen.recv().unwrap(), "5\r\nfirst\r\n");
    client.send("4;ext=1\r\nlast\r\n0\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    assert_eq!(seen.recv().unwrap(), "4\r\nlast\r\n0\r\n\r\n");
}

#[test]
fn large_bodies_arrive_as_they_were_sent() {
    let upstream = Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            turn.wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", request.body.len()));
            turn.wire.send(&request.body);
        }
    });
    let gateway = Behind::new(&upstream).serve();
    let body: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut client = gateway.connect();
    let chunks: Vec<u8> = body
        .chunks(77_777)
        .flat_map(|it| [format!("{:x}\r\n", it.len()).as_bytes(), it, b"\r\n"].concat())
        .chain(*b"0\r\n\r\n")
        .collect();
    let plain = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    for (head, sent) in [(plain, &body), (chunked, &chunks)] {
        client.send(head);
        client.send(sent);
        let answer = client.answer();
        assert!(answer.is_whole && answer.body == body, "{} bytes came back", answer.body.len());
    }
    let framing: Vec<_> = upstream.seen().iter().map(|it| it.find("content-length").is_some()).collect();
    assert_eq!(framing, [true, false]);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-down\r\n\r\n\
             4\r\nbody\r\n0\r\nx-down: 2\r\n\r\n",
        );
    });
    let gateway = Behind::new(&upstream).serve();
    let answer = gateway.connect().ask(
        "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: x-up\r\ntransfer-encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\nx-up: 1\r\n\r\n",
    );
    assert_eq!((answer.text().as_str(), answer.is_whole), ("body", true));
    assert_eq!(answer.trailers, [("x-down".to_owned(), "2".to_owned())]);
    let seen = upstream.only();
    assert_eq!((seen.text().as_str(), seen.header("te"), seen.header("trailer")), ("hi", "trailers", "x-up"));
    assert_eq!(seen.trailers, [("x-up".to_owned(), "1".to_owned())]);
}

const EXPECTING: &str = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";

#[test]
fn continue_is_sent_when_the_upstream_wants_the_body() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(ONCE).serve();
    let mut client = gateway.connect();
    client.send(EXPECTING);
    assert_eq!(client.answer().start, "HTTP/1.1 100 Continue");
    let answer = client.ask("body");
    assert_eq!(answer.status(), 200);
    let seen = upstream.only();
    assert_eq!((seen.text().as_str(), seen.find("expect")), ("body", None));

    let mut refused = gateway.connect();
    let answer = refused.ask(EXPECTING);
    assert_eq!(answer.status(), 429, "without a 100 before it");
    refused.assert_closed();
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn continue_is_not_sent_when_no_upstream_takes_the_body() {
    let gateway = Behind::all(&["http://127.0.0.1:1".to_owned()]).serve();
    gateway.connect().ask(EXPECTING).assert_problem(502);
}

#[test]
fn an_upstream_may_answer_before_the_request_ends() {
    let upstream = Upstream::script(|turn| {
        turn.wire.head();
        turn.wire.send("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
        turn.wire.stop_sending();
        turn.wire.rest();
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8000000\r\n\r\n");
    client.send(vec![b'x'; 300_000]);
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
}

/// Fields that arrive in trailers are too late to change the decision.
#[test]
fn trailers_cannot_override_the_head() {
    let settled = [
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
        "connection",
        "host",
        "content-length",
        "authorization",
    ];
    let names = ["x-ratelimit-remaining", "ratelimit", "retry-after", "connection", "set-cookie"];
    let lines = |names: &[&str]| names.iter().map(|it| [it, ": 1\r\n"].concat()).collect::<String>();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: grpc-status, {}\r\n\r\n\
         4\r\nbody\r\n0\r\n{}grpc-status: 0\r\n\r\n",
        names.join(", "),
        lines(&names),
    );
    let upstream = Upstream::always(answer);
    let gateway = Behind::new(&upstream).serve();
    let answer = gateway.connect().ask(format!(
        "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: grpc-status, {}\r\n\
         transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{}grpc-status: 0\r\n\r\n",
        settled.join(", "),
        lines(&settled),
    ));
    assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    assert_eq!(upstream.only().trailers, [("grpc-status".to_owned(), "0".to_owned())]);
}
