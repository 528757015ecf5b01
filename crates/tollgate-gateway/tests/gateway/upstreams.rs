//! Several upstreams, and failing upstreams.

use std::net::TcpListener;
use std::sync::{Mutex, mpsc};

use crate::support::{Behind, OK, Upstream, eventually};

fn origins(upstreams: &[&Upstream]) -> Vec<String> {
    upstreams.iter().map(|it| format!("http://{}", it.address)).collect()
}

/// Returns a port without a listener.
fn closed_port() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn the_upstream_with_the_least_to_do_is_chosen() {
    let held = || {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let upstream = Upstream::script(move |turn| {
            while let Some(request) = turn.request() {
                if request.start.contains("/slow") {
                    let _ = may_go_on.lock().unwrap().recv();
                }
                turn.wire.send(OK);
            }
        });
        (upstream, go_on)
    };
    let ((one, release_one), (two, release_two)) = (held(), held());
    let gateway = Behind::all(&origins(&[&one, &two])).serve();
    let mut slow = gateway.connect();
    slow.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is forwarded", || one.seen().len() + two.seen().len() == 1);
    let (busy, free) = if one.seen().len() == 1 { (&one, &two) } else { (&two, &one) };
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status(), 200);
    }
    assert_eq!((busy.seen().len(), free.seen().len()), (1, 10));
    drop((release_one, release_two));
    assert_eq!(slow.answer().status(), 200);
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status(), 200);
    }
    assert_eq!((busy.seen().len(), free.seen().len()), (6, 15), "equals take turns");
}

#[test]
fn while_one_upstream_is_down_the_others_serve() {
    let (dead, live) = (closed_port(), Upstream::ok());
    let all = [format!("http://{dead}"), format!("http://{}", live.address)];
    let gateway = Behind::all(&all).with("eject: {after: 2, for: 1h}").serve();
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status(), 200);
    }
    assert_eq!(live.seen().len(), 10);
    let back = Upstream::on(TcpListener::bind(dead).unwrap(), |turn| turn.always(OK));
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status(), 200);
    }
    assert_eq!(back.connections(), 0, "its hour is not over");
}

#[test]
fn an_ejected_upstream_returns() {
    let (dead, live) = (closed_port(), Upstream::ok());
    let all = [format!("http://{dead}"), format!("http://{}", live.address)];
    let gateway = Behind::all(&all).with("eject: {after: 1, for: 20ms}").serve();
    for _ in 0..4 {
        assert_eq!(gateway.get("/").status(), 200);
    }
    let back = Upstream::on(TcpListener::bind(dead).unwrap(), |turn| turn.always(OK));
    eventually("it is asked again", || {
        assert_eq!(gateway.get("/").status(), 200);
        back.seen().len() >= 3
    });
}

#[test]
fn an_upstream_that_closes_early_is_ejected_after_repeated_failures() {
    let (broken, live) = (Upstream::script(|turn| drop(turn.request())), Upstream::ok());
    let gateway = Behind::all(&origins(&[&broken, &live])).with("eject: {after: 3, for: 1h}").serve();
    let failed = (0..40).filter(|_| gateway.get("/").status() == 502).count();
    assert_eq!((failed, broken.seen().len(), live.seen().len()), (3, 3, 37));
}

#[test]
fn an_invalid_response_is_a_bad_gateway() {
    for garbage in [
        "",
        "\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let upstream = Upstream::script(move |turn| {
            turn.request();
            turn.wire.send(garbage);
        });
        let gateway = Behind::new(&upstream).serve();
        let answer = gateway.get("/");
        answer.assert_problem(502);
        assert!(!answer.text().contains("127.0.0.1"), "problems do not name upstreams");
        assert_eq!(upstream.seen().len(), 1, "{garbage:?}");
    }
}

#[test]
fn an_endless_head_is_a_bad_gateway() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send("HTTP/1.1 200 OK\r\n");
        while turn.wire.try_send("x-more: and more and more and more\r\n".repeat(1000)) {}
    });
    Behind::new(&upstream).serve().get("/").assert_problem(502);
}

#[test]
fn a_body_that_breaks_off_does_not_look_whole() {
    for half in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nx\r\n",
    ] {
        let upstream = Upstream::script(move |turn| {
            if turn.number > 0 {
                return turn.always(OK);
            }
            turn.request();
            turn.wire.send(half);
        });
        let gateway = Behind::new(&upstream).serve();
        let mut client = gateway.connect();
        let answer = client.get("/");
        assert_eq!((answer.status(), answer.is_whole), (200, false), "{half:?}");
        assert!("half".starts_with(&answer.text()), "{answer:?}");
        client.assert_closed();
        assert_eq!(gateway.get("/").status(), 200, "a broken connection is not used again");
    }
}

#[test]
fn an_upstream_that_closes_its_half_has_answered_all_the_same() {
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send(OK);
        turn.wire.stop_sending();
        turn.wire.rest();
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "ok");
    }
}

#[test]
fn when_every_upstream_is_down_callers_get_502() {
    let gateway =
        Behind::all(&[format!("http://{}", closed_port()), format!("http://{}", closed_port())]).serve();
    let mut client = gateway.connect();
    for _ in 0..10 {
        client.get("/").assert_problem(502);
    }
}

#[test]
fn a_retry_over_another_protocol_keeps_the_host() {
    // Configured for HTTP/2, it closes the connection.
    let (other, live) = (Upstream::script(|_| {}), Upstream::ok());
    let all = [format!("h2c://{}", other.address), format!("http://{}", live.address)];
    let gateway = Behind::all(&all).serve();
    for _ in 0..10 {
        let status = gateway.get("/").status();
        assert!(matches!(status, 200 | 502), "{status}");
    }
    assert!(!live.seen().is_empty());
    for seen in live.seen() {
        assert_eq!((seen.start.as_str(), seen.header("host")), ("GET / HTTP/1.1", "example.com"));
    }
}
