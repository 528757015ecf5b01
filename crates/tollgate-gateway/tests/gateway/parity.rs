//! The two implementations of HTTP/1.1 are the same to clients and upstreams: the same requests are sent through a
//! gateway of each kind, and everything that the upstream and the client received is compared.
//!
//! Compared without the order of different headers, and without values that depend on the time (`date`, the id of the
//! decision, waits). After a refused chunked request that has arrived completely, hyper closes the connection and the
//! native server keeps it.

use std::collections::BTreeMap;

use crate::support::{Behind, Message, ServedGateway, Upstream, Wire, eventually};

/// A message without the order of its headers.
#[derive(Debug, PartialEq, Eq)]
struct Comparable {
    start: String,
    headers: BTreeMap<String, Vec<String>>,
    body: String,
    trailers: Vec<(String, String)>,
    is_whole: bool,
}

impl Comparable {
    fn of(message: &Message, port: &str) -> Self {
        let mut headers = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in &message.headers {
            let value = match &**name {
                "date" | "tollgate-decision" | "x-request-id" => "present".to_owned(),
                // The wait of a request that is shed is random.
                "retry-after" if message.status() == 503 => "present".to_owned(),
                name if name.contains("ratelimit") || name.contains("retry-after") => without_times(value),
                _ => value.replace(port, "PORT"),
            };
            headers.entry(name.clone()).or_default().push(value);
        }
        let mut body = without_times(&message.text());
        // The wait of a request that is shed is random.
        if message.status() == 503
            && let Some((text, seconds)) = body.split_once("try again in ")
        {
            body = format!("{text}try again in N{}", seconds.trim_start_matches(['1', '2', '3']));
        }
        if let Some(at) = body.find("urn:tollgate:decision:") {
            body.replace_range(at.., "ID");
        }
        Self {
            start: message.start.clone(),
            headers,
            body,
            trailers: message.trailers.clone(),
            is_whole: message.is_whole,
        }
    }
}

/// Replaces numbers that depend on the time of a response: those with three digits or more.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    for part in text.split_inclusive(|char: char| !char.is_ascii_digit()) {
        let digits = part.trim_end_matches(|char: char| !char.is_ascii_digit());
        if digits.len() >= 3 { out += &part.replacen(digits, "N", 1) } else { out += part }
    }
    out
}

/// A gateway of one kind and its upstream.
struct Side {
    upstream: Upstream,
    gateway: ServedGateway,
}

impl Side {
    fn new(http1: &str, settings: &str, policy: &str, answer: &str) -> Self {
        let upstream = Upstream::always(answer);
        let settings = format!("http1: {http1}, {settings}");
        let gateway = Behind::new(&upstream).with(&settings).limited(policy).serve();
        Self { upstream, gateway }
    }

    /// Sends all requests on one connection, and returns what both ends received.
    fn exchange(&self, requests: &[String]) -> (Vec<Comparable>, Vec<Comparable>) {
        let mut client: Option<Wire> = None;
        let (mut answers, port) = (Vec::new(), self.gateway.address.port().to_string());
        let free_slots = self.gateway.free_slots();
        for request in requests {
            // A request whose body is too large holds its slots until the upstream has finished it.
            eventually("all slots are free", || self.gateway.free_slots() == free_slots);
            let wire = client.get_or_insert_with(|| self.gateway.connect());
            wire.send(request);
            let mut answer = wire.head().expect("an answer");
            let is_bare = request.starts_with("HEAD") || matches!(answer.status(), 204 | 304);
            if !is_bare {
                wire.read_rest(&mut answer);
            }
            if answer.find("connection") == Some("close") {
                client = None;
            }
            answers.push(Comparable::of(&answer, &port));
        }
        let seen = self.upstream.seen().iter().map(|it| Comparable::of(it, &port)).collect();
        (seen, answers)
    }
}

/// Checks that both implementations do the same.
#[track_caller]
fn check(settings: &str, policy: &str, answer: &str, requests: &[String]) {
    let sides = ["native", "hyper"].map(|http1| Side::new(http1, settings, policy, answer));
    compare(&sides, settings, answer, requests);
}

/// Checks that both sides do the same.
#[track_caller]
fn compare(sides: &[Side; 2], settings: &str, answer: &str, requests: &[String]) {
    let [(native_seen, native), (hyper_seen, mut hyper)] =
        sides.each_ref().map(|side| side.exchange(requests));
    for (request, (native, hyper)) in requests.iter().zip(native.iter().zip(&mut hyper)) {
        // hyper discards one piece of an unread body, which is not all of a chunked one. The native server has found
        // the end of the body and keeps the connection. Both are legal.
        let is_chunked = request.contains("Transfer-Encoding: chunked");
        if is_chunked && !hyper.start.contains(" 200 ") && !native.headers.contains_key("connection") {
            hyper.headers.remove("connection");
        }
        assert_eq!(native, &*hyper, "the response to {request:?} with {settings:?} and {answer:?}");
    }
    assert_eq!(native_seen, hyper_seen, "forwarded with {settings:?}");
}

