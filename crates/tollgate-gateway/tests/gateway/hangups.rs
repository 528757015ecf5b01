//! Callers that disconnect: slots bound the work of an upstream that does not stop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use http::Request;

use crate::support::{
    Behind, Feed, OK, ONE_SLOT, ServedGateway, TEST_TIMEOUT, Turn, Upstream, Wire, eventually, http2,
    wait_for,
};

const TWO_SLOTS: &str = "limits: [{name: slots, by: global, slots: 2}]";
const GET: &str = "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n";

/// Work that continues until `finish`, whatever its callers do.
#[derive(Clone, Default)]
struct Work(Arc<(AtomicUsize, AtomicUsize, Mutex<bool>, Condvar)>);

impl Work {
    /// Blocks until `finish`.
    fn run(&self) {
        let (running, most, done, notice) = &*self.0;
        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        let done = done.lock().unwrap();
        let waited = notice.wait_timeout_while(done, TEST_TIMEOUT, |done| !*done).unwrap();
        running.fetch_sub(1, Ordering::SeqCst);
        drop(waited);
    }

    fn finish(&self) {
        *self.0.2.lock().unwrap() = true;
        self.0.3.notify_all();
    }

    fn running(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    /// The maximum number of concurrent runs.
    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// Creates an upstream that works on each request and reads nothing meanwhile.
fn working() -> (Upstream, Work) {
    working_by(|turn, work| {
        while turn.request().is_some() {
            work.run();
            turn.wire.send(OK);
        }
    })
}

/// Creates an upstream with a script that works.
fn working_by(script: impl Fn(&mut Turn, &Work) + Send + Sync + 'static) -> (Upstream, Work) {
    let work = Work::default();
    let its = work.clone();
    (Upstream::script(move |turn| script(turn, &its)), work)
}

/// Sends a request, waits until the upstream works on it, and disconnects.
fn hang_up_on(gateway: &ServedGateway, work: &Work, request: &str) {
    let before = work.running();
    let mut client = gateway.connect();
    client.send(request);
    eventually("the service works", || work.running() == before + 1);
    drop(client);
}

/// Checks that the slot stays taken after the gateway has noticed the disconnect.
#[allow(clippy::disallowed_methods, reason = "nothing happens, which cannot be waited for")]
fn stays_taken(gateway: &ServedGateway) {
    for _ in 0..20 {
        assert_eq!(gateway.left(), 0);
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "callers hang up after a while")]
fn callers_that_hang_up_start_no_more_work_than_there_are_slots() {
    let (upstream, work) = working();
    let gateway = Behind::new(&upstream).limited(TWO_SLOTS).serve();
    thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut client = gateway.connect();
                    client.send(GET);
                    thread::sleep(Duration::from_millis(4));
                }
            });
        }
    });
    // On a busy machine, all of them may leave before a request is forwarded.
    let patient = Mutex::new(Vec::new());
    eventually("both slots are taken", || {
        let is_full = work.running() == 2;
        if !is_full {
            let mut client = gateway.connect();
            client.send(GET);
            patient.lock().unwrap().push(client);
        }
        is_full
    });
    drop(patient);
    assert_eq!((work.most(), upstream.seen().len()), (2, 2), "300 callers");
    assert_eq!(gateway.get("/").status(), 429);
    work.finish();
    eventually("all slots are free", || gateway.left() == 2);
    assert_eq!(gateway.get("/").status(), 200);
    assert!(work.most() <= 2);
}

#[test]
fn streams_that_are_reset_start_no_more_work_than_there_are_slots() {
    let (upstream, work) = working();
    let gateway = Behind::new(&upstream).limited(TWO_SLOTS).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        for _ in 0..300 {
            let request = Request::get(format!("http://{}/slow", gateway.address));
            let answer = client.requests.send_request(request.body(Feed::nothing()).unwrap());
            // Dropping the future resets its stream.
            let _late = tokio::time::timeout(Duration::from_millis(4), answer).await;
        }
    });
    assert_eq!((work.most(), upstream.seen().len()), (2, 2));
    work.finish();
    eventually("all slots are free", || gateway.left() == 2);
}

