//! Overload: limits that learn their number of slots, and upstreams that reject most requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Behind, OK, ServedGateway, Turn, Upstream, eventually, settings};

const ONE: &str = "limits: [{name: upstream, by: global, slots: {adaptive: {max: 1}}}]";

const REJECTED: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

fn in_flight(gateway: &ServedGateway) -> u64 {
    gateway.limiter.load().adaptive_summaries()[0].in_flight
}

/// An upstream that answers when it is told to.
fn held() -> (Upstream, Arc<AtomicBool>) {
    let released = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&released);
    let upstream = Upstream::script(move |turn| {
        while turn.request().is_some() {
            eventually("the upstream may answer", || waits.load(Ordering::SeqCst));
            turn.wire.send(OK);
        }
    });
    (upstream, released)
}

#[test]
fn a_request_beyond_the_learned_slots_is_answered_with_503_and_not_forwarded() {
    let (upstream, released) = held();
    let gateway = Behind::new(&upstream).limited(ONE).serve();
    let mut first = gateway.connect();
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the first request is in flight", || upstream.seen().len() == 1);
    let shed = gateway.get("/");
    assert_eq!(shed.status(), 503);
    assert!((1..=3).contains(&shed.header("retry-after").parse::<u32>().unwrap()));
    assert!(shed.text().contains("#temporary-reduced-capacity"), "{}", shed.text());
    assert_eq!((upstream.seen().len(), in_flight(&gateway)), (1, 1));
    released.store(true, Ordering::SeqCst);
    assert_eq!(first.answer().status(), 200);
    eventually("the slot is free", || in_flight(&gateway) == 0);
}

#[test]
fn a_caller_that_leaves_keeps_its_slot_while_the_upstream_works() {
    let (upstream, released) = held();
    let gateway = Behind::new(&upstream).limited(ONE).serve();
    let mut first = gateway.connect();
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the first request is in flight", || upstream.seen().len() == 1);
    drop(first);
    assert_eq!(gateway.get("/").status(), 503);
    released.store(true, Ordering::SeqCst);
    eventually("the upstream has answered", || in_flight(&gateway) == 0);
}

#[test]
fn an_upstream_that_rejects_everything_is_spared_most_requests() {
    let upstream = Upstream::always(REJECTED);
    let gateway = Behind::new(&upstream).with("throttle: on").serve();
    let mut client = gateway.connect();
    let throttled = (0..300).filter(|_| client.get("/").find("retry-after").is_some()).count();
    let counts = &(gateway.throttle_counts)()[0];
    assert_eq!(counts.refused, throttled as u64);
    assert!(counts.share > 0.89, "{counts:?}");
    assert_eq!(upstream.seen().len(), 300 - throttled);
    assert!(throttled > 150, "{throttled}");
}

#[test]
fn a_frozen_throttle_keeps_its_share_while_the_upstream_recovers() {
    let rejects = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&rejects);
    let upstream = Upstream::script(move |turn| {
        while turn.request().is_some() {
            turn.wire.send(if is_down.load(Ordering::SeqCst) { REJECTED } else { OK });
        }
    });
    let gateway = Behind::new(&upstream).with("throttle: {window: 10m}").serve();
    let freeze = |is_frozen| {
        let policy = gateway.limiter.load().policy().clone().with_frozen_throttle(is_frozen);
        gateway.limiter.replace(policy);
    };
    let (mut client, share) = (gateway.connect(), || (gateway.throttle_counts)()[0].share);
    // Not all that it can be: the window has 100 accepted requests.
    rejects.store(false, Ordering::SeqCst);
    (0..100).for_each(|_| assert_eq!(client.get("/").status(), 200));
    rejects.store(true, Ordering::SeqCst);
    while share() < 0.3 {
        client.get("/");
    }
    freeze(true);
    client.get("/");
    let frozen = share();
    assert!((0.3..0.5).contains(&frozen), "{frozen}");
    for (is_rejecting, count) in [(true, 100), (false, 600)] {
        rejects.store(is_rejecting, Ordering::SeqCst);
        let refused = (0..count).filter(|_| client.get("/").find("retry-after").is_some()).count();
        assert!((share() - frozen).abs() < 1e-9, "{} of {frozen}", share());
        assert!(
            (count / 8..=count * 5 / 8).contains(&refused),
            "{refused} of {count} at a share of {frozen}"
        );
    }
    // The counts went on: most of them were accepted.
    freeze(false);
    client.get("/");
    assert!(share() < frozen, "{} of {frozen}", share());
}

/// Sends requests until one is throttled.
fn throttled(client: &mut crate::support::Wire) -> Option<crate::support::Message> {
    (0..300).map(|_| client.get("/bulk")).find(|it| it.find("retry-after").is_some())
}

const CLASSES: &str = "priorities: [{name: critical, endpoint: /pay}, {name: bulk}]\nlimits: []";

#[test]
fn a_throttled_request_is_answered_as_a_shed_one() {
    let upstream = Upstream::always(REJECTED);
    let gateway = Behind::new(&upstream).with("throttle: {k: 1.5, window: 1m}").limited(CLASSES).serve();
    let throttled = throttled(&mut gateway.connect()).unwrap();
    assert_eq!(throttled.status(), 503);
    assert!((1..=3).contains(&throttled.header("retry-after").parse::<u32>().unwrap()));
    assert!(throttled.text().contains("#temporary-reduced-capacity"), "{}", throttled.text());
    assert!(throttled.text().contains("requests of priority `bulk`"), "{}", throttled.text());
    assert!(throttled.text().contains("shed.throttle"), "{}", throttled.text());
    assert_eq!(throttled.header("tollgate-decision").len(), 16);
}

