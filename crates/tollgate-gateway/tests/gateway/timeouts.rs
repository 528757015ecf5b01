//! Timeouts apply to clients and upstreams.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::{
    Behind, Certificate, Feed, OK, ONE_SLOT_RELEASED, TEST_TIMEOUT, Upstream, Wire, eventually, http2,
    wait_for,
};

/// Repeats an action slowly until it fails.
#[allow(clippy::disallowed_methods, reason = "a slow peer; its speed does not decide the test")]
fn drip(mut say: impl FnMut() -> bool) {
    while say() {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connecting_to_an_upstream_times_out() {
    // A backlog of one that is never accepted.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let waiting = |_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let queue: Vec<_> = (0..4).map(waiting).collect();
    assert!(queue.iter().any(Option::is_none), "the queue is full");

    let gateway = Behind::all(&[format!("http://{address}")]).with("timeouts: {connect: 200ms}").serve();
    gateway.get("/").assert_problem(504);
    let live = Upstream::ok();
    let both = [format!("http://{address}"), format!("http://{}", live.address)];
    let gateway = Behind::all(&both).with("timeouts: {connect: 200ms}").serve();
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status(), 200, "the other one serves");
    }
}

#[test]
fn an_upstream_that_does_not_answer_times_out() {
    for begun in ["", "HTTP/1.1 200 OK\r\ncontent-"] {
        let (closed, noticed) = mpsc::channel();
        let closed = Mutex::new(closed);
        let upstream = Upstream::script(move |turn| {
            if turn.number > 0 {
                return turn.always(OK);
            }
            turn.request();
            turn.wire.send(begun);
            turn.wire.assert_closed();
            closed.lock().unwrap().send(()).unwrap();
        });
        let gateway =
            Behind::new(&upstream).with("timeouts: {headers: 600ms}").limited(ONE_SLOT_RELEASED).serve();
        let mut client = gateway.connect();
        client.get("/").assert_problem(504);
        noticed.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(client.get("/").status(), 200, "neither the connection nor the slot is lost");
    }
}

#[test]
fn a_stalled_response_is_aborted() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
        turn.wire.assert_closed();
    });
    let gateway = Behind::new(&upstream).with("timeouts: {idle: 200ms}").serve();
    let mut client = gateway.connect();
    let answer = client.get("/");
    assert_eq!((answer.text().as_str(), answer.is_whole), ("half", false));
    client.assert_closed();
}

#[test]
fn an_endless_response_is_aborted_after_the_total_timeout() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        drip(|| turn.wire.try_send("1\r\nx\r\n"));
    });
    let gateway = Behind::new(&upstream).with("timeouts: {idle: 10s, total: 1s}").serve();
    let answer = gateway.get("/");
    assert!(!answer.is_whole && !answer.body.is_empty());

    let silent = Upstream::script(|turn| drop((turn.request(), turn.wire.rest())));
    let gateway = Behind::new(&silent).with("timeouts: {total: 300ms}").serve();
    gateway.get("/").assert_problem(504);
}

const UPLOAD: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf";

#[test]
fn a_stalled_upload_is_the_fault_of_the_client() {
    // Whichever timeout is shorter, the upstream is neither blamed nor ejected.
    for timeouts in ["idle: 1s", "idle: 1s, headers: 600ms", "idle: 1s, headers: 1s", "total: 1s"] {
        let upstream = Upstream::ok();
        let gateway = Behind::all(&[format!("http://{}", upstream.address), "http://127.0.0.1:1".to_owned()])
            .with(&format!("timeouts: {{{timeouts}}}, eject: {{after: 1, for: 1h}}"))
            .serve();
        // The dead upstream is ejected first, so that every upload goes to the live one.
        (0..3).for_each(|_| assert_eq!(gateway.get("/").status(), 200));
        let mut client = gateway.connect();
        client.ask(UPLOAD).assert_problem(408);
        client.assert_closed();
        assert!(upstream.seen().iter().filter(|it| it.start.starts_with("POST")).all(|it| !it.is_whole));
        (0..3).for_each(|_| assert_eq!(gateway.get("/").status(), 200, "{timeouts}"));
    }
}

#[test]
fn a_slow_upload_may_take_longer_than_the_response_timeout() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("timeouts: {headers: 500ms}").serve();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 30\r\n\r\n");
    let mut left = 30;
    drip(|| {
        client.send("x");
        left -= 1;
        left > 0
    });
    assert_eq!(client.answer().status(), 200);
}

/// More bytes than the sockets between two ends can hold: bytes beyond that are buffered by the
/// gateway.
const MAX_BUFFERED_BYTES: usize = 64 << 20;

#[test]
fn a_client_that_reads_nothing_is_disconnected_and_nothing_is_buffered_for_it() {
    let (stopped, noticed) = mpsc::channel();
    let stopped = Mutex::new(stopped);
    let upstream = Upstream::script(move |turn| {
        if turn.request().is_some_and(|it| !it.start.contains("/endless")) {
            return turn.wire.send(OK);
        }
        turn.wire.send("HTTP/1.1 200 OK\r\n\r\n");
        let mut taken = 0;
        while turn.wire.try_send([0; 10_000]) {
            taken += 10_000;
        }
        stopped.lock().unwrap().send(taken).unwrap();
    });
    let timeouts = "timeouts: {idle: 200ms, client_headers: 1h}";
    let gateway = Behind::new(&upstream).with(timeouts).limited(ONE_SLOT_RELEASED).serve();
    let mut client = gateway.connect();
    client.send("GET /endless HTTP/1.1\r\nhost: a\r\n\r\n");
    let taken = noticed.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(taken < MAX_BUFFERED_BYTES, "{taken} bytes were buffered");
    eventually("its slot is free", || gateway.get("/").status() == 200);
}

