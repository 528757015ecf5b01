//! The cost of refusals, and how long slots are held.

use std::sync::{Mutex, mpsc};

use crate::support::{Behind, OK, ONCE, ONE_SLOT, ONE_SLOT_RELEASED, Upstream, eventually};

#[test]
fn a_refusal_costs_no_upstream_connection() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream)
        .limited("limits: [{endpoint: /closed, by: global, bucket: 1/hour}, {endpoint: /open, by: global, bucket: 9/hour}]")
        .serve();
    let first = gateway.get("/open");
    assert_eq!((first.status(), first.find("ratelimit").is_some()), (200, true), "{first:?}");
    assert_eq!(gateway.get("/closed").status(), 200);
    let before = (upstream.connections(), upstream.seen().len());
    let mut client = gateway.connect();
    for _ in 0..50 {
        let answer = client.get("/closed");
        answer.assert_problem(429);
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
    }
    assert_eq!((upstream.connections(), upstream.seen().len()), before);
}

#[test]
fn a_client_in_the_middle_of_a_large_upload_learns_that_it_is_refused() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(ONCE).serve();
    assert_eq!(gateway.get("/").status(), 200);
    for framing in ["content-length: 30000000", "transfer-encoding: chunked"] {
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        // Sends more than all buffers in between can hold before reading the response.
        for _ in 0..300 {
            client.send("186a0\r\n");
            client.send(vec![b'x'; 100_000]);
            client.send("\r\n");
        }
        assert_eq!(client.answer().status(), 429, "{framing}");
    }
    assert_eq!(upstream.seen().len(), 1);
}

/// A body that looks like a request stays a body, whether it is read or not.
#[test]
fn the_body_of_a_refused_request_is_never_taken_for_the_next_one() {
    let upstream = Upstream::ok();
    let policy = "limits: [{endpoint: /closed, by: global, bucket: 1/hour}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    assert_eq!(gateway.get("/closed").status(), 200);
    let body = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for (framing, body) in [
        (format!("content-length: {}", body.len()), body.to_owned()),
        ("transfer-encoding: chunked".to_owned(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())),
        ("transfer-encoding: chunked".to_owned(), body.to_owned()),
        (format!("expect: 100-continue\r\ncontent-length: {}", body.len()), body.to_owned()),
    ] {
        let mut client = gateway.connect();
        client.send(format!("POST /closed HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{body}"));
        assert_eq!(client.answer().status(), 429);
        client.send("GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let rest = String::from_utf8(client.rest()).unwrap();
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 200"), "{rest}");
    }
    assert!(upstream.seen().iter().all(|it| !it.start.contains("smuggled")), "{:?}", upstream.seen());
}

/// Whether the only slot is taken.
fn is_taken(gateway: &crate::support::ServedGateway) -> bool {
    match gateway.get("/other").status() {
        429 => true,
        200 => false,
        other => panic!("{other}"),
    }
}

#[test]
fn a_slot_is_held_until_the_last_byte_of_the_answer() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = Upstream::script(move |turn| {
        while let Some(request) = turn.request() {
            if !request.start.contains("/slow") {
                turn.wire.send(OK);
                continue;
            }
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst");
            may_go_on.lock().unwrap().recv().unwrap();
            turn.wire.send("last");
        }
    });
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    let mut client = gateway.connect();
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    assert_eq!(client.exactly(5), b"first");
    assert!(is_taken(&gateway));
    go_on.send(()).unwrap();
    assert_eq!(client.exactly(4), b"last");
    eventually("the slot is free", || !is_taken(&gateway));
}

#[test]
fn where_the_service_stops_on_hangup_a_slot_is_free_again_when_the_client_is_gone() {
    for begun in [false, true] {
        let (noticed, gone) = mpsc::channel::<()>();
        let noticed = Mutex::new(noticed);
        let upstream = Upstream::script(move |turn| {
            while let Some(request) = turn.request() {
                if !request.start.contains("/slow") {
                    turn.wire.send(OK);
                    continue;
                }
                if begun {
                    turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst");
                }
                // The gateway has canceled the request.
                turn.wire.assert_closed();
                let _ = noticed.lock().unwrap().send(());
                return;
            }
        });
        let gateway = Behind::new(&upstream).limited(ONE_SLOT_RELEASED).serve();
        let mut client = gateway.connect();
        client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("it is forwarded", || upstream.seen().len() == 1);
        if begun {
            assert_eq!(client.head().unwrap().status(), 200);
        }
        assert!(is_taken(&gateway));
        drop(client);
        gone.recv_timeout(crate::support::TEST_TIMEOUT).unwrap();
        eventually("the slot is free", || !is_taken(&gateway));
    }
}

const BY_KEY: &str = "limits: [{name: each, by: api_key, bucket: 1/hour}]";

#[test]
fn callers_are_counted_by_headers_that_the_upstream_sees() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(BY_KEY).serve();
    for (key, status) in [("one", 200), ("two", 429), ("three", 429)] {
        let answer = gateway.connect().ask(format!(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: X-Api-Key\r\nx-api-key: {key}\r\nauthorization: Bearer real\r\n\r\n"
        ));
        assert_eq!(answer.status(), status, "{key}");
    }
    let seen = upstream.only();
    assert_eq!((seen.find("x-api-key"), seen.header("authorization")), (None, "Bearer real"));
}

#[test]
fn a_key_in_two_headers_is_not_a_new_key() {
    for decoy_first in [true, false] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).limited(BY_KEY).serve();
        let statuses: Vec<_> = (0..4)
            .map(|decoy| {
                let (decoy, real) =
                    (format!("x-api-key: decoy{decoy}\r\n"), "x-api-key: real\r\n".to_owned());
                let keys = if decoy_first { decoy + &real } else { real + &decoy };
                gateway.connect().ask(format!("GET / HTTP/1.1\r\nhost: a\r\n{keys}\r\n")).status()
            })
            .collect();
        assert_eq!(statuses, [200, 429, 429, 429]);
        // A caller with only the real key is not affected.
        let honest = "GET / HTTP/1.1\r\nhost: a\r\nx-api-key: real\r\n\r\n";
        assert_eq!(gateway.connect().ask(honest).status(), 200);
    }
}
