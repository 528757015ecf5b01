//! Graceful shutdown loses no request.

use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use crate::support::{Behind, OK, Upstream, eventually};

/// An upstream that answers `/slow` when the test says so.
fn held() -> (Upstream, mpsc::Sender<()>) {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = Upstream::script(move |turn| {
        while let Some(request) = turn.request() {
            if request.start.contains("/slow") {
                may_go_on.lock().unwrap().recv().unwrap();
            }
            turn.wire.send(OK);
        }
    });
    (upstream, go_on)
}

#[test]
fn draining_finishes_running_requests_and_answers_one_more() {
    let (upstream, go_on) = held();
    let gateway = Behind::new(&upstream).serve();
    let (mut slow, mut idle, mut silent) = (gateway.connect(), gateway.connect(), gateway.connect());
    assert_eq!(idle.get("/").find("connection"), None);
    assert_eq!(silent.get("/").status(), 200);
    slow.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is forwarded", || upstream.seen().len() == 3);

    gateway.drainer.begin();
    eventually("new connections are refused", || TcpStream::connect(gateway.address).is_err());
    let last = idle.get("/last");
    assert_eq!((last.status(), last.header("connection")), (200, "close"), "it was already on its way");
    idle.assert_closed();
    go_on.send(()).unwrap();
    let answer = slow.answer();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("ok", "close"));
    slow.assert_closed();

    gateway.drainer.close_idle();
    silent.assert_closed();
    drop((slow, idle, silent));
    gateway.ended();
}

#[test]
fn closing_idle_connections_does_not_affect_running_requests() {
    let (upstream, go_on) = held();
    let gateway = Behind::new(&upstream).serve();
    let (mut slow, mut idle) = (gateway.connect(), gateway.connect());
    assert_eq!(idle.get("/").status(), 200);
    slow.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is forwarded", || upstream.seen().len() == 2);
    gateway.drainer.begin();
    gateway.drainer.close_idle();
    idle.assert_closed();
    go_on.send(()).unwrap();
    assert_eq!(slow.answer().text(), "ok");
    slow.assert_closed();
    drop((slow, idle));
    gateway.ended();
}

/// A connection that the kernel has accepted is served.
#[test]
fn a_connection_opened_before_draining_is_served() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let mut clients: Vec<_> = (0..50).map(|_| gateway.connect()).collect();
    gateway.drainer.begin();
    for client in &mut clients {
        let answer = client.get("/");
        assert_eq!((answer.status(), answer.header("connection")), (200, "close"));
        client.assert_closed();
    }
    drop(clients);
    gateway.ended();
}
