//! Requests that wait for a slot.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::support::{Behind, OK, ServedGateway, Upstream, Wire, eventually};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// One request runs, and three wait for up to an hour.
const ONE_SLOT: &str = "limits: [{name: db, by: global, slots: 1, queue: {length: 3, wait: 1h}}]";

/// An upstream that answers a request for each message.
fn working() -> (Upstream, Sender<()>) {
    let (go, gone): (Sender<()>, Receiver<()>) = channel();
    let gone = Arc::new(Mutex::new(gone));
    let upstream = Upstream::script(move |turn| {
        while turn.request().is_some() {
            if gone.lock().unwrap().recv().is_err() {
                return;
            }
            turn.wire.send(OK);
        }
    });
    (upstream, go)
}

/// Sends a request that runs, and `count` requests that wait.
fn crowd(gateway: &ServedGateway, upstream: &Upstream, count: usize) -> (Wire, Vec<Wire>) {
    let mut first = gateway.connect();
    first.send(GET);
    eventually("the first is forwarded", || upstream.seen().len() == 1);
    let mut others = Vec::new();
    for number in 1..=count {
        let mut client = gateway.connect();
        client.send(GET);
        others.push(client);
        eventually("it waits", || gateway.waiting_room.waiting() == number);
    }
    (first, others)
}

#[test]
fn requests_that_wait_for_a_slot_are_forwarded_one_after_the_other() {
    let (upstream, go) = working();
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    let (mut first, mut others) = crowd(&gateway, &upstream, 3);
    let refused = gateway.get("/");
    assert_eq!(refused.status(), 429, "the line is full");
    assert!(refused.find("retry-after").is_some());
    assert_eq!(upstream.seen().len(), 1);
    go.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    for (served, client) in (2..).zip(&mut others) {
        eventually("the next is forwarded", || upstream.seen().len() == served);
        assert_eq!(gateway.waiting_room.waiting(), 4 - served);
        go.send(()).unwrap();
        assert_eq!(client.answer().status(), 200);
    }
    eventually("the slot is free", || gateway.left() == 1);
}

#[test]
fn clients_that_leave_free_their_places_in_line() {
    let (upstream, go) = working();
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
    let (mut first, mut others) = crowd(&gateway, &upstream, 3);
    let mut last = others.pop().unwrap();
    drop(others);
    eventually("they have left", || gateway.waiting_room.waiting() == 1);
    go.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    go.send(()).unwrap();
    assert_eq!(last.answer().status(), 200);
    assert_eq!(upstream.seen().len(), 2);
}

#[test]
fn clients_that_leave_by_the_hundred_free_all_places_and_slots() {
    let (upstream, go) = working();
    let policy = "limits: [{name: db, by: global, slots: 1, queue: {length: 300, wait: 1h}}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let (mut first, none) = crowd(&gateway, &upstream, 0);
    assert!(none.is_empty());
    for round in 1..=3 {
        let mut clients: Vec<_> = (0..200).map(|_| gateway.connect()).collect();
        for client in &mut clients {
            client.send(GET);
        }
        eventually("all wait", || gateway.waiting_room.waiting() == 200);
        drop(clients);
        eventually("all have left", || gateway.waiting_room.waiting() == 0);
        assert_eq!(upstream.seen().len(), 1, "round {round}: none was forwarded");
    }
    go.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    eventually("the slot is free", || gateway.left() == 1);
}

#[test]
fn a_drain_lets_requests_wait_for_a_slot_and_forwards_those_that_get_one() {
    let (upstream, go) = working();
    // The requests wait for an hour, which is longer than the drain.
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).with("timeouts: {drain: 10m}").serve();
    let (mut first, mut others) = crowd(&gateway, &upstream, 2);
    gateway.drainer.begin();
    go.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    for (served, client) in (2..).zip(&mut others) {
        eventually("the next is forwarded", || upstream.seen().len() == served);
        go.send(()).unwrap();
        let answer = client.answer();
        assert_eq!((answer.status(), answer.header("connection")), (200, "close"));
    }
}

#[test]
fn requests_that_wait_for_a_slot_until_the_end_of_a_drain_are_answered_before_it() {
    let (upstream, go) = working();
    let gateway = Behind::new(&upstream).limited(ONE_SLOT).with("timeouts: {drain: 1s}").serve();
    let (mut first, mut others) = crowd(&gateway, &upstream, 2);
    gateway.drainer.begin();
    for client in &mut others {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.header("retry-after")), (503, "1"));
        assert!(answer.text().contains("shutting down"));
    }
    assert_eq!((gateway.waiting_room.waiting(), upstream.seen().len()), (0, 1));
    go.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn a_critical_request_waits_for_a_slot_although_bulk_requests_have_filled_the_waiting_room() {
    let (upstream, go) = working();
    let policy =
        "priorities: [{name: critical, endpoint: /pay}, {name: normal}, {name: bulk, endpoint: /bulk}]
limits: [{name: db, by: global, slots: 1, queue: {length: 9, wait: 1h}}]";
    let gateway = Behind::new(&upstream).limited(policy).with("caps: {waiting: 1}").serve();
    let (mut first, none) = crowd(&gateway, &upstream, 0);
    assert!(none.is_empty());
    let mut bulk = gateway.connect();
    bulk.send(GET.replace(" / ", " /bulk "));
    eventually("it waits", || gateway.waiting_room.waiting() == 1);
    let mut critical = gateway.connect();
    critical.send(GET.replace(" / ", " /pay "));
    let displaced = bulk.answer();
    assert_eq!(displaced.status(), 429);
    assert!(displaced.text().contains("the waiting room of this server is full"), "{}", displaced.text());
    let refused = bulk.ask(GET.replace(" / ", " /bulk "));
    assert_eq!((refused.status(), gateway.waiting_room.refused()), (429, 1));
    go.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    go.send(()).unwrap();
    assert_eq!(critical.answer().status(), 200);
    assert_eq!((gateway.waiting_room.displaced(), upstream.seen().len()), (1, 2));
}
