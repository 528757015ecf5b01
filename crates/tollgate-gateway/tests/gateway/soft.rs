//! Soft thresholds: marks for upstreams, and delays.

use std::time::Duration;

use http::{HeaderMap, Request};
use tollgate::{Clock as _, Span, SystemClock};

use crate::support::{Behind, Feed, OK, Upstream, eventually, http2, wait_for};

/// Every request for `/search` is over its threshold.
const MARKED: &str = "limits: [{name: search, endpoint: /search, by: global, bucket: 100/hour, soft: 1%}]";

/// Every request for `/search` is over its threshold and delayed for longer than a test takes.
/// There is one slot.
const HELD: &str = "limits:
  - {name: search, endpoint: /search, by: global, bucket: 100/hour, soft: {at: 1%, tarpit: 10s}}
  - {name: slot, endpoint: /search/slot, by: global, slots: 1, soft: {at: 1%, tarpit: 10s}}";

const SEARCH: &str = "GET /search HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn marks_come_from_the_gateway_and_never_from_clients() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(MARKED).serve();
    let claims = [
        "",
        "tollgate-soft: forged\r\n",
        "Tollgate-Soft: forged\r\nTOLLGATE-SOFT: twice\r\n",
        // Some servers read `_` as `-`.
        "tollgate_soft: forged\r\n",
        "connection: tollgate-soft\r\ntollgate-soft: forged\r\n",
        "connection: upgrade\r\nupgrade: websocket\r\ntollgate-soft: forged\r\n",
    ];
    for claim in claims {
        for (path, expected) in [("/search", "search"), ("/free", "absent")] {
            let before = upstream.seen().len();
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{claim}\r\n");
            assert_eq!(gateway.connect().ask(request).status(), 200);
            let seen = &upstream.seen()[before];
            let both = (seen.header("tollgate-soft"), seen.header("tollgate_soft"));
            assert_eq!(both, (expected, "absent"), "{path}, {claim}");
        }
    }
}

#[test]
fn marks_never_come_from_http_2_clients() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {headers: 8}").limited(MARKED).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        for path in ["/search", "/free"] {
            let (feed, upload) = Feed::new();
            // The maximum number of headers: the mark does not count.
            let post = (0..6).fold(Request::post(format!("http://a{path}")), |post, number| {
                post.header(format!("x-{number}"), "1")
            });
            let post = post.header("trailer", "tollgate-soft, tollgate_soft, other");
            let post = post.header("tollgate-soft", "forged").body(upload).unwrap();
            let answer = client.requests.send_request(post);
            let mut trailers = HeaderMap::new();
            for name in ["tollgate-soft", "tollgate_soft", "other"] {
                trailers.insert(name, "late".parse().unwrap());
            }
            feed.trailers(trailers);
            assert_eq!(answer.await.unwrap().status(), 200, "{path}");
        }
    });
    let seen = upstream.seen();
    let marks: Vec<_> = seen.iter().map(|it| it.header("tollgate-soft")).collect();
    assert_eq!(marks, ["search", "absent"]);
    for message in &seen {
        assert_eq!(message.trailers, [("other".to_owned(), "late".to_owned())]);
    }
}

#[test]
fn a_request_is_delayed_and_then_answered() {
    let upstream = Upstream::ok();
    let policy = "limits: [{name: slow, by: global, bucket: 100/hour, soft: {at: 2%, tarpit: 60ms}}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let (clock, mut client) = (SystemClock::new(), gateway.connect());
    assert_eq!((client.get("/").status(), gateway.tarpit.held()), (200, 0), "not yet over the threshold");
    let begun = clock.now();
    assert_eq!(client.get("/").status(), 200);
    assert!(clock.now().since(begun) >= Span::from_millis(60));
    assert_eq!((gateway.tarpit.waiting(), gateway.tarpit.held(), gateway.tarpit.passed()), (0, 1, 0));
    assert_eq!(upstream.seen()[1].header("tollgate-soft"), "slow");
}

#[test]
fn requests_beyond_the_tarpit_cap_pass_immediately() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {tarpit: 2}").limited(HELD).serve();
    let mut held = [gateway.connect(), gateway.connect()];
    for client in &mut held {
        client.send(SEARCH);
    }
    eventually("both are held back", || gateway.tarpit.waiting() == 2);
    assert_eq!(upstream.seen().len(), 0);
    for passed in 1..4 {
        assert_eq!(gateway.get("/search").status(), 200);
        assert_eq!(gateway.tarpit.passed(), passed);
    }
    assert_eq!(gateway.get("/free").status(), 200, "the only worker has nothing better to do");
    let marks: Vec<_> = upstream.seen().iter().map(|it| it.header("tollgate-soft").to_owned()).collect();
    assert_eq!(marks, ["search", "search", "search", "absent"], "they are told all the same");
    assert_eq!((gateway.tarpit.waiting(), gateway.tarpit.held()), (2, 2));
}

#[test]
fn a_disconnect_in_the_tarpit_frees_the_place_and_the_slot() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(HELD).serve();
    let mut client = gateway.connect();
    client.send(SEARCH.replace("/search", "/search/slot"));
    eventually("it is held back", || gateway.tarpit.waiting() == 1);
    assert_eq!(gateway.get("/search/slot").status(), 429, "and holds the slot meanwhile");
    drop(client);
    eventually("the place is free", || gateway.tarpit.waiting() == 0);
    let mut other = gateway.connect();
    other.send(SEARCH.replace("/search", "/search/slot"));
    eventually("the slot is free", || gateway.tarpit.waiting() == 1);

    wait_for(async {
        let waiting = async |count| {
            while gateway.tarpit.waiting() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let mut client = http2(gateway.address).await;
        let get = Request::get("http://a/search").body(Feed::nothing()).unwrap();
        let answer = tokio::spawn(client.requests.send_request(get));
        waiting(2).await;
        // Cancels one stream; the connection stays open.
        answer.abort();
        waiting(1).await;
        assert!(!client.ended.is_finished());
    });
    assert_eq!(upstream.seen().len(), 0);
}

#[test]
fn draining_releases_and_answers_delayed_requests() {
    let upstream = Upstream::script(|turn| turn.always(OK));
    let gateway = Behind::new(&upstream).limited(HELD).serve();
    let (clock, mut late) = (SystemClock::new(), gateway.connect());
    let mut held: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
    let begun = clock.now();
    for client in &mut held {
        client.send(SEARCH);
    }
    eventually("all are held back", || gateway.tarpit.waiting() == 20);
    gateway.drainer.begin();
    for client in &mut held {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.header("connection")), (200, "close"));
    }
    assert_eq!(late.ask(SEARCH).status(), 200, "later requests are not delayed either");
    assert!(clock.now().since(begun) < Span::from_secs(10), "no request waited for the whole delay");
    assert_eq!((gateway.tarpit.waiting(), upstream.seen().len()), (0, 21));
    gateway.drainer.close_idle();
    drop((held, late));
    gateway.ended();
}