#[test]
fn an_upstream_that_reads_nothing_of_an_upload_times_out() {
    let (over, is_over) = mpsc::channel::<()>();
    let is_over = Mutex::new(is_over);
    let upstream = Upstream::script(move |turn| {
        turn.wire.head();
        let _ = is_over.lock().unwrap().recv();
    });
    let gateway = Behind::new(&upstream).with("timeouts: {headers: 300ms, idle: 300ms}").serve();
    let stream = std::net::TcpStream::connect(gateway.address).unwrap();
    let mut sending = Wire::new(stream.try_clone().unwrap());
    let sender = thread::spawn(move || {
        sending.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {MAX_BUFFERED_BYTES}\r\n\r\n"));
        while sending.try_send([0; 10_000]) {}
    });
    let mut client = Wire::new(stream);
    client.answer().assert_problem(504);
    client.stop_sending();
    sender.join().unwrap();
    drop(over);
}

#[test]
fn an_incomplete_head_gets_a_408() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("timeouts: {client_headers: 200ms}").serve();
    for partial in ["GET / HT", "GET / HTTP/1.1\r\nhost: a\r\nx-more: ", "POST / HTTP/1.1\r\n"] {
        let mut client = gateway.connect();
        let answer = client.ask(partial);
        assert_eq!(answer.status(), 408, "{answer:?}");
        client.assert_closed();
    }
    // On a connection that has been used.
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nhost: ").status(), 408);
    client.assert_closed();
    // Occasional bytes do not extend the timeout.
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nx: ");
    drip(|| client.try_send("x"));
    // Neither does silence.
    gateway.connect().assert_closed();
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn idle_connections_are_closed() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("timeouts: {client_idle: 1s, client_headers: 1h}").serve();
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(client.get("/").status(), 200);
    client.assert_closed();

    // HTTP/2 clients get GOAWAY first.
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let request = http::Request::get("http://example.com/").body(Feed::nothing()).unwrap();
        assert_eq!(client.requests.send_request(request).await.unwrap().status(), 200);
        client.ended.await.unwrap().unwrap();
    });
    // An incomplete preface is not sufficient.
    let mut client = gateway.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.rest();
}

#[test]
fn the_timeouts_of_clients_pause_while_a_request_waits() {
    let upstream = Upstream::ok();
    let policy = "limits: [{by: global, algorithm: leaky-queue, rate: 30/minute, queue: {length: 9}}]";
    let timeouts = "timeouts: {client_idle: 1s, client_headers: 1s, idle: 1s, headers: 1s}";
    let gateway = Behind::new(&upstream).with(timeouts).limited(policy).serve();
    assert_eq!(gateway.get("/").status(), 200);
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhe");
    eventually("it waits for two seconds", || gateway.waiting_room.waiting() == 1);
    eventually("it is forwarded", || gateway.waiting_room.waiting() == 0);
    client.send("llo");
    assert_eq!(client.answer().status(), 200);
    client.assert_closed();
    assert_eq!(upstream.seen()[1].text(), "hello");
}

#[test]
fn an_incomplete_tls_handshake_times_out() {
    let upstream = Upstream::ok();
    let certificate = Certificate::of("localhost");
    let gateway =
        Behind::new(&upstream).with(&certificate.served()).with("timeouts: {client_headers: 200ms}").serve();
    for begun in ["", "\x16\x03\x01\x02\0\x01\0\x01"] {
        let mut client = gateway.connect();
        client.send(begun);
        client.assert_closed();
    }
    let offered = ["http/1.1"];
    assert_eq!(wait_for(certificate.get(gateway.address, &offered)).1, 200);
}

#[test]
fn an_upstream_that_stops_reading_an_upload_keeps_neither_connection() {
    let (closed, noticed) = mpsc::channel();
    let closed = Mutex::new(closed);
    let (given_up, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let upstream = Upstream::script(move |turn| {
        turn.wire.until(b"\r\n\r\n").unwrap();
        // Reads nothing more until the client has its response, then only to detect the end.
        wait.lock().unwrap().recv_timeout(TEST_TIMEOUT).unwrap();
        turn.wire.rest();
        closed.lock().unwrap().send(()).unwrap();
    });
    let gateway = Behind::new(&upstream).with("timeouts: {headers: 300ms}").serve();
    let mut client = gateway.connect();
    let size = 64 << 20;
    client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n"));
    let chunk = vec![b'x'; 64 << 10];
    thread::scope(|scope| {
        let mut sending = client.twin();
        scope.spawn(move || (0..size / chunk.len()).all(|_| sending.try_send(&chunk)));
        client.answer().assert_problem(504);
        given_up.send(()).unwrap();
        noticed.recv_timeout(TEST_TIMEOUT).expect("the upstream's connection is closed");
        client.assert_closed();
    });
}
