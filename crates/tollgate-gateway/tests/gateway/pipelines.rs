//! Requests that arrive together, in pieces, or with bodies that look like requests: every request is read once, in
//! order, by the parser that it belongs to.

use crate::support::{Behind, ONCE, Turn, Upstream, eventually};

/// Requests of every kind: some are served by the gateway itself, the others by hyper.
const KINDS: [(&str, &str); 10] = [
    ("GET", "x-a: b\r\n\r\n"),
    ("POST", "content-length: 3\r\n\r\nabc"),
    ("POST", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    ("POST", "Transfer-Encoding: Chunked\r\n\r\n1;a=b\r\na\r\n2\r\nbc\r\n0\r\nx-t: 1\r\n\r\n"),
    ("PURGE", "\r\n"),
    ("GET", "te: trailers\r\n\r\n"),
    ("PUT", "content-length: 0\r\n\r\n"),
    ("GET", "cookie: a\r\ncookie: b\r\n\r\n"),
    ("DELETE", "connection: keep-alive\r\n\r\n"),
    ("POST", "trailer: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n"),
];

/// All ordered pairs of kinds, and their start lines with the bodies that the upstream has to see.
fn pipeline() -> (String, Vec<(String, &'static str)>) {
    let (mut bytes, mut expected) = (String::new(), Vec::new());
    for (one, first) in KINDS.iter().enumerate() {
        for (other, second) in KINDS.iter().enumerate() {
            for (place, (method, rest)) in [first, second].into_iter().enumerate() {
                let start = format!("{method} /{one}/{other}/{place} HTTP/1.1");
                bytes.extend([start.as_str(), "\r\nhost: a\r\n", *rest]);
                expected
                    .push((start, if rest.contains("abc") || rest.contains("bc\r\n0") { "abc" } else { "" }));
            }
        }
    }
    (bytes, expected)
}

#[track_caller]
fn check_pieces(sizes: &[usize]) {
    let (bytes, expected) = pipeline();
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    let mut sending = client.twin();
    let pieces: Vec<usize> = sizes.to_vec();
    let sender = std::thread::spawn(move || {
        let (mut rest, mut round) = (bytes.as_bytes(), 0);
        while !rest.is_empty() {
            let size = pieces[round % pieces.len()].min(rest.len());
            sending.send(&rest[..size]);
            (rest, round) = (&rest[size..], round + 1);
        }
    });
    for (start, _) in &expected {
        assert_eq!(client.answer().status(), 200, "{start} in pieces of {sizes:?}");
    }
    sender.join().unwrap();
    let seen: Vec<_> = upstream.seen().iter().map(|it| (it.start.clone(), it.text())).collect();
    let expected: Vec<_> = expected.into_iter().map(|(start, body)| (start, body.to_owned())).collect();
    assert_eq!(seen, expected, "pieces of {sizes:?}");
}

#[test]
fn pipelined_requests_reach_the_upstream_in_order_whatever_serves_them() {
    check_pieces(&[usize::MAX]);
    check_pieces(&[1_000]);
    check_pieces(&[17, 3, 101]);
    check_pieces(&[1]);
}

#[test]
fn bodies_of_refused_requests_are_not_requests() {
    let inner = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    let length = inner.len();
    let chunked = format!("{length:x}\r\n{inner}\r\n0\r\n\r\n");
    let long = length + 1;
    for (framing, body, is_complete) in [
        (format!("content-length: {length}"), inner.to_owned(), true),
        ("transfer-encoding: chunked".to_owned(), chunked.clone(), true),
        // Incomplete or malformed bodies: the connection ends.
        (format!("content-length: {long}"), inner.to_owned(), false),
        ("transfer-encoding: chunked".to_owned(), inner.to_owned(), false),
        ("transfer-encoding: chunked".to_owned(), chunked.replace("\r\n0\r\n\r\n", "\r\n"), false),
        ("content-length: 1048576".to_owned(), inner.to_owned(), false),
    ] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).with("http1: native").limited(ONCE).serve();
        let mut client = gateway.connect();
        assert_eq!(client.get("/first").status(), 200);
        let request = format!("POST /refused HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{body}");
        let refusal = client.ask(&request);
        assert_eq!(refusal.status(), 429, "{framing}");
        if is_complete && refusal.find("connection") != Some("close") {
            assert_eq!(client.get("/next").status(), 429, "{framing}: the connection is in step");
        } else {
            client.send(inner);
            client.assert_closed();
        }
        assert_eq!(upstream.seen().len(), 1, "{framing}: {:?}", upstream.seen());
    }
}