/// A seeded generator (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.next() % choices.len() as u64).unwrap()]
    }
}

const TARGETS: &[&str] = &[
    "/",
    "/a",
    "/a/b?c=d",
    "/a/../login",
    "/%2e%2e/x",
    "/a//b",
    "/a;b=c",
    "/a?b=/../c",
    "/x?",
    "/search?q=%20&r=a%2Fb",
    "/{x}",
    "/a|b",
    "/é",
    "//host/path",
];

const LINES: &[&str] = &[
    "Accept: */*",
    "accept: text/plain",
    "Accept: application/json, text/html;q=0.5",
    "Cookie: a=1",
    "Cookie: a=1\r\nCookie: b=2",
    "X-Api-Key: k1",
    "X_Api_Key: k2",
    "x-forwarded-for: 6.6.6.6",
    "X-Forwarded-For: 203.0.113.9, 10.0.0.1\r\nX-Forwarded-For:\r\nX-Forwarded-Host: other.test",
    "X_Forwarded_For: 6.6.6.6",
    "X-Forwarded-Proto: https",
    "Forwarded: for=192.0.2.1",
    "X-Real-IP: 6.6.6.6",
    "Connection: keep-alive",
    "Connection: x-private\r\nX-Private: 1",
    "Connection: close",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "Proxy-Authorization: Basic x",
    "X-Original-URL: /admin",
    "X-HTTP-Method-Override: DELETE",
    "Script_Name: /x",
    "Tollgate-Soft: x",
    "Tollgate_Soft: x",
    "Tollgate-Priority: critical",
    "tollgate_priority: critical",
    "Via: 1.1 other",
    "TE: trailers",
    "User-Agent: a \t b  ",
    "X-Empty:",
    "X-Latin: \u{e9}",
    "X-Twice: 1\r\nAccept-Language: de\r\nX-Twice: 2",
    "Upgrade: h2c",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Length: 0",
];

const BODIES: &[&str] = &[
    "\r\n",
    "\r\n",
    "\r\n",
    "Content-Length: 5\r\n\r\nhello",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "content-length: 3\r\nexpect: 100-continue-not\r\n\r\nabc",
];

fn requests(seed: u64, count: usize) -> Vec<String> {
    let mut rng = Rng(seed);
    let mut one = || {
        let method = rng.one(&["GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PURGE"]);
        let target = rng.one(TARGETS);
        let host = rng.one(&["example.com", "example.com:8080", "[::1]:80", "A.test"]);
        let mut lines = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        let mut has_length = false;
        for _ in 0..rng.next() % 5 {
            let line = rng.one(LINES);
            has_length |= line.starts_with("Content-Length");
            lines.extend([line, "\r\n"]);
        }
        let body = if has_length { "\r\n" } else { rng.one(BODIES) };
        lines + body
    };
    (0..count).map(|_| one()).filter(|it| !it.contains("Content-Length: 0\r\nContent-Length")).collect()
}