#[test]
fn a_slot_is_held_until_the_service_has_answered_and_its_connection_is_used_again() {
    let (upstream, work) = working();
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    hang_up_on(&gateway, &work, GET);
    stays_taken(&gateway);
    work.finish();
    eventually("the slot is free", || gateway.left() == 1);
    assert_eq!(gateway.get("/").status(), 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_slot_is_free_when_the_service_closes_the_connection_itself() {
    let (upstream, work) = working_by(|turn, work| {
        turn.request();
        work.run();
    });
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    hang_up_on(&gateway, &work, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    stays_taken(&gateway);
    work.finish();
    eventually("the slot is free", || gateway.left() == 1);
}

#[test]
fn an_abandoned_response_holds_its_slot_until_its_end() {
    let (upstream, work) = working_by(|turn, work| {
        while turn.request().is_some() {
            turn.wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            work.run();
            turn.wire.send("4\r\nlast\r\n0\r\n\r\n");
        }
    });
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    let mut client = gateway.connect();
    client.send(GET);
    assert_eq!(client.head().unwrap().status(), 200);
    assert_eq!(client.exactly(10), b"5\r\nfirst\r\n");
    drop(client);
    stays_taken(&gateway);
    work.finish();
    eventually("the slot is free", || gateway.left() == 1);
    assert_eq!(gateway.get("/").text(), "firstlast");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn the_cost_in_an_abandoned_response_is_charged() {
    let (upstream, work) = working_by(|turn, work| {
        turn.request();
        turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"us");
        work.run();
        turn.wire.send("ed\":7}");
    });
    let policy = "limits: [{name: tokens, by: global, bucket: 100/day, cost: {settle: 'json:used'}}, \
                  {name: slots, by: global, slots: 1}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    hang_up_on(&gateway, &work, GET);
    assert_eq!(gateway.left(), 99, "the reserve");
    work.finish();
    eventually("the cost is charged", || gateway.left() == 93);
}

#[test]
fn the_cost_in_a_response_after_that_of_the_gateway_is_charged() {
    let policy = "limits: [{name: tokens, by: global, bucket: 1000/day, cost: {settle: 'json:status'}}, \
                  {name: slots, by: global, slots: 1}]";
    let upload = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    for (settings, end, status) in
        [("timeouts: {headers: 20ms}", "0\r\n\r\n", 504), ("caps: {body: 8}", "9\r\ntoo large\r\n", 413)]
    {
        let (upstream, work) = working_by(|turn, work| {
            turn.wire.head();
            work.run();
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"status\":7}");
        });
        let gateway = Behind::new(&upstream).with(settings).limited(policy).serve();
        let mut client = gateway.connect();
        client.send(upload);
        eventually("the service works", || work.running() == 1);
        client.send(end);
        // The body of this response has a status, too, which is not the cost.
        assert_eq!(client.answer().status(), status);
        assert_eq!((gateway.left(), gateway.free_slots()), (999, 0), "the reserve");
        work.finish();
        eventually("the cost is charged", || gateway.left() == 993 && gateway.free_slots() == 1);
    }
}

#[test]
fn the_cost_in_trailers_that_arrive_before_and_after_the_caller_has_left_is_charged() {
    let (upstream, work) = working_by(|turn, work| {
        turn.request();
        turn.wire.send(
            "HTTP/1.1 200 OK\r\ntrailer: x-used\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-us",
        );
        work.run();
        turn.wire.send("ed: 7\r\n\r\n");
    });
    let policy = "limits: [{name: tokens, by: global, bucket: 100/day, cost: {settle: 'response:x-used'}}, \
                  {name: slots, by: global, slots: 1}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let mut client = gateway.connect();
    client.send(GET);
    assert!(client.until(b"\r\n\r\n1\r\na\r\n").is_some());
    eventually("the service works", || work.running() == 1);
    drop(client);
    assert_eq!((gateway.left(), gateway.free_slots()), (99, 0), "the reserve");
    work.finish();
    eventually("the cost is charged", || gateway.left() == 93 && gateway.free_slots() == 1);
}

#[test]
fn a_request_whose_upload_is_cut_holds_its_slot_until_the_service_has_answered() {
    for framing in ["content-length: 10\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let (upstream, work) = working_by(|turn, work| {
            while turn.wire.head().is_some() {
                work.run();
                turn.wire.send(OK);
            }
        });
        let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
        hang_up_on(&gateway, &work, &format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}"));
        stays_taken(&gateway);
        // A caller that still listens is answered immediately, while the upstream is still working.
        work.finish();
        eventually("the slot is free", || gateway.left() == 1);
    }
}

#[test]
fn a_caller_whose_upload_fails_is_answered_immediately_and_its_slot_is_held() {
    let (upstream, work) = working_by(|turn, work| {
        turn.wire.head();
        work.run();
        turn.wire.send(OK);
    });
    let gateway = Behind::new(&upstream).with("caps: {body: 8}").limited(ONE_SLOT).serve();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    eventually("the service works", || work.running() == 1);
    client.send("9\r\ntoo large\r\n");
    assert_eq!(client.answer().status(), 413);
    stays_taken(&gateway);
    work.finish();
    eventually("the slot is free", || gateway.left() == 1);
}

