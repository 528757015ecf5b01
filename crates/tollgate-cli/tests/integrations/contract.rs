//! The contract that every proxy must fulfill.

use std::thread;

use tollgate_testkit::{Scratch, Tollgate};

use super::message::{Ask, CLIENT, Message, NEIGHBOUR};
use super::proxy::{Between, Proxy, RunningProxy, Setup, TOKEN, UpstreamRequest};
use super::service::{Service, app};

const POLICY: &str = "
limits:
  - {name: search, endpoint: /search, by: ip, bucket: 3/hour}
  - {name: posts, endpoint: /posts, method: POST, by: ip, bucket: 2/hour}
  - {name: everybody, endpoint: /burst, by: global, bucket: 20/hour}
  - {name: heavy, endpoint: /heavy, by: ip, bucket: 5/hour, cost: 3}
  - {name: small, endpoint: /small, by: ip, bucket: 5/hour, cost: \"header:X-Units\"}
  - {name: wide, endpoint: /pair, by: ip, bucket: 11/hour}
  - {name: narrow, endpoint: /pair, by: ip, bucket: 1/hour}
  - {name: keys, endpoint: /keys, by: api_key, bucket: 3/hour}
deny:
  - {\"header:X-Banned\": \"yes\"}
";

/// The processes of a test.
struct Scene {
    app: Service,
    proxy: RunningProxy,
    _tollgate: Tollgate,
}

impl Scene {
    fn set(proxy: Proxy) -> Self {
        let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), POLICY);
        let app = Service::start(app);
        let proxy =
            proxy.start(Between { tollgate: UpstreamRequest::Answering(tollgate.api), app: app.address });
        Self { app, proxy, _tollgate: tollgate }
    }

    #[track_caller]
    fn get(&self, path: &str) -> Message {
        Ask::new(&format!("GET {path}")).send(self.proxy.address)
    }
}

#[track_caller]
fn assert_admitted(answer: &Message, limit: &str, remaining: u64) {
    assert_eq!(answer.status(), 200, "{answer:?}");
    let left = remaining.to_string();
    assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.as_str()), "{answer:?}");
    assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"{limit}\";r={left};")), "{answer:?}");
    assert_eq!(answer.header("tollgate-decision").unwrap().len(), 16, "{answer:?}");
    assert_eq!(answer.header("retry-after"), None, "{answer:?}");
    assert_eq!(answer.header("cache-control"), None, "Tollgate's own is not the app's: {answer:?}");
}

#[track_caller]
fn assert_refused(answer: &Message, limit: &str) {
    assert_eq!(answer.status(), 429, "{answer:?}");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1, "{answer:?}");
    assert!(answer.header("retry-after-ms").is_some(), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let problem = answer.json();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["title"], "Quota Exceeded");
    assert_eq!(problem["violated-policies"], serde_json::json!([limit]));
    assert!(problem["detail"].as_str().unwrap().contains(&format!("limit `{limit}`")), "{problem}");
    assert_eq!(problem["retry_after"], wait);
    let decision = answer.header("tollgate-decision").unwrap();
    assert_eq!(problem["instance"], format!("urn:tollgate:decision:{decision}"));
}

pub(crate) fn admitted_requests_show_what_is_left(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let answer = scene.get("/search");
    assert_admitted(&answer, "search", 2);
    assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
    assert!(answer.header("x-ratelimit-reset").is_some());
    assert_eq!(answer.header("ratelimit-policy"), Some("\"search\";q=3;w=3600"));
    assert_eq!(answer.body, b"hello");
    assert_admitted(&scene.get("/search"), "search", 1);
}

pub(crate) fn refused_requests_say_why_and_when(proxy: Proxy) {
    let scene = Scene::set(proxy);
    for left in [2, 1, 0] {
        assert_admitted(&scene.get("/search"), "search", left);
    }
    let refused = scene.get("/search");
    assert_refused(&refused, "search");
    assert_eq!(refused.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert!(refused.header("ratelimit").unwrap().starts_with("\"search\";r=0;"), "{refused:?}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"search\";q=3;w=3600"));

    let head = Ask::new("HEAD /search").send(scene.proxy.address);
    assert_eq!((head.status(), head.body.len()), (429, 0), "{head:?}");
    assert!(head.header("retry-after").is_some());
    assert_eq!(scene.app.requests(), ["GET /search"; 3]);
}