#[test]
fn a_throttle_in_shadow_mode_and_one_that_is_switched_off_refuse_nothing() {
    for (section, mode) in
        [("mode: shadow", None), ("mode: off", None), ("k: 2", Some("shadow")), ("k: 2", Some("off"))]
    {
        let upstream = Upstream::always(REJECTED);
        let gateway =
            Behind::new(&upstream).with(&format!("throttle: {{{section}}}")).limited(CLASSES).serve();
        if let Some(mode) = mode {
            let mode = if mode == "off" { tollgate::Mode::Off } else { tollgate::Mode::Shadow };
            gateway.limiter.replace(gateway.limiter.load().policy().clone().with_throttle_mode(mode));
        }
        assert!(throttled(&mut gateway.connect()).is_none(), "{section}");
        let counts = &(gateway.throttle_counts)()[0];
        let is_shadow = section == "mode: shadow" || mode == Some("shadow");
        assert_eq!((counts.refused, counts.shadow_refused > 100), (0, is_shadow), "{section} {mode:?}");
        assert_eq!(upstream.seen().len(), 300);
    }
}

#[test]
fn a_request_that_is_retried_counts_once() {
    // Every connection breaks under its second request, which is sent again on a new one.
    let upstream = Upstream::script(|turn| {
        turn.request();
        turn.wire.send(OK);
        turn.request();
    });
    let gateway = Behind::new(&upstream).with("throttle: {k: 1.1}").serve();
    let mut client = gateway.connect();
    for _ in 0..60 {
        assert_eq!(client.get("/").status(), 200);
    }
    assert!(upstream.seen().len() > 100, "{}", upstream.seen().len());
    assert_eq!((gateway.throttle_counts)()[0].refused, 0);
}

#[test]
fn callers_that_leave_do_not_throttle_others() {
    let upstream = Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            if request.start.contains("/hang") {
                turn.wire.rest();
                return;
            }
            turn.wire.send(OK);
        }
    });
    let gateway = Behind::new(&upstream).with("throttle: {window: 1h}").serve();
    for number in 1..=50 {
        let mut client = gateway.connect();
        client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("the request is sent", || upstream.seen().len() == number);
    }
    for _ in 0..100 {
        assert_eq!(gateway.get("/").status(), 200);
    }
}

#[test]
fn a_request_whose_body_is_still_being_sent_teaches_nothing() {
    let upstream = Upstream::script(|turn| {
        // Answers before the body has arrived.
        if turn.wire.head().is_some() {
            turn.wire.exactly(5);
            turn.wire.send(OK);
        }
    });
    let gateway = Behind::new(&upstream).limited("limits: [{by: global, slots: adaptive}]").serve();
    let latency = || gateway.limiter.load().adaptive_summaries()[0].latency;
    for _ in 0..60 {
        let answer = gateway.connect().ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nfirst");
        assert_eq!(answer.status(), 200);
    }
    eventually("all requests have ended", || in_flight(&gateway) == 0);
    assert_eq!(latency(), None);
    for _ in 0..60 {
        gateway.connect().ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nwhole");
    }
    eventually("bodies that have arrived are measured", || latency().is_some());
}

/// A script of an upstream, a request to it, the status of the response, and whether it lowers the learned slots.
type LearnedCase = (fn(&mut Turn), &'static str, u16, bool);

#[test]
fn only_failures_of_the_upstream_lower_the_learned_slots() {
    const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    const MALFORMED: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n";
    let learned =
        "limits: [{name: upstream, by: global, on_hangup: release, slots: {adaptive: {min: 1, max: 90}}}]";
    let cases: [LearnedCase; 6] = [
        (|turn| turn.always(OK), GET, 200, false),
        (|turn| turn.always(REJECTED), GET, 503, true),
        (|turn| turn.always("HTTP/1.1 500 Wrong\r\ncontent-length: 0\r\n\r\n"), GET, 500, false),
        (|turn| drop(turn.request()), GET, 502, true),
        (
            |turn| {
                turn.request();
                turn.wire.send("nonsense\r\n\r\n");
            },
            POST,
            502,
            true,
        ),
        (|turn| drop(turn.request()), MALFORMED, 400, false),
    ];
    for (script, request, status, lowers) in cases {
        let upstream = Upstream::script(script);
        let gateway = Behind::new(&upstream).with("eject: {after: 100000}").limited(learned).serve();
        let slots = || gateway.limiter.load().adaptive_summaries()[0].slots;
        assert_eq!(gateway.connect().ask(request).status(), status);
        let before = slots();
        for _ in 0..200 {
            assert_eq!(gateway.connect().ask(request).status(), status);
        }
        assert_eq!(slots() < before, lowers, "{status}: {before} before, {} after", slots());
    }
}

#[test]
fn an_upstream_that_answers_is_never_throttled_and_without_the_setting_none_is() {
    for (answer, section) in [(OK, "throttle: on"), (REJECTED, "throttle: off")] {
        let upstream = Upstream::always(answer);
        let gateway = Behind::new(&upstream).with(section).serve();
        let mut client = gateway.connect();
        for _ in 0..100 {
            client.get("/");
        }
        assert_eq!(upstream.seen().len(), 100, "{section}");
    }
}

#[test]
fn mistakes_in_the_throttle_are_located() {
    assert!(settings("throttle: {k: 0.5}").unwrap_err().contains("`k` cannot be `0.5`"));
    assert!(settings("throttle: {k: many}").is_err());
    assert!(settings("throttle: {window: 1ms}").is_err());
    assert!(settings("throttle: {mode: shadows}").unwrap_err().contains("did you mean `shadow`?"));
    assert!(settings("throttle: {windows: 1s}").unwrap_err().contains("did you mean `window`?"));
    assert_eq!(settings("throttle: {k: 3}").unwrap().throttle.unwrap().settings.k_percent, 300);
}