#[test]
fn a_chunked_upload_in_pieces_of_one_byte_arrives_as_it_is() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    let body = "5\r\nhello\r\n001;x=\"\t;\"\r\n,\r\n6\r\n world\r\n0\r\na: b\r\nc:\r\n\r\n";
    let request = format!("PUT /up HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}");
    for byte in request.as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.answer().status(), 200);
    assert_eq!(client.get("/next").status(), 200);
    let seen = upstream.seen();
    assert_eq!((seen[0].text().as_str(), seen[0].is_whole), ("hello, world", true));
    assert_eq!(seen[0].find("content-length"), None);
    assert_eq!(seen[0].header("transfer-encoding"), "chunked");
    assert_eq!(seen[1].start, "GET /next HTTP/1.1");
}

#[test]
fn a_malformed_chunk_ends_the_connection_and_the_upload() {
    let inner = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for bad in [
        "5 \r\nhello\r\n",
        "5\r\nhello!\r\n",
        "00000000000000005\r\nhello\r\n",
        "0\r\nno name\r\n\r\n",
        "0\r\n\n",
    ] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).with("http1: native").serve();
        let mut client = gateway.connect();
        client.send(format!(
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n{bad}0\r\n\r\n{inner}"
        ));
        let answers = String::from_utf8(client.rest()).unwrap();
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{bad:?}: {answers}");
        assert!(answers.starts_with("HTTP/1.1 400 "), "{bad:?}: {answers}");
        assert!(answers.contains("connection: close\r\n"), "{bad:?}: {answers}");
        assert!(upstream.seen().iter().all(|it| !it.is_whole), "{bad:?}: {:?}", upstream.seen());
        assert_eq!(gateway.get("/").status(), 200);
        eventually("only the last request is whole", || {
            upstream.seen().iter().filter(|it| it.is_whole).count() == 1
        });
    }
}

#[test]
fn a_response_that_ends_with_a_reset_is_not_complete() {
    let upstream = Upstream::script(|turn: &mut Turn| {
        // The body arrives after the first half of the response.
        let _ = turn.wire.head();
        turn.wire.send("HTTP/1.1 200 OK\r\nx: y\r\n\r\nthe first half");
        // The gateway has passed the bytes on.
        let _ = turn.wire.until(b"go");
        turn.wire.reset_on_close();
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n");
    let first = client.until(b"half").unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200 OK\r\n"));
    client.send("go");
    let rest = client.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&rest));
}

#[test]
fn an_upstream_that_answers_early_does_not_get_the_next_request_as_body() {
    let upstream = Upstream::script(|turn: &mut Turn| {
        // Answers before the body has arrived, and reads on.
        while turn.wire.head().is_some() {
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let gateway = Behind::new(&upstream).with("http1: native").serve();
    let mut client = gateway.connect();
    client.send("POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: 70\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send(format!("{:70}", "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"));
    client.assert_closed();
    assert_eq!(gateway.get("/next").status(), 200);
    assert_eq!(upstream.connections(), 2, "a connection with half a request is not used again");
}

#[test]
fn lengths_of_empty_responses_do_not_reach_the_client() {
    for answer in [
        "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
        "HTTP/1.1 204 x\r\ntransfer-encoding: chunked\r\n\r\n",
    ] {
        let upstream = Upstream::always(answer);
        let gateway = Behind::new(&upstream).with("http1: native").serve();
        let mut client = gateway.connect();
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!((answer.status(), answer.find("content-length")), (204, None));
            assert_eq!(answer.find("transfer-encoding"), None);
        }
    }
}