pub(crate) fn of_two_limits_the_one_that_refuses_is_named(proxy: Proxy) {
    let scene = Scene::set(proxy);
    assert_eq!(scene.get("/pair").status(), 200);
    let refused = scene.get("/pair");
    assert_refused(&refused, "narrow");
    assert!(refused.header("ratelimit").unwrap().starts_with("\"wide\";r=10;"), "uncharged: {refused:?}");
}

pub(crate) fn what_costs_several_units_is_refused_by_name_too(proxy: Proxy) {
    let scene = Scene::set(proxy);
    assert_admitted(&scene.get("/heavy"), "heavy", 2);
    assert_refused(&scene.get("/heavy"), "heavy");

    let never = Ask { headers: "X-Units: 6\r\n", ..Ask::new("GET /small") }.send(scene.proxy.address);
    assert_eq!((never.status(), never.header("retry-after")), (429, None), "{never:?}");
    assert_eq!(never.json()["violated-policies"], serde_json::json!(["small"]));
}

pub(crate) fn forged_headers_buy_nothing(proxy: Proxy) {
    let scene = Scene::set(proxy);
    for left in [2, 1, 0] {
        assert_admitted(&scene.get("/search"), "search", left);
    }
    for forged in [
        "X-Forwarded-For: 203.0.113.9",
        "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 203.0.113.10",
        "X-Real-IP: 203.0.113.9",
        "Forwarded: for=203.0.113.9",
        "X-Original-URI: /free",
        "X-Original-URL: http://example.com/free",
        "X-Original-Method: PUT\r\nX-Original-URI: /free",
        "X-Forwarded-Uri: /free",
        "X-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /free",
        "Connection: X-Forwarded-For, X-Forwarded-Uri, X-Original-URI, X-Original-Method",
        "Origin: https://elsewhere.example",
    ] {
        let headers = format!("{forged}\r\n");
        let answer = Ask { headers: &headers, ..Ask::new("GET /search") }.send(scene.proxy.address);
        assert_eq!(answer.status(), 429, "{forged}: {answer:?}");
    }
    let neighbour = Ask { from: NEIGHBOUR, ..Ask::new("GET /search") };
    assert_admitted(&neighbour.send(scene.proxy.address), "search", 2);
}

/// The address from the trusted proxy counts, and addresses to the left of it do not.
pub(crate) fn a_trusted_proxy_in_front_may_name_the_client(proxy: Proxy) {
    let policy = format!("client: {{trusted_proxies: [127.0.0.1]}}\n{POLICY}");
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), &policy);
    let app = Service::start(app);
    let between = Between { tollgate: UpstreamRequest::Answering(tollgate.api), app: app.address };
    let running = proxy.start_so(between, Setup::BehindAnother);
    let left = |from, named: &str| {
        let headers = format!("X-Forwarded-For: {named}\r\n");
        let answer = Ask { from, headers: &headers, ..Ask::new("GET /search") }.send(running.address);
        assert_eq!(answer.status(), 200, "{named}: {answer:?}");
        answer.header("x-ratelimit-remaining").unwrap().to_owned()
    };
    assert_eq!(left(CLIENT, "203.0.113.9"), "2");
    assert_eq!(left(CLIENT, "198.51.100.1, 203.0.113.9"), "1");
    assert_eq!(left(CLIENT, "203.0.113.10"), "2");
    assert_eq!(left(NEIGHBOUR, "203.0.113.11"), "2", "of the neighbour itself, which is not a trusted proxy");
    assert_eq!(left(NEIGHBOUR, "203.0.113.12"), "1");
}

