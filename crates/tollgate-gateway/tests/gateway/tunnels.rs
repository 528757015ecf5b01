//! Connections that upgrade to another protocol, such as WebSocket.

use crate::support::{Behind, OK, ONE_SLOT, Upstream, eventually};

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-key: x\r\n\r\n";

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// An upstream that greets, then echoes until the other side closes.
fn echo() -> Upstream {
    Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            if request.find("upgrade").is_none() {
                turn.wire.send(OK);
                continue;
            }
            turn.wire.send(format!("{SWITCHED}hello "));
            while let Some(line) = turn.wire.until(b"\n") {
                turn.wire.send(line);
            }
            turn.wire.send("bye");
            return;
        }
    })
}

#[test]
fn bytes_pass_both_ways_after_an_upgrade() {
    let upstream = echo();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    // The first line is sent together with the head.
    client.send(format!("{UPGRADE}one\n"));
    let answer = client.head().unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!((answer.header("connection"), answer.header("upgrade")), ("upgrade", "websocket"));
    assert_eq!(client.exactly(10), b"hello one\n");
    client.send("two\n");
    assert_eq!(client.exactly(4), b"two\n");
    let seen = upstream.only();
    assert_eq!((seen.header("connection"), seen.header("upgrade")), ("upgrade", "websocket"));
    client.stop_sending();
    assert_eq!(client.rest(), b"bye", "each side closes for itself");
}

#[test]
fn a_refused_upgrade_is_an_ordinary_response() {
    let upstream = Upstream::always("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.ask(UPGRADE);
        assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn requests_after_a_refused_upgrade_are_read_as_requests() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let get = "GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut client = gateway.connect();
    client.send(format!("{UPGRADE}{get}"));
    let answers = String::from_utf8(client.rest()).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    // A body with two lengths is as ambiguous here as anywhere.
    let twice = "POST /smuggled HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi";
    let mut client = gateway.connect();
    client.send(format!("{UPGRADE}{twice}{get}"));
    let answers = String::from_utf8(client.rest()).unwrap();
    assert_eq!((answers.matches(" 200 ").count(), answers.matches(" 400 ").count()), (1, 1), "{answers}");
    assert_eq!(upstream.seen().len(), 3);
}

#[test]
fn upgrades_to_http_are_not_forwarded() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let answer = gateway.connect().ask(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n",
    );
    assert_eq!(answer.status(), 200);
    let seen = upstream.only();
    for gone in ["connection", "upgrade", "http2-settings"] {
        assert_eq!(seen.find(gone), None);
    }
}

#[test]
fn an_upgrade_that_was_not_requested_is_a_failure() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send(SWITCHED);
        turn.wire.rest();
    });
    let gateway = Behind::new(&upstream).serve();
    gateway.get("/").assert_problem(502);
    // HTTP/1.0 has no upgrades.
    gateway.connect().ask(UPGRADE.replace("HTTP/1.1", "HTTP/1.0")).assert_problem(502);
}

#[test]
fn an_upgrade_to_another_protocol_than_requested_is_a_failure() {
    for chosen in ["upgrade: h2c\r\n", "upgrade: other\r\n", ""] {
        let upstream = Upstream::script(move |turn| {
            turn.request();
            turn.wire
                .send(format!("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{chosen}\r\n"));
            turn.wire.assert_closed();
        });
        let gateway = Behind::new(&upstream).serve();
        for protocols in ["websocket", "foo, websocket"] {
            let request = UPGRADE.replace("upgrade: websocket", &format!("upgrade: {protocols}"));
            gateway.connect().ask(request).assert_problem(502);
        }
    }
}

#[test]
fn of_several_protocols_the_upstream_may_choose() {
    let upstream = echo();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send(UPGRADE.replace("upgrade: websocket", "upgrade: foo/1, WebSocket"));
    assert_eq!(client.head().unwrap().status(), 101);
    assert_eq!(client.exactly(6), b"hello ");
    assert_eq!(upstream.only().header("upgrade"), "foo/1, WebSocket");
}

#[test]
fn a_tunnel_is_not_cut_off_when_the_gateway_drains() {
    let upstream = echo();
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send(UPGRADE);
    assert_eq!(client.head().unwrap().status(), 101);
    assert_eq!(client.exactly(6), b"hello ");
    gateway.drainer.begin();
    gateway.drainer.close_idle();
    eventually("new connections are refused", || std::net::TcpStream::connect(gateway.address).is_err());
    for _ in 0..100 {
        client.send("still here\n");
        assert_eq!(client.exactly(11), b"still here\n");
    }
    drop(client);
    gateway.ended();
}

#[test]
fn a_tunnel_holds_its_slot_as_long_as_it_is_open() {
    let upstream = echo();
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    let mut client = gateway.connect();
    client.send(UPGRADE);
    assert_eq!(client.head().unwrap().status(), 101);
    assert_eq!(client.exactly(6), b"hello ");
    assert_eq!(gateway.get("/").status(), 429);
    client.send("still here\n");
    assert_eq!(client.exactly(11), b"still here\n");
    assert_eq!(gateway.get("/").status(), 429);
    drop(client);
    eventually("the slot is free", || gateway.get("/").status() == 200);
}
