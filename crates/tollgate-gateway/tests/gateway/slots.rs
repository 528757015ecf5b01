//! Slots are released once, however a request ends: fixed slots, learned slots and the requests in flight of the node.
//!
//! Callers that leave while the upstream works are in `hangups`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::Call;

use crate::mutations::Rng;
use crate::support::{Behind, OK, ONE_SLOT, ServedGateway, Turn, Upstream, Wire, eventually};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
const CHUNKED: &str =
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

/// Everything that counts requests until they end. No bound is reached.
fn policy(on_hangup: &str) -> String {
    format!(
        "shed: {{node: {{inflight: 1000}}}}\n\
         limits: [{{name: slots, by: global, slots: 50, on_hangup: {on_hangup}}}, \
         {{name: learned, by: global, on_hangup: {on_hangup}, slots: {{adaptive: {{min: 50, max: 90}}}}}}]"
    )
}

/// Holds requests at the upstream.
#[derive(Clone, Default)]
struct Gate(Arc<(AtomicUsize, AtomicBool)>);

impl Gate {
    /// Waits until the gate is open.
    fn pass(&self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        eventually("the gate is open", || self.0.1.load(Ordering::SeqCst));
    }

    /// Waits until a request has arrived.
    fn is_reached(&self) {
        eventually("a request has arrived", || self.0.0.load(Ordering::SeqCst) > 0);
    }

    fn open(&self) {
        self.0.1.store(true, Ordering::SeqCst);
    }

    /// Returns an upstream that answers each request when the gate is open.
    fn guarded(&self) -> Upstream {
        let gate = self.clone();
        Upstream::script(move |turn| {
            while turn.request().is_some() {
                gate.pass();
                turn.wire.send(OK);
            }
        })
    }
}

/// Returns the slots that are taken, the learned slots that are taken, and the requests in flight of the node.
fn taken(gateway: &ServedGateway) -> (u64, u64, u64) {
    let limiter = gateway.limiter.load();
    let learned = limiter.adaptive_summaries()[0].in_flight;
    (50 - gateway.left(), learned, limiter.node_shedder().in_flight())
}

/// Sends `requests` to an upstream with this script, and checks that all slots are released, and no slot of another
/// request.
#[track_caller]
fn check(name: &str, settings: &str, script: fn(&mut Turn, &Gate), requests: impl Fn(&ServedGateway, &Gate)) {
    for on_hangup in ["hold", "release"] {
        let gate = Gate::default();
        let its = gate.clone();
        let upstream = Upstream::script(move |turn| script(turn, &its));
        let gateway = Behind::new(&upstream)
            .with(&format!("keep_alive: 8{settings}"))
            .limited(&policy(on_hangup))
            .serve();
        // Another request, which stays.
        let limiter = gateway.limiter.load();
        let other = limiter.check(&Call::new("GET", "/"));
        let (_in_flight, before) = (other.in_flight().cloned(), taken(&gateway));
        assert_eq!(before, (1, 1, 0));
        requests(&gateway, &gate);
        gate.open();
        eventually(&format!("{name}, {on_hangup}: no slot is left behind"), || taken(&gateway) == before);
    }
}

/// Sends bytes, and reads until the gateway closes the connection.
fn exchange(gateway: &ServedGateway, bytes: &str) -> String {
    let mut client = gateway.connect();
    client.send(bytes);
    String::from_utf8_lossy(&client.rest()).into_owned()
}