pub(crate) fn limits_see_the_path_and_method_of_the_client(proxy: Proxy) {
    let scene = Scene::set(proxy);
    assert_admitted(&scene.get("/search?q=one&headers=forwarded"), "search", 2);
    assert_admitted(&scene.get("/%73earch"), "search", 1);
    let post = Ask::new("POST /posts").send(scene.proxy.address);
    assert_admitted(&post, "posts", 1);
    let free = scene.get("/posts");
    assert_eq!(
        (free.status(), free.header("tollgate-decision")),
        (200, None),
        "only POST is limited: {free:?}"
    );
    let seen = ["GET /search?q=one&headers=forwarded", "GET /%73earch", "POST /posts", "GET /posts"];
    // Some proxies normalize paths.
    let requests: Vec<String> = scene.app.requests().iter().map(|it| it.replace("%73", "s")).collect();
    assert_eq!(requests, seen.map(|it| it.replace("%73", "s")));
}

pub(crate) fn no_spelling_of_a_path_passes_its_limit(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let spellings =
        ["/search%2f", "/x%2f..%2fsearch", "/search;x", "/x/..;/search", "/%2fsearch", "/search%3bx"];
    let mut passed = 0;
    for path in spellings {
        passed += u32::from(scene.get(path).status() == 200);
    }
    assert_eq!(passed, 3, "as many as the limit on /search allows: {:?}", scene.app.requests());
}

pub(crate) fn methods_and_bodies_arrive_as_they_were_sent(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let body: Vec<u8> = (0..300_000_u32).map(|it| it.to_le_bytes()[it as usize % 3]).collect();
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let request = format!("{method} /free?x=%20y");
        let answer = Ask { body: &body, ..Ask::new(&request) }.send(scene.proxy.address);
        assert_eq!(answer.status(), 200, "{answer:?}");
        let seen = scene.app.seen().pop().unwrap();
        assert_eq!(seen.request(), request);
        assert!(seen.body == body, "{method}: {} bytes of {}", seen.body.len(), body.len());
    }
    for request in ["HEAD /free", "OPTIONS /free"] {
        assert_eq!(Ask::new(request).send(scene.proxy.address).status(), 200, "{request}");
        assert_eq!(scene.app.requests().pop().unwrap(), request);
    }
}

pub(crate) fn no_request_more_than_the_limit_passes(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let address = scene.proxy.address;
    let askers: Vec<_> =
        (0..50).map(|_| thread::spawn(move || Ask::new("GET /burst").send(address).status())).collect();
    let statuses: Vec<u16> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((count(200), count(429)), (20, 30), "{statuses:?}");
    assert_eq!(scene.app.requests().len(), 20);
}

pub(crate) fn what_else_refuses_keeps_its_status(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let banned = Ask { headers: "X-Banned: yes\r\n", ..Ask::new("GET /search") }.send(scene.proxy.address);
    assert_eq!((banned.status(), banned.header("retry-after")), (403, None), "{banned:?}");
    assert!(banned.header("tollgate-decision").is_some());
    assert_eq!(scene.app.requests().len(), 0);

    let broken = scene.get("/broken");
    assert_eq!((broken.status(), broken.body.as_slice()), (500, b"broken".as_slice()), "{broken:?}");
    let secret = scene.get("/secret");
    assert_eq!((secret.status(), secret.body.as_slice()), (403, b"secret".as_slice()), "{secret:?}");
}

/// The query of a client must not configure forward auth.
pub(crate) fn the_query_of_a_client_chooses_nothing(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let queries = ["q=x", "deny=200&headers=original", "headers=forwarded", "deny=418"];
    let headers = "X-Original-URI: /other\r\nX-Forwarded-Uri: /other\r\n";
    let ask =
        |query: &str| Ask { headers, ..Ask::new(&format!("GET /search?{query}")) }.send(scene.proxy.address);
    for (left, query) in [2, 1, 0].iter().zip(queries) {
        assert_admitted(&ask(query), "search", *left);
    }
    for query in queries {
        assert_refused(&ask(query), "search");
    }
}