/// Limits that read headers, admit some requests and refuse others.
const POLICY: &str = "
priorities: [{name: critical, endpoint: /a/**}, {name: normal}]
limits:
  - {name: all, by: global, bucket: 1000/hour, soft: 1%}
  - {name: keys, by: 'header:x-api-key', missing: skip, bucket: 3/hour}
  - {name: posts, endpoint: '/**', method: POST, by: ip, bucket: 20/hour}
";

const CLASSES: &str = "priorities: [{name: critical, endpoint: /a/**}, {name: normal}]\n";

/// Limits that hold slots and refuse nothing, and one with a soft threshold.
const SLOTS: &str = "
headers: {dialects: [openai, envoy], x_ratelimit: delta}
priorities: [{name: critical, endpoint: /a/**}, {name: normal}]
shed: {fleet: {slots: 90}, node: {inflight: 100}}
limits:
  - {name: slots, by: global, slots: 9, soft: 10%}
  - {name: released, by: ip, slots: 9, on_hangup: release}
  - {name: learned, by: global, slots: {adaptive: {min: 9, max: 99}}}
";

#[test]
fn clients_and_upstreams_see_the_same_with_and_without_hyper() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-RateLimit-Limit: 7\r\nServer: x\r\nConnection: keep-alive, X-Hidden\r\nX-Hidden: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nok";
    for (seed, settings) in [
        (1, "forwarded: x-forwarded"),
        (2, "forwarded: forwarded"),
        (3, "forwarded: both"),
        (4, "forwarded: off, override_headers: keep"),
        (5, "override_headers: [X-HTTP-Method-Override], caps: {body: 4B}"),
    ] {
        check(settings, POLICY, answer, &requests(seed, 60));
    }
    let trusted = format!("client: {{trusted_proxies: [127.0.0.0/8]}}{POLICY}");
    for (seed, settings) in [(6, "forwarded: both"), (7, "forwarded: x-forwarded"), (8, "forwarded: off")] {
        check(settings, &trusted, answer, &requests(seed, 60));
    }
}

#[test]
fn refusals_are_the_same_with_and_without_hyper() {
    let once = "limits: [{name: once, by: global, bucket: 1/hour}]";
    let dialects = "headers: {dialects: [openai, envoy], x_ratelimit: delta, ietf: draft-6}\n";
    for policy in [once.to_owned(), format!("{dialects}{once}"), format!("deny: [{{ip: 127.0.0.1}}]\n{once}")]
    {
        check("", &policy, crate::support::OK, &requests(9, 40));
    }
}

#[test]
fn requests_that_hold_slots_are_the_same_with_and_without_hyper() {
    for (seed, settings) in [(10, "forwarded: both"), (11, "caps: {body: 4B}")] {
        check(settings, SLOTS, crate::support::OK, &requests(seed, 60));
    }
}

#[test]
fn refusals_while_all_slots_are_taken_are_the_same_with_and_without_hyper() {
    for policy in [
        "limits: [{name: slots, by: global, slots: 1}]",
        "headers: {dialects: [openai, envoy], x_ratelimit: delta, ietf: draft-6}\n\
         limits: [{name: slots, by: global, slots: 1}, {name: all, by: global, bucket: 100/hour}]",
        "limits: [{name: slots, by: global, slots: 1, mode: shadow}, {name: keys, by: 'header:accept', bucket: 3/hour}]",
        "limits: [{name: learned, by: global, slots: {adaptive: {max: 1}}}]",
        "priorities: [{name: critical, endpoint: /a/**}, {name: normal}]\nshed: {fleet: {slots: 1}}\nlimits: []",
        "shed: {node: {inflight: 1}}\nlimits: []",
    ] {
        let sides = ["native", "hyper"].map(|http1| Side::new(http1, "", policy, crate::support::OK));
        // The slot of another request, which stays.
        let _others = sides.each_ref().map(|side| {
            let limiter = side.gateway.limiter.load();
            let other = limiter.check(&tollgate::Call::new("GET", "/"));
            (other.in_flight().cloned(), limiter.track_in_flight())
        });
        compare(&sides, "", crate::support::OK, &requests(12, 40));
    }
}

#[test]
fn requests_that_wait_are_the_same_with_and_without_hyper() {
    let queue =
        "{name: queue, by: global, algorithm: leaky-queue, rate: 4/second, queue: {length: 9}, soft: 1%}";
    let tarpit = "soft: {at: 1%, tarpit: 1ms}";
    for (policy, count) in [
        (format!("limits: [{queue}]"), 4),
        (format!("limits: [{queue}, {{name: slots, by: global, slots: 9}}]"), 4),
        (format!("limits: [{queue}, {{name: released, by: ip, slots: 9, on_hangup: release, {tarpit}}}]"), 4),
        (format!("limits: [{{name: all, by: global, bucket: 100/hour, {tarpit}}}]"), 20),
        (
            format!(
                "{CLASSES}limits: [{{name: slots, by: global, slots: 9, queue: {{length: 9}}, {tarpit}}}]"
            ),
            20,
        ),
    ] {
        check("", &policy, crate::support::OK, &requests(13, count));
    }
}

#[test]
fn refusals_of_requests_that_cannot_wait_are_the_same_with_and_without_hyper() {
    let queue = "{name: queue, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}";
    let line = "{name: line, by: global, slots: 1, queue: {length: 9, wait: 10ms}}";
    let dialects = "headers: {dialects: [openai, envoy], x_ratelimit: delta, ietf: draft-6}\n";
    for (settings, policy) in [
        ("caps: {waiting: 0}", format!("limits: [{queue}]")),
        ("caps: {waiting: 0}", format!("{dialects}{CLASSES}limits: [{queue}]")),
        ("caps: {waiting: 0}", format!("limits: [{line}]")),
        ("", format!("limits: [{line}]")),
        ("", format!("{dialects}{CLASSES}limits: [{line}, {{name: all, by: global, bucket: 100/hour}}]")),
        (
            "",
            format!(
                "limits: [{}, {{name: slots, by: global, slots: 1}}]",
                queue.replace("1/hour", "1000/second")
            ),
        ),
        ("", format!("limits: [{}, {line}]", queue.replace("1/hour", "1000/second"))),
        ("", format!("limits: [{}]", queue.replace("length: 9", "length: 9, wait: 1s"))),
    ] {
        let sides = ["native", "hyper"].map(|http1| Side::new(http1, settings, &policy, crate::support::OK));
        // Takes the first place of a queue, or a slot.
        for side in &sides {
            let limiter = side.gateway.limiter.load();
            let _taken = limiter.check(&tollgate::Call::new("GET", "/"));
        }
        compare(&sides, settings, crate::support::OK, &requests(14, 12));
    }
}

#[test]
fn settled_requests_and_their_costs_are_the_same_with_and_without_hyper() {
    let requests = [
        "GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip\r\nAccept-Encoding: br\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned(),
    ];
    let bodiless = [requests[0].clone(), "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned()];
    let json = r#"{"usage":{"total":40}}"#;
    let length = json.len();
    // What a request costs by a header of its response, and by its body.
    let cases = [
        (
            format!("HTTP/1.1 200 OK\r\nX-Used: 40\r\nx-used: 41\r\ncontent-length: {length}\r\n\r\n{json}"),
            40,
            40,
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\ncontent-length: {length}\r\n\r\n{json}"
            ),
            100,
            40,
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\nX-Used: 40\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\r\n{json}"
            ),
            40,
            100,
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\nx-used: 40\r\nConnection: keep-alive, x-used\r\ncontent-length: {length}\r\n\r\n{json}"
            ),
            100,
            40,
        ),
        (format!("HTTP/1.1 500 Oh\r\nx-used: 40x\r\ncontent-length: {length}\r\n\r\n{json}"), 100, 40),
        (
            format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{json}\r\n0\r\nX-Used: 40\r\n\r\n"
            ),
            40,
            40,
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\nx-used: 9\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{json}\r\n0\r\na:\r\nx-used:40\r\n\r\n"
            ),
            40,
            40,
        ),
        (
            "HTTP/1.1 103 Early Hints\r\nx-used: 7\r\n\r\nHTTP/1.1 304 Not Modified\r\nx-used: 40\r\n\r\n"
                .to_owned(),
            40,
            100,
        ),
        ("HTTP/1.1 204 No Content\r\nx-used: 40\r\n\r\n".to_owned(), 40, 100),
        ("HTTP/1.1 200 OK\r\nx-used: 0\r\ncontent-length: 0\r\n\r\n".to_owned(), 0, 100),
        ("nonsense\r\n\r\n".to_owned(), 100, 100),
    ];
    // The body of a problem has a status, but a service states its cost in its own responses only.
    let by_status = 100;
    for (answer, by_header, by_body) in &cases {
        let requests = if answer.contains(json) { &requests } else { &bodiless };
        for (settle, cost) in [
            ("response:X-Used", *by_header),
            ("json:usage.total", *by_body),
            ("json:status", by_status),
            ("time:1h", 1),
        ] {
            let policy = format!(
                "limits: [{{name: tokens, by: global, bucket: 1000/day, cost: {{reserve: 100, settle: '{settle}'}}}}]"
            );
            let sides = ["native", "hyper"].map(|http1| Side::new(http1, "", &policy, answer));
            compare(&sides, settle, answer, requests);
            for side in &sides {
                let left = 1_000 - 2 * cost;
                eventually(&format!("{left} are left with {settle} after {answer:?}"), || {
                    side.gateway.left() == left
                });
            }
        }
    }
}

#[test]
fn responses_are_the_same_with_and_without_hyper() {
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned();
    let head = "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned();
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 Fine by me\r\ncontent-length: 0\r\ndate: Tue, 17 Nov 2026 00:00:00 GMT\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n3\r\n!!!\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-trailer: 1\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\ncontent-length: 2\nx: y\n\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: nonsense\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx : a\r\ncontent-length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        check(
            "timeouts: {idle: 5s}",
            "limits: [{name: l, by: global, bucket: 9/hour}]",
            answer,
            &[get.clone(), get.clone()],
        );
        check("timeouts: {idle: 5s}", SLOTS, answer, &[get.clone(), get.clone()]);
        if !answer.contains("\r\n\r\n2") && !answer.ends_with("ok") && !answer.ends_with("no") {
            check("", "limits: []", answer, std::slice::from_ref(&head));
        }
    }
}