const CLOSING: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn answered_requests_release_their_slots() {
    let ok = |turn: &mut Turn, _: &Gate| turn.always(OK);
    for request in [GET, POST, CHUNKED] {
        check(request, "", ok, |gateway, _| {
            let mut client = gateway.connect();
            for _ in 0..3 {
                assert_eq!(client.ask(request).status(), 200);
            }
            client.send(request.repeat(3));
            for _ in 0..3 {
                assert_eq!(client.answer().status(), 200);
            }
            drop(client);
            // The client leaves with requests that were not read.
            gateway.connect().send(request.repeat(3));
        });
    }
    check("100-continue", "", ok, |gateway, _| {
        let mut client = gateway.connect();
        client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n");
        assert_eq!(client.answer().status(), 100);
        client.send("hello");
        assert_eq!(client.answer().status(), 200);
    });
    check("CONNECT", "", ok, |gateway, _| {
        exchange(gateway, "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\nconnection: close\r\n\r\n");
    });
    check(
        "HEAD",
        "",
        |turn, _| turn.always("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"),
        |gateway, _| {
            let answer = exchange(gateway, "HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        },
    );
    check(
        "no body",
        "",
        |turn, _| turn.always("HTTP/1.1 204 No Content\r\n\r\n"),
        |gateway, _| {
            assert_eq!(gateway.get("/").status(), 204);
        },
    );
    check(
        "an early hint",
        "",
        |turn, _| turn.always("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n"),
        |gateway, _| {
            assert_eq!(gateway.get("/").status(), 304);
        },
    );
    check(
        "a body that ends with the connection",
        "",
        |turn, _| {
            turn.request();
            turn.wire.send("HTTP/1.1 200 OK\r\n\r\nok");
        },
        |gateway, _| assert_eq!(gateway.get("/").text(), "ok"),
    );
    check(
        "an answer before the end of the body",
        "",
        |turn, gate| {
            turn.wire.head();
            turn.wire.send(OK);
            gate.pass();
        },
        |gateway, _| {
            let mut client = gateway.connect();
            let half = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello";
            assert_eq!(client.ask(half).status(), 200);
        },
    );
}

#[test]
fn requests_that_their_upstream_fails_release_their_slots() {
    check(
        "closes idle connections",
        "",
        |turn, _| {
            turn.request();
            turn.wire.send(OK);
        },
        |gateway, _| {
            let mut client = gateway.connect();
            for _ in 0..20 {
                assert_eq!(client.get("/").status(), 200);
            }
        },
    );
    check(
        "breaks off",
        "",
        |turn, _| drop(turn.request()),
        |gateway, _| {
            for request in [GET, POST, CHUNKED] {
                assert_eq!(gateway.connect().ask(request).status(), 502);
            }
        },
    );
    check(
        "resets",
        "",
        |turn, _| {
            turn.wire.head();
            turn.wire.reset_on_close();
        },
        |gateway, _| {
            for request in [GET, POST, CHUNKED] {
                assert_eq!(gateway.connect().ask(request).status(), 502);
            }
        },
    );
    let scripts: [fn(&mut Turn, &Gate); 8] = [
        |turn, _| answer_once(turn, "nonsense\r\n\r\n"),
        |turn, _| answer_once(turn, "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"),
        |turn, _| answer_once(turn, "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
        |turn, _| {
            answer_once(turn, "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok");
            turn.wire.rest();
        },
        |turn, _| answer_once(turn, "HTTP/1.1 100 Continue\r\n\r\n"),
        |turn, _| answer_once(turn, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
        |turn, _| answer_once(turn, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nha"),
        |turn, _| answer_once(turn, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n"),
    ];
    for (number, script) in scripts.into_iter().enumerate() {
        check(&format!("answer {number}"), "", script, |gateway, _| {
            for _ in 0..3 {
                exchange(gateway, CLOSING);
            }
        });
    }
    check(
        "is too slow",
        ", timeouts: {headers: 20ms}",
        |turn, gate| {
            turn.request();
            gate.pass();
        },
        |gateway, _| {
            for request in [GET, POST, CHUNKED] {
                assert_eq!(gateway.connect().ask(request).status(), 504);
            }
        },
    );
    check(
        "stops in the middle",
        ", timeouts: {idle: 20ms}",
        |turn, gate| {
            turn.request();
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
            gate.pass();
        },
        |gateway, _| assert!(exchange(gateway, CLOSING).ends_with("half")),
    );
}

fn answer_once(turn: &mut Turn, answer: &str) {
    turn.request();
    turn.wire.send(answer);
}

#[test]
fn requests_that_cannot_be_sent_release_their_slots() {
    let closed = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let live = Upstream::ok();
    for (origins, status) in [
        (vec![format!("http://{}", closed())], 502),
        (vec![format!("http://{}", closed()), format!("http://{}", live.address)], 200),
    ] {
        let gateway = Behind::all(&origins).with("eject: {after: 1000}").limited(&policy("hold")).serve();
        for _ in 0..10 {
            assert_eq!(gateway.get("/").status(), status);
            eventually("no slot is left behind", || taken(&gateway) == (0, 0, 0));
        }
    }
}

#[test]
fn clients_that_leave_at_any_point_leave_no_slot_behind() {
    let answers_later = |turn: &mut Turn, gate: &Gate| {
        while turn.wire.head().is_some() {
            gate.pass();
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
            turn.wire.send("again");
        }
    };
    check("in the head", "", answers_later, |gateway, _| {
        gateway.connect().send("GET / HTTP/1.1\r\nhost: a\r\n");
    });
    for bytes in [
        GET,
        POST,
        CHUNKED,
        "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /next HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /next HTT",
    ] {
        for resets in [false, true] {
            check(bytes, "", answers_later, |gateway, gate| {
                let mut client = gateway.connect();
                if resets {
                    client.reset_on_close();
                }
                client.send(bytes);
                gate.is_reached();
            });
        }
    }
    check("in a malformed body", "", answers_later, |gateway, gate| {
        let mut client = gateway.connect();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
        gate.is_reached();
        client.send("nonsense\r\n");
    });
    check(
        "in the response",
        "",
        |turn, gate| {
            while turn.request().is_some() {
                turn.wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
                gate.pass();
                turn.wire.send("0\r\n\r\n");
            }
        },
        |gateway, _| {
            let mut client = gateway.connect();
            client.send(GET);
            assert_eq!(client.head().unwrap().status(), 200);
        },
    );
}

#[test]
fn an_upstream_that_waits_for_the_rest_of_a_body_holds_no_slot() {
    let upstream = Upstream::script(|turn| {
        turn.request();
    });
    let policy = "limits: [{name: slots, by: global, slots: 50, ttl: 1h}]";
    let settings = "keep_alive: 8, caps: {body: 8}, timeouts: {idle: 50ms}";
    let gateway = Behind::new(&upstream).with(settings).limited(policy).serve();
    for (number, (start, next)) in [
        ("content-length: 8\r\n\r\nhalf", ""),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", ""),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "nonsense\r\n"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "9\r\ntoo large\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        for stays in [false, true] {
            let mut client = gateway.connect();
            client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{start}"));
            eventually("the slot is taken", || gateway.left() == 49);
            client.send(next);
            if stays {
                client.rest();
            }
            drop(client);
            eventually(&format!("{number}, stays: {stays}: the slot is free"), || gateway.left() == 50);
        }
    }
}

#[test]
fn a_body_that_the_gateway_refuses_releases_its_slot() {
    check(
        "too large",
        ", caps: {body: 8}",
        |turn, gate| {
            turn.wire.head();
            gate.pass();
        },
        |gateway, gate| {
            let mut client = gateway.connect();
            client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
            gate.is_reached();
            client.send("9\r\ntoo large\r\n");
            assert_eq!(client.answer().status(), 413);
        },
    );
    check(
        "late",
        ", timeouts: {idle: 20ms}",
        |turn, gate| {
            turn.wire.head();
            gate.pass();
        },
        |gateway, _| {
            let late = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf";
            assert_eq!(gateway.connect().ask(late).status(), 408);
        },
    );
}

#[test]
fn a_slot_is_released_after_the_policy_was_replaced() {
    let two = "limits: [{name: slots, by: global, slots: 2}]";
    let none = "limits: [{name: other, by: global, bucket: 9/hour}]";
    let settles = "limits: [{name: slots, by: global, slots: 1}, \
                   {name: tokens, by: global, bucket: 100/day, cost: {settle: 'json:used'}}]";
    for (replacements, slots) in
        [(vec![two], 2), (vec![none, ONE_SLOT], 1), (vec![settles], 1), (vec![two, ONE_SLOT], 1)]
    {
        let gate = Gate::default();
        let upstream = gate.guarded();
        let gateway = Behind::new(&upstream).limited(ONE_SLOT).serve();
        let mut client = gateway.connect();
        client.send(GET);
        gate.is_reached();
        for policy in &replacements {
            gateway.limit_by(policy);
        }
        assert_eq!(gateway.left(), slots - 1, "{replacements:?}");
        gate.open();
        assert_eq!(client.answer().status(), 200);
        eventually("the slot is free", || gateway.left() == slots);
        // The connection goes on under the new policy.
        assert_eq!(client.get("/").status(), 200);
        eventually("the slot is free again", || gateway.left() == slots);
    }
}

/// Whether refused requests are served without hyper, which writes the date after all other headers.
fn is_native(gateway: &ServedGateway, client: &mut Wire) -> bool {
    let refused = client.ask(CHUNKED);
    assert!(matches!(refused.status(), 429 | 503), "{refused:?}");
    if refused.find("connection").is_some() {
        *client = gateway.connect();
    }
    refused.headers.last().is_some_and(|(name, _)| name != "date")
}

#[test]
fn policies_with_slots_queues_delays_and_settled_costs_are_served_by_the_implementation_that_was_chosen() {
    let settles = format!(
        "{}, {{name: tokens, by: global, bucket: 100/day, cost: {{settle: 'json:used'}}}}]",
        ONE_SLOT.trim_end_matches(']')
    );
    for policy in [
        ONE_SLOT,
        "limits: [{name: upstream, by: global, slots: {adaptive: {max: 1}}}]",
        "shed: {fleet: {slots: 1}}\nlimits: []",
        "limits: [{name: line, by: global, slots: 1, queue: {length: 9, wait: 1m}}]",
        "limits: [{name: queue, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}]",
        "limits: [{name: queue, by: global, algorithm: leaky-queue, rate: 1000/second, queue: {length: 9}}, \
                  {name: slots, by: global, slots: 1}]",
        "limits: [{name: tarpit, by: global, bucket: 1/hour, soft: {at: 1%, tarpit: 10s}}]",
        &settles,
    ] {
        let gate = Gate::default();
        let upstream = gate.guarded();
        // Requests that would have to wait are refused.
        let gateway = Behind::new(&upstream).with("caps: {waiting: 0, tarpit: 0}").limited(policy).serve();
        let mut first = gateway.connect();
        first.send(GET);
        gate.is_reached();
        let mut client = gateway.connect();
        for _ in 0..3 {
            assert_eq!(is_native(&gateway, &mut client), crate::HTTP1 == "native", "{policy}");
        }
        gate.open();
        assert_eq!(first.answer().status(), 200);
    }
}

#[test]
fn an_upstream_that_fails_requests_without_a_caller_is_ejected() {
    for (is_late, headers, ttl) in [(false, "1h", "1m"), (true, "50ms", "300ms")] {
        let gate = Gate::default();
        let [its, other] = [gate.clone(), gate.clone()];
        let broken = Upstream::script(move |turn| {
            turn.request();
            its.pass();
            if is_late {
                turn.wire.rest();
            }
        });
        let live = Upstream::script(move |turn| {
            while turn.request().is_some() {
                if !is_late {
                    other.pass();
                }
                turn.wire.send(OK);
            }
        });
        let origins = [&broken, &live].map(|it| format!("http://{}", it.address));
        let gateway = Behind::all(&origins)
            .with(&format!("eject: {{after: 3, for: 1h}}, timeouts: {{headers: {headers}}}"))
            .limited(&format!("limits: [{{name: slots, by: global, slots: 50, ttl: {ttl}}}]"))
            .serve();
        let mut clients = Vec::new();
        while broken.seen().len() < 3 {
            let seen = broken.seen().len() + live.seen().len();
            let mut client = gateway.connect();
            client.send(GET);
            eventually("it is forwarded", || broken.seen().len() + live.seen().len() > seen);
            clients.push(client);
        }
        for client in &mut clients {
            // The gateway closes the connection when it has noticed that the client is gone.
            client.stop_sending();
            client.rest();
        }
        gate.open();
        eventually("all slots are free", || gateway.left() == 50);
        for _ in 0..10 {
            assert_eq!(gateway.get("/").status(), 200);
        }
        assert_eq!(broken.seen().len(), 3, "late: {is_late}");
    }
}

/// A response and the end of its connection: closed, reset or kept.
const RANDOM_ANSWERS: [(&str, bool); 7] = [
    (OK, true),
    (
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n",
        true,
    ),
    ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", false),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nx\r\n", false),
    ("HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\n\r\nuntil", false),
    ("", false),
];

#[test]
#[allow(clippy::disallowed_methods, reason = "work and patience take some time")]
fn clients_and_upstreams_that_fail_at_random_start_no_more_work_than_there_are_slots() {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let its = Arc::clone(&counts);
    let upstream = Upstream::script(move |turn| {
        let (mut rng, (running, most)) = (Rng(turn.number as u64), &*its);
        while let Some(request) = turn.request() {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_micros(rng.below(3_000) as u64));
            let (answer, is_kept) = RANDOM_ANSWERS[rng.below(RANDOM_ANSWERS.len())];
            let (answer, is_kept) = if request.start.starts_with("HEAD") {
                ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", true)
            } else {
                (answer, is_kept)
            };
            running.fetch_sub(1, Ordering::SeqCst);
            if rng.below(10) == 0 {
                return turn.wire.reset_on_close();
            }
            if !turn.wire.try_send(answer) || !is_kept {
                return;
            }
        }
    });
    let policy = policy("hold").replace("slots: 50", "slots: 4");
    let gateway = Behind::new(&upstream).with("eject: {after: 100000}").limited(&policy).serve();
    let left = || gateway.left() == 4 && gateway.limiter.load().adaptive_summaries()[0].in_flight == 0;
    thread::scope(|scope| {
        for seed in 0..12 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut rng = Rng(seed);
                for _ in 0..100 {
                    let request = [GET, POST, CHUNKED, "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"][rng.below(4)];
                    let mut client = gateway.connect();
                    client.send(request.repeat(1 + rng.below(2)));
                    thread::sleep(Duration::from_micros(rng.below(3_000) as u64));
                    if rng.below(3) == 0 {
                        client.try_status();
                    }
                    if rng.below(3) == 0 {
                        client.reset_on_close();
                    }
                }
            });
        }
    });
    eventually("no slot is left behind", left);
    let most = counts.1.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} at a time");
}