pub(crate) fn two_keys_and_a_fresh_token_for_each_request_share_one_allowance(proxy: Proxy) {
    let scene = Scene::set(proxy);
    let statuses: Vec<_> = (0..8)
        .map(|turn| {
            let headers = format!("X-API-Key: own\r\nX-API-Key: {turn}\r\nAuthorization: Bearer {turn}\r\n");
            Ask { headers: &headers, ..Ask::new("GET /keys") }.send(scene.proxy.address).status()
        })
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429, 429]);
    assert_eq!(scene.app.requests().len(), 3);
}

/// Tollgate gets the request line, the client's address, and no body.
pub(crate) fn tollgate_gets_the_request_without_its_body(proxy: Proxy) {
    let tollgate =
        Service::start(|_| Some("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    let app = Service::start(app);
    let proxy =
        proxy.start(Between { tollgate: UpstreamRequest::Answering(tollgate.address), app: app.address });
    let headers = "X-API-Key: mine\r\nX-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\n\
                   X-Real-IP: 203.0.113.9\r\nTollgate-Token: guess\r\nExpect: 100-continue\r\n";
    let ask = Ask { from: NEIGHBOUR, headers, body: b"for the app", ..Ask::new("PUT /things/7?a=b") };
    // Some proxies answer `Expect` first, and then the rest follows.
    ask.send(proxy.address);
    assert_eq!(app.seen().pop().unwrap().body, b"for the app");

    let requests = questions(&tollgate);
    let [request] = requests.as_slice() else { panic!("one request: {requests:?}") };
    let family =
        if request.request().starts_with("GET /v1/auth/original") { "original" } else { "forwarded" };
    assert!(request.request().starts_with(&format!("GET /v1/auth/{family}")), "{request:?}");
    assert_eq!(request.header(&format!("x-{family}-uri")), Some("/things/7?a=b"));
    assert_eq!(request.header(&format!("x-{family}-method")), Some("PUT"));
    assert!(
        request.header(&format!("x-{family}-host")).unwrap().starts_with(&proxy.address.ip().to_string())
    );
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.2"));
    assert_eq!(request.header("forwarded"), None);
    assert!(matches!(request.header("x-real-ip"), None | Some("127.0.0.2")), "{request:?}");
    assert!(matches!(request.header("tollgate-token"), None | Some("none")), "{request:?}");
    assert_eq!(request.header("expect"), None);
    assert_eq!(request.header("x-api-key"), Some("mine"), "limits may be by it");
    assert!(matches!(request.header("content-length"), None | Some("0")), "{request:?}");
    assert_eq!(request.body, b"");
}

pub(crate) fn where_tollgate_wants_a_token_the_proxy_shows_it(proxy: Proxy) {
    let files = Scratch::new();
    let file = files.write("token", TOKEN);
    let wants = format!("admin.token_file={}", file.display());
    let tollgate = Tollgate::start_with(env!("CARGO_BIN_EXE_tollgate"), POLICY, &["--set", &wants]);
    let app = Service::start(app);
    let between = Between { tollgate: UpstreamRequest::Answering(tollgate.api), app: app.address };
    let shows = proxy.start_so(between, Setup::WithToken);
    assert_admitted(&Ask::new("GET /search").send(shows.address), "search", 2);

    // A header of the client does not count either.
    let lacks = proxy.start(between);
    let headers = format!("Tollgate-Token: {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n");
    let answer = Ask { headers: &headers, ..Ask::new("GET /search") }.send(lacks.address);
    assert_eq!(answer.status(), 401, "{answer:?}");
    assert_eq!(app.requests().len(), 1);
}

/// Tollgate is down, or does not respond.
pub(crate) fn without_an_answer_nothing_passes(proxy: Proxy) {
    let (silent, app) = (Service::start(|_| None), Service::start(app));
    for tollgate in [nobody(), silent.address] {
        let running = proxy.start(Between { tollgate: UpstreamRequest::Silent(tollgate), app: app.address });
        let answer = Ask { body: b"text", ..Ask::new("POST /posts") }.send(running.address);
        let expected: &[u16] = if proxy == Proxy::Caddy { &[502, 504] } else { &[503] };
        assert!(expected.contains(&answer.status()), "{answer:?}");
    }
    assert_eq!(app.requests().len(), 0);
    assert_eq!(questions(&silent).len(), 1, "asking again could charge twice");
}

pub(crate) fn without_an_answer_everything_passes_if_wished(proxy: Proxy) {
    let (silent, app) = (Service::start(|_| None), Service::start(app));
    for (index, tollgate) in [nobody(), silent.address].into_iter().enumerate() {
        let running = proxy.start_so(
            Between { tollgate: UpstreamRequest::Silent(tollgate), app: app.address },
            Setup::PassWithoutAnswer,
        );
        let answer = Ask { body: b"text", ..Ask::new("POST /posts") }.send(running.address);
        assert_eq!((answer.status(), answer.body.as_slice()), (200, b"hello".as_slice()), "{answer:?}");
        assert_eq!(answer.header("cache-control"), None);
        let seen = app.seen();
        assert_eq!(seen.len(), index + 1, "once: {seen:?}");
        assert_eq!((seen[index].request(), seen[index].body.as_slice()), ("POST /posts", b"text".as_slice()));
    }
}

/// Admitting requests without a response must not admit refused ones.
pub(crate) fn whoever_lets_pass_without_an_answer_still_refuses_with_one(proxy: Proxy) {
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), POLICY);
    let app = Service::start(app);
    let between = Between { tollgate: UpstreamRequest::Answering(tollgate.api), app: app.address };
    let running = proxy.start_so(between, Setup::PassWithoutAnswer);
    for left in [1, 0] {
        assert_admitted(&Ask::new("POST /posts").send(running.address), "posts", left);
    }
    assert_refused(&Ask::new("POST /posts").send(running.address), "posts");
    let banned = Ask { headers: "X-Banned: yes\r\n", ..Ask::new("GET /free") }.send(running.address);
    assert_eq!(banned.status(), 403, "{banned:?}");
    assert_eq!(app.requests().len(), 2);

    // A failure of the app is different: the request is not sent again.
    let closing = Service::start(|_| Some(""));
    let running = proxy.start_so(Between { app: closing.address, ..between }, Setup::PassWithoutAnswer);
    let answer = Ask::new("POST /free").send(running.address);
    assert_eq!(answer.status(), 502, "{answer:?}");
    assert_eq!(closing.requests(), ["POST /free"]);
}

