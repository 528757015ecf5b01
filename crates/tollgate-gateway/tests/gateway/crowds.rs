//! Many clients, clients that disconnect, and clients that send garbage.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::support::{Behind, OK, TEST_TIMEOUT, Upstream, Wire, eventually};

/// The seed of the random bytes; a failure prints the bytes.
const SEED: u64 = 0x7011_6a7e;

#[test]
fn two_thousand_idle_connections_do_not_block_others() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("timeouts: {client_headers: 1h, client_idle: 1h}").serve();
    let mut idle: Vec<_> = (0..2_000).map(|_| gateway.connect()).collect();
    for half in idle.iter_mut().step_by(2) {
        half.send("GET / HTTP/1.1\r\nhost: a\r\n");
    }
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status(), 200);
    }
    for half in idle.iter_mut().step_by(2) {
        assert_eq!(half.ask("\r\n").status(), 200);
    }
}

#[test]
fn connections_beyond_the_cap_wait() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {connections: 2}").serve();
    let (mut one, mut two, mut three) = (gateway.connect(), gateway.connect(), gateway.connect());
    assert_eq!((one.get("/").status(), two.get("/").status()), (200, 200));
    three.send("GET /third HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((one.get("/").status(), two.get("/").status()), (200, 200));
    assert!(upstream.seen().iter().all(|it| !it.start.contains("third")));
    drop(one);
    assert_eq!(three.answer().status(), 200);
}

#[test]
fn a_disconnect_affects_only_its_own_request() {
    let (closed, noticed) = std::sync::mpsc::channel();
    let closed = std::sync::Mutex::new(closed);
    let upstream = Upstream::script(move |turn| {
        while let Some(request) = turn.request() {
            if !request.is_whole {
                return closed.lock().unwrap().send(()).unwrap();
            }
            turn.wire.send(OK);
        }
    });
    let gateway = Behind::new(&upstream).serve();
    let mut other = gateway.connect();
    for framing in ["content-length: 100\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        assert_eq!(other.get("/").status(), 200);
        let before = upstream.connections();
        let mut client = gateway.connect();
        let mut busy = gateway.connect();
        // Two at once, so that one needs a new connection.
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}"));
        busy.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}"));
        eventually("both are forwarded", || upstream.connections() > before);
        drop((client, busy));
        for _ in 0..2 {
            noticed.recv_timeout(TEST_TIMEOUT).unwrap();
        }
        assert_eq!(other.get("/").status(), 200);
    }
}

/// Generates fragments of responses, and noise.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 101 Go\r\n\r\n",
        "HTTP/1.0 204 No\r\n",
        "content-length: ",
        "3\r\n",
        "transfer-encoding: chunked\r\n",
        "connection: close\r\n",
        "\r\n",
        "\r",
        "\n",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "abc",
        ": ",
        "x: y\r\n",
    ]);
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let piece = prop_oneof![6 => words.prop_map(|it| it.as_bytes().to_vec()), 1 => noise];
    let start = prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n"]);
    (start, prop::collection::vec(piece, 0..12))
        .prop_map(|(start, rest)| [start.as_bytes(), &rest.concat()].concat())
}

#[test]
fn clients_get_at_most_one_response_whatever_the_upstream_sends() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let saying = Arc::clone(&said);
    let upstream = Upstream::script(move |turn| {
        turn.request();
        let bytes: Vec<u8> = saying.lock().unwrap().clone();
        turn.wire.send(bytes);
    });
    let gateway = Behind::new(&upstream).with("timeouts: {idle: 5s, headers: 5s}").serve();
    proptest!(seeded(), |(bytes in answers())| {
        *said.lock().unwrap() = bytes;
        let mut client: Wire = gateway.connect();
        client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let answer = client.head().unwrap();
        prop_assert!((200..1000).contains(&answer.status()), "{:?}", answer);
        client.rest();
    });
    *said.lock().unwrap() = OK.as_bytes().to_vec();
    eventually("it is well again", || gateway.get("/").status() == 200);
}

fn seeded() -> ProptestConfig {
    ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Generates fragments of HTTP, so that random input passes the first byte.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "GET ",
        "POST ",
        "/",
        "*",
        "http://a/",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "host: a\r\n",
        "\r\n",
        "\r",
        "\n",
        "content-length: ",
        "3\r\n",
        "transfer-encoding: chunked\r\n",
        "0\r\n\r\n",
        "5\r\nhello\r\n",
        ": ",
        ",",
        "connection: close\r\n",
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "expect: 100-continue\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\0\0\0\x04\0\0\0\0\0",
        "\0\0\x01\x01\x05\0\0\0\x01\u{2}",
    ]);
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let piece = prop_oneof![4 => words.prop_map(|it| it.as_bytes().to_vec()), 1 => noise];
    prop::collection::vec(piece, 0..24).prop_map(|it| it.concat())
}

#[test]
fn arbitrary_bytes_neither_hang_nor_stop_the_listener() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream)
        .with("timeouts: {client_headers: 5s, client_idle: 5s, idle: 5s, headers: 5s}")
        .serve();
    proptest!(seeded(), |(bytes in pieces(), closes in any::<bool>(), listens in any::<bool>())| {
        let mut client: Wire = gateway.connect();
        client.send(&bytes);
        if closes {
            client.stop_sending();
        }
        if closes && listens {
            client.rest();
        }
        drop(client);
        prop_assert_eq!(gateway.get("/good").status(), 200);
    });
}
