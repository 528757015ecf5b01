//! Connections on both sides are reused while they are usable.

use std::sync::mpsc;

use crate::support::{Behind, OK, TEST_TIMEOUT, Upstream, eventually};

#[test]
fn requests_in_turn_use_one_connection_on_either_side() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    for path in ["/one", "/two", "/three"] {
        let answer = client.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    }
    assert_eq!(gateway.get("/four").status(), 200, "another client");
    let paths: Vec<_> = upstream.seen().into_iter().map(|it| it.start).collect();
    assert_eq!(paths, ["/one", "/two", "/three", "/four"].map(|it| format!("GET {it} HTTP/1.1")));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn without_keep_alive_no_upstream_connection_is_kept() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("keep_alive: 0").serve();
    assert_eq!(gateway.get("/").status(), 200);
    assert_eq!(gateway.get("/").status(), 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn an_upstream_that_closes_after_each_answer_is_connected_to_again() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok",
        "HTTP/1.0 200 OK\r\n\r\nok",
    ] {
        let upstream = Upstream::script(move |turn| {
            turn.request();
            turn.wire.send(answer);
        });
        let gateway = Behind::new(&upstream).serve();
        let mut client = gateway.connect();
        for _ in 0..3 {
            let got = client.get("/");
            assert_eq!((got.status(), got.text().as_str(), got.is_whole), (200, "ok", true), "{answer:?}");
            assert_eq!(got.find("connection"), None, "what concerns the upstream's connection stays there");
        }
        assert_eq!(upstream.connections(), 3);
    }
}

/// The upstream closes its first connection after reading the request, like a server whose idle
/// timeout ends at that moment.
#[test]
fn a_request_on_a_stale_connection_is_retried() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send(OK);
        if turn.number == 0 {
            // Read, and never answered.
            turn.request();
        } else {
            turn.always(OK);
        }
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(client.get("/again").status(), 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn requests_that_may_have_executed_are_not_retried() {
    let post = "POST /pay HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n10";
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send(OK);
        turn.request();
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    client.ask(post).assert_problem(502);
    let payments = upstream.seen().iter().filter(|it| it.start.contains("/pay")).count();
    assert_eq!(payments, 1);
}

#[test]
fn idle_connections_that_were_closed_are_not_used() {
    let (close, closing) = mpsc::channel::<()>();
    let closing = std::sync::Mutex::new(closing);
    let upstream = Upstream::script(move |turn| {
        turn.request();
        turn.wire.send(OK);
        if turn.number == 0 {
            // Closes between two requests, when the test says so.
            let _ = closing.lock().unwrap().recv();
        } else {
            turn.always(OK);
        }
    });
    let gateway = Behind::new(&upstream).serve();
    assert_eq!(gateway.get("/").status(), 200);
    drop(close);
    // Every request is answered, whether or not the gateway has noticed the close.
    let upload = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    eventually("the old connection is left alone", || {
        assert!(matches!(gateway.get("/").status(), 200));
        upstream.connections() == 2
    });
    assert_eq!(gateway.connect().ask(upload).status(), 200);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let upstream = Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            let path = request.start.split(' ').nth(1).unwrap().to_owned();
            turn.wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len()));
        }
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    let requests: Vec<_> = (0..20)
        .map(|it| match it % 2 {
            0 => format!("GET /{it} HTTP/1.1\r\nhost: a\r\n\r\n"),
            _ => format!("POST /{it} HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc"),
        })
        .collect();
    client.send(requests.concat());
    for number in 0..20 {
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    assert_eq!(upstream.seen().len(), 20);
}

#[test]
fn http_1_0_is_served_and_closed_unless_it_asks_otherwise() {
    let upstream =
        Upstream::always("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    let answer = client.ask("GET / HTTP/1.0\r\n\r\n");
    // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
    assert_eq!((answer.status(), answer.find("transfer-encoding"), &*answer.text()), (200, None, "hello"));
    client.assert_closed();
    let seen = upstream.only();
    assert_eq!(seen.start, "GET / HTTP/1.1");
    assert_eq!((seen.header("host"), seen.header("via")), ("localhost", "1.0 tollgate"));

    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.ask("GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n");
        assert_eq!((answer.status(), answer.header("connection")), (200, "keep-alive"));
    }
}

#[test]
fn a_client_that_asks_to_close_is_closed() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    let answer = client.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert_eq!(answer.text(), "ok");
    client.assert_closed();
    assert_eq!(upstream.only().find("connection"), None, "the upstream's connection goes on");
}

/// The rest of an upload that was already answered must not reach another request.
#[test]
fn a_connection_with_an_unfinished_upload_is_not_reused() {
    let (noticed, closed) = mpsc::channel();
    let noticed = std::sync::Mutex::new(noticed);
    let upstream = Upstream::script(move |turn| {
        if turn.number > 0 {
            return turn.always(OK);
        }
        // Reads only the head.
        turn.wire.head();
        turn.wire.send(OK);
        turn.wire.rest();
        noticed.lock().unwrap().send(()).unwrap();
    });
    let gateway = Behind::new(&upstream).serve();
    let mut busy = gateway.connect();
    let answer = busy.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nx");
    assert_eq!(answer.text(), "ok");
    assert_eq!(gateway.get("/").status(), 200, "on another connection");
    assert_eq!(upstream.connections(), 2);
    closed.recv_timeout(TEST_TIMEOUT).unwrap();
    drop(busy);
}

#[test]
fn a_connection_is_used_again_when_the_upload_has_ended() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    for _ in 0..50 {
        for body in ["content-length: 2\r\n\r\nhi", "transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"]
        {
            let answer = client.ask(format!("POST / HTTP/1.1\r\nhost: a\r\n{body}"));
            assert_eq!(answer.status(), 200);
        }
    }
    assert_eq!(upstream.seen().len(), 100);
    assert_eq!(upstream.connections(), 1);
}