/// A request that cannot be passed to Tollgate must not be admitted.
pub(crate) fn requests_of_any_size_are_refused_and_break_nothing(proxy: Proxy) {
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), POLICY);
    let app = Service::start(app);
    let between = Between { tollgate: UpstreamRequest::Answering(tollgate.api), app: app.address };
    let running = proxy.start_so(between, Setup::PassWithoutAnswer);
    for left in [2, 1, 0] {
        assert_admitted(&Ask::new("GET /search").send(running.address), "search", left);
    }
    let many = [20, 70, 79, 80, 90, 95, 98, 101, 130].map(|lines| (0, "X-Line: x\r\n".repeat(lines)));
    let large =
        [6_000, 12_000, 20_000, 60_000].map(|bytes| (0, format!("X-Large: {}\r\n", "x".repeat(bytes))));
    let long =
        [4_000, 7_000, 7_900, 12_000].map(|bytes| (bytes, format!("X-Large: {}\r\n", "x".repeat(7_000))));
    for (query, headers) in many.into_iter().chain(large).chain(long) {
        let request = format!("GET /search?{}", "q".repeat(query));
        let answer = Ask { headers: &headers, ..Ask::new(&request) }.send(running.address);
        let status = answer.status();
        assert!((400..=500).contains(&status), "{status} for {query} and {} bytes", headers.len());
    }
    assert_eq!(app.requests().len(), 3);
    assert_refused(&Ask::new("GET /search").send(running.address), "search");
}

/// Returns the requests to a Tollgate of the test, except health checks.
fn questions(tollgate: &Service) -> Vec<Message> {
    let mut seen = tollgate.seen();
    seen.retain(|request| request.request() != "GET /healthz");
    seen
}

/// Returns an address without a listener.
fn nobody() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], tollgate_testkit::free_port()))
}