#[test]
fn a_service_that_is_too_slow_for_the_gateway_holds_its_slot() {
    let (upstream, work) = working();
    let gateway = Behind::new(&upstream).with("timeouts: {headers: 20ms}").limited(ONE_SLOT).serve();
    assert_eq!(gateway.get("/slow").status(), 504);
    stays_taken(&gateway);
    assert_eq!(gateway.get("/slow").status(), 429);
    work.finish();
    eventually("the slot is free", || gateway.left() == 1);
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

#[test]
fn a_tunnel_whose_caller_is_gone_holds_its_slot_until_the_service_closes_its_end() {
    for speaks_on in [false, true] {
        let (upstream, work) = working_by(move |turn, work| {
            turn.request();
            turn.wire.send(format!("{SWITCHED}hello"));
            // Reads the end of the other side and ignores it.
            turn.wire.rest();
            if speaks_on {
                // The caller's socket answers with a reset.
                for _ in 0..3 {
                    turn.wire.send("still there?");
                }
            }
            work.run();
        });
        let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
        let mut client = gateway.connect();
        client.send(UPGRADE);
        assert_eq!(client.head().unwrap().status(), 101);
        assert_eq!(client.exactly(5), b"hello");
        drop(client);
        eventually("the service works on", || work.running() == 1);
        stays_taken(&gateway);
        work.finish();
        eventually("the slot is free", || gateway.left() == 1);
    }
}

/// Starts a service that never answers, and reports the end of its connection.
fn never_answering() -> (Upstream, Receiver<()>) {
    let (closed, ended) = mpsc::channel();
    let closed = Mutex::new(closed);
    let upstream = Upstream::script(move |turn| {
        turn.request();
        turn.wire.assert_closed();
        closed.lock().unwrap().send(()).unwrap();
    });
    (upstream, ended)
}

/// Hangs up after the request was forwarded, and waits until the gateway closes its connection to the service.
#[track_caller]
fn is_canceled(gateway: &ServedGateway, upstream: &Upstream, ended: &Receiver<()>) {
    let mut client = gateway.connect();
    client.send(GET);
    eventually("it is forwarded", || upstream.seen().len() == 1);
    drop(client);
    ended.recv_timeout(TEST_TIMEOUT).unwrap();
}

/// A slot that expires soon.
const SHORT: &str = "limits: [{name: slots, by: global, slots: 1, ttl: 300ms}]";

#[test]
fn a_service_that_never_answers_holds_its_slot_until_ttl_and_its_connection_no_longer() {
    let (upstream, ended) = never_answering();
    let gateway = Behind::new(&upstream).limited(SHORT).serve();
    is_canceled(&gateway, &upstream, &ended);
    eventually("the slot is free", || gateway.left() == 1);
}

#[test]
fn an_endless_abandoned_response_is_read_up_to_a_bound_and_its_slot_is_held() {
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, closed) = (Arc::clone(&sent), Arc::new(AtomicUsize::new(0)));
    let is_closed = Arc::clone(&closed);
    let upstream = Upstream::script(move |turn| {
        turn.request();
        turn.wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
        while turn.wire.try_send(&chunk) {
            counted.fetch_add(chunk.len(), Ordering::SeqCst);
        }
        closed.store(1, Ordering::SeqCst);
    });
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    let mut client = gateway.connect();
    client.send(GET);
    assert_eq!(client.head().unwrap().status(), 200);
    drop(client);
    eventually("the connection is closed", || is_closed.load(Ordering::SeqCst) == 1);
    // Includes the bytes in socket buffers.
    assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{sent:?}");
    stays_taken(&gateway);
}

#[test]
fn beyond_the_cap_the_service_is_canceled_and_the_slot_is_held_until_ttl() {
    let (upstream, ended) = never_answering();
    let gateway = Behind::new(&upstream).with("caps: {detached: 0}").limited(ONE_SLOT).serve();
    is_canceled(&gateway, &upstream, &ended);
    stays_taken(&gateway);
}

#[test]
fn a_caller_that_hangs_up_before_its_request_was_sent_frees_its_slot_immediately() {
    // A listener with a full backlog: connecting to it does not complete.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let _filling = Wire::to(address);
    let gateway = Behind::all(&[format!("http://{address}")])
        .with("timeouts: {connect: 60s}")
        .limited(ONE_SLOT)
        .serve();
    let mut client = gateway.connect();
    client.send(GET);
    eventually("the slot is taken", || gateway.left() == 0);
    drop(client);
    eventually("the slot is free", || gateway.left() == 1);
}

#[test]
fn the_end_of_the_gateway_does_not_wait_for_requests_without_a_caller() {
    let (upstream, work) = working();
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    hang_up_on(&gateway, &work, GET);
    stays_taken(&gateway);
    gateway.drainer.begin();
    gateway.drainer.close_idle();
    gateway.ended();
    assert_eq!(work.running(), 1, "it was not waited for");
    work.finish();
}

#[test]
fn without_slots_a_request_is_canceled_with_its_caller() {
    for policy in ["limits: []", "limits: [{by: global, bucket: 9/hour}]"] {
        let (upstream, ended) = never_answering();
        let gateway = Behind::new(&upstream).limited(policy).serve();
        is_canceled(&gateway, &upstream, &ended);
    }
}
