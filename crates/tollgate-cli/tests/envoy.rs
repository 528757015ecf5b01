//! A real Envoy with a real Tollgate, using the file in `integrations/envoy`.
//!
//! The file runs as users copy it, with other addresses and with long timeouts, so that a busy machine
//! does not affect the result. `envoy/features.yaml` has further routes. `make test` installs Envoy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "requests that are held take real time")]

pub(crate) mod app;
mod deadline;
mod ext_authz;
mod kgateway;
mod load;
pub(crate) mod proxy;
mod stream_done;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::integrations::message::{Ask, Message};
use app::App;
use load::{Load, Statuses};
use proxy::{Between, Envoy, copied, features, integration, replaced};
use tollgate_testkit::{Scratch, Tollgate, free_port};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
/// The number of requests in a load.
const LOAD: u64 = 10_000;

/// Starts a Tollgate with a rate limit service on a free port.
fn tollgate(policy: &str) -> (Tollgate, SocketAddr) {
    serving(policy, &["--listen-rls=127.0.0.1:0"])
}

fn serving(policy: &str, arguments: &[&str]) -> (Tollgate, SocketAddr) {
    let tollgate = Tollgate::start_with(BINARY, policy, arguments);
    let rls = tollgate.rls.unwrap_or_else(|| panic!("no rate limit service: {}", tollgate.log()));
    (tollgate, rls)
}

/// Starts a Tollgate on files of envoyproxy/ratelimit, which leaves `X-RateLimit-*` to Envoy.
fn on_envoys_files(text: &str) -> (Tollgate, SocketAddr, Scratch) {
    let folder = Scratch::new();
    folder.write("edge.yaml", text);
    let envoy_config = format!("--envoy-config={}", folder.path().display());
    let (tollgate, rls) =
        serving("limits: []\nrls: {headers: refusals}\n", &["--listen-rls=127.0.0.1:0", &envoy_config]);
    (tollgate, rls, folder)
}

fn ask(envoy: &Envoy, request: &str, headers: &str) -> Message {
    Ask { headers, ..Ask::new(request) }.send(envoy.address)
}

/// Returns the statuses of sequential requests.
fn statuses(envoy: &Envoy, request: &str, headers: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| ask(envoy, request, headers).status()).collect()
}

#[test]
fn a_refusal_is_429_with_our_headers_and_body_and_never_reaches_the_service() {
    let (app, policy) = (App::start(), fs::read_to_string(integration("policy.yaml")).unwrap());
    let (_tollgate, rls) = tollgate(&policy);
    let envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    for left in (0..5).rev() {
        let admitted = ask(&envoy, "POST /login", "");
        assert_eq!((admitted.status(), admitted.body.as_slice()), (200, &b"hello"[..]), "{admitted:?}");
        assert_eq!(admitted.header("x-ratelimit-remaining"), Some(left.to_string().as_str()), "{admitted:?}");
        assert_eq!(admitted.header("x-ratelimit-limit"), Some("5"), "{admitted:?}");
    }
    let refused = ask(&envoy, "POST /login", "");
    assert_eq!(refused.status(), 429, "{refused:?}");
    assert_eq!(refused.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=12).contains(&wait), "{refused:?}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["status"], 429, "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.body).contains("login"), "{refused:?}");
    assert_eq!(app.seen(), 5);
    // Other routes have other limits.
    assert_eq!(ask(&envoy, "GET /search", "").status(), 200);
    assert_eq!(ask(&envoy, "GET /loginpage", "").status(), 200);
    assert_eq!(envoy.counted("cluster.app.ratelimit.over_limit"), 1);
    assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0);
}

#[test]
fn an_exhausted_descriptor_refuses_and_charges_none() {
    let app = App::start();
    let policy = "limits:\n\
        - {name: addresses, domain: edge, descriptor: [remote_address], bucket: \"1/day, burst 4\"}\n\
        - {name: keys, domain: edge, descriptor: [api_key], bucket: \"1/day, burst 2\"}\n";
    let (_tollgate, rls) = tollgate(policy);
    let envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /", "X-Api-Key: ann\r\n", 4), [200, 200, 429, 429]);
    let refused = ask(&envoy, "GET /", "X-Api-Key: ann\r\n");
    assert!(String::from_utf8_lossy(&refused.body).contains("keys"), "{refused:?}");
    // The refusals of ann were not charged to her address.
    assert_eq!(statuses(&envoy, "GET /", "", 3), [200, 200, 429]);
    assert_eq!(ask(&envoy, "GET /", "X-Api-Key: bob\r\n").status(), 429, "the address has spent all");
}

#[test]
fn requests_of_a_queue_reach_the_service_when_they_may_start() {
    let app = App::start();
    let policy = "limits:\n- {name: slow, domain: edge, descriptor: [remote_address], \
        algorithm: leaky-queue, rate: 2/second, queue: {length: 50}}\n";
    let (_tollgate, rls) = tollgate(policy);
    let envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    let started_at = Instant::now();
    assert_eq!(statuses(&envoy, "GET /", "", 3), [200; 3]);
    assert!(started_at.elapsed() >= Duration::from_secs(1), "the third starts a second after the first");
    assert_eq!(app.seen(), 3);
}

#[test]
fn a_request_is_refused_if_envoy_does_not_wait_for_its_turn() {
    let app = App::start();
    // Envoy waits 30 seconds for an answer, Tollgate would hold it for a minute.
    let policy = "limits:\n- {name: slow, domain: edge, descriptor: [remote_address], \
        algorithm: leaky-queue, rate: 1/minute, queue: {length: 50}}\nrls: {wait: 1m}\n";
    let (_tollgate, rls) = tollgate(policy);
    let envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /", "", 3), [200, 429, 429]);
    let refused = ask(&envoy, "GET /", "");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.body).contains("slow"), "{refused:?}");
    assert_eq!(app.seen(), 1);
}

#[test]
fn a_client_that_leaves_envoy_while_it_waits_gives_its_place_back() {
    let app = App::start();
    let policy = "limits:\n- {name: slow, domain: edge, descriptor: [remote_address], \
        algorithm: leaky-queue, rate: 1/20s, queue: {length: 1}}\nrls: {wait: 1m}\n";
    let (tollgate, rls) = tollgate(policy);
    let mut envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    assert_eq!(ask(&envoy, "GET /", "").status(), 200);
    let waiting = |count: &str| {
        let metrics = Ask::new("GET /metrics").send(tollgate.api);
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        metrics.lines().any(|line| line.strip_prefix("tollgate_rls_waiting ") == Some(count))
    };
    // The queue has one place, so the second client waits only if the first has left it.
    for _ in 0..2 {
        let mut client = TcpStream::connect(envoy.address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        envoy.program.wait_until("a client waits", || waiting("1"));
        drop(client);
        envoy.program.wait_until("no client waits", || waiting("0"));
    }
    assert_eq!(app.seen(), 1);
}

/// The copied file, in the domain whose descriptors describe requests.
fn describing() -> String {
    let described = "- request_headers: {header_name: \":method\", descriptor_key: method}\n\
        \u{20}                                 - request_headers: {header_name: \":path\", descriptor_key: path}";
    let text = replaced(&copied(), "domain: edge", "domain: tollgate");
    replaced(&text, "- generic_key: {descriptor_key: route, descriptor_value: login}", described)
}

#[test]
fn descriptors_of_the_domain_tollgate_match_limits_on_endpoints() {
    let app = App::start();
    let policy =
        "limits:\n- {name: login, endpoint: /login, method: POST, by: ip, bucket: \"1/day, burst 2\"}\n";
    let (_tollgate, rls) = tollgate(policy);
    let envoy = Envoy::start(&describing(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "POST /login?a=b", "", 3), [200, 200, 429]);
    assert_eq!(statuses(&envoy, "GET /login", "", 3), [200; 3]);
}

/// Returns the statuses of requests with this header as bytes, because a client may send any.
fn statuses_of(envoy: &Envoy, request: &str, header: &[u8]) -> Vec<u16> {
    let send = |_| {
        let mut stream = TcpStream::connect(envoy.address).unwrap();
        let first = format!("{request} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        stream.write_all(&[first.as_bytes(), header, b"\r\n"].concat()).unwrap();
        Message::read(&mut stream).unwrap().status()
    };
    (0..4).map(send).collect()
}

#[test]
fn no_header_of_a_client_bypasses_its_limits() {
    let policy = "limits:\n\
        - {name: addresses, domain: edge, descriptor: [remote_address], bucket: \"1/day, burst 6\"}\n\
        - {name: keys, domain: edge, descriptor: [api_key], bucket: \"1/day, burst 2\"}\n";
    let file = "domain: edge\ndescriptors:\n\
        - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 12}}\n\
        - {key: api_key, rate_limit: {unit: year, requests_per_unit: 2}}\n";
    let app = App::start();
    let (_native, on_policy) = tollgate(policy);
    let (_files, on_files, _folder) = on_envoys_files(file);
    let headers = [
        format!("X-Api-Key: {}\r\n", "a".repeat(9_000)).into_bytes(),
        format!("X-Api-Key: {}\r\n", "b".repeat(50_000)).into_bytes(),
        b"X-Api-Key: \xff\xfe\r\n".to_vec(),
    ];
    for rls in [on_policy, on_files] {
        let envoy = Envoy::start(&copied(), Between { rls, app: app.address });
        for header in &headers {
            assert_eq!(statuses_of(&envoy, "GET /", header), [200, 200, 429, 429], "{}", header.len());
        }
        assert_eq!(statuses_of(&envoy, "GET /", &headers[2]), [429; 4]);
        assert_eq!(ask(&envoy, "GET /", "").status(), 429, "the address has spent all");
        assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0);
    }
}

#[test]
fn no_query_of_a_client_bypasses_limits_on_endpoints() {
    let app = App::start();
    let policy = "limits:\n- {name: login, endpoint: /login, by: ip, bucket: \"1/day, burst 2\"}\n";
    let (_tollgate, rls) = tollgate(policy);
    let envoy = Envoy::start(&describing(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /login", "", 3), [200, 200, 429]);
    let query = format!("GET /login?{}", "a".repeat(9_000));
    assert_eq!(statuses(&envoy, &query, "", 3), [429; 3]);
    assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0);
}

#[test]
fn files_of_envoyproxy_ratelimit_decide_the_same() {
    let app = App::start();
    let text = fs::read_to_string(integration("ratelimit/edge.yaml")).unwrap();
    // A minute may end during the test, a year does not.
    let (_tollgate, rls, _folder) =
        on_envoys_files(&replaced(&text, "name: login, unit: minute", "name: login, unit: year"));
    let envoys_headers = replaced(&copied(), "#enable_x_ratelimit_headers", "enable_x_ratelimit_headers");
    let envoy = Envoy::start(&envoys_headers, Between { rls, app: app.address });
    for left in (0..5).rev() {
        let admitted = ask(&envoy, "GET /login", "");
        assert_eq!(admitted.status(), 200, "{admitted:?}");
        assert_eq!(
            admitted.header("x-ratelimit-limit"),
            Some("5, 5;w=31536000;name=\"login\""),
            "{admitted:?}"
        );
        assert_eq!(admitted.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
        let reset: u64 = admitted.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert!((1..=31_536_000).contains(&reset), "{admitted:?}");
    }
    let refused = ask(&envoy, "GET /login", "");
    assert_eq!((refused.status(), refused.header("x-envoy-ratelimited")), (429, Some("true")), "{refused:?}");
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert!(refused.header("retry-after").is_some_and(|it| it.parse::<u64>().unwrap() > 0), "{refused:?}");
    assert_eq!(refused.json()["status"], 429, "{refused:?}");
    assert_eq!(ask(&envoy, "GET /elsewhere", "").status(), 200);
}

#[test]
fn descriptors_are_counted_separately_and_unknown_ones_are_not_limited() {
    let app = App::start();
    let (_tollgate, rls, _folder) = on_envoys_files(include_str!("envoy/ratelimit.yaml"));
    let envoy = Envoy::start(&features(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /user", "X-User: ann\r\n", 3), [200, 200, 429]);
    assert_eq!(statuses(&envoy, "GET /user", "X-User: bob\r\n", 3), [200, 200, 429]);
    assert_eq!(statuses(&envoy, "GET /unheard-of", "", 5), [200; 5]);
    assert_eq!(ask(&envoy, "GET /unheard-of", "").header("x-ratelimit-limit"), None);
    // Both are counted, the smaller one refuses; Envoy shows the limit with the least left.
    assert_eq!(statuses(&envoy, "GET /two", "", 3), [200, 200, 429]);
    let refused = ask(&envoy, "GET /two", "");
    assert_eq!(refused.header("x-ratelimit-limit"), Some("2, 100;w=31536000, 2;w=31536000"), "{refused:?}");
}

#[test]
fn hits_addend_is_counted_in_full_beyond_the_limit() {
    let app = App::start();
    let (_tollgate, rls, _folder) = on_envoys_files(include_str!("envoy/ratelimit.yaml"));
    let envoy = Envoy::start(&features(), Between { rls, app: app.address });
    let first = ask(&envoy, "GET /cost", "X-Cost: 7\r\n");
    assert_eq!((first.status(), first.header("x-ratelimit-remaining")), (200, Some("3")), "{first:?}");
    assert_eq!(ask(&envoy, "GET /cost", "X-Cost: 4\r\n").status(), 429);
    assert_eq!(ask(&envoy, "GET /cost", "X-Cost: 1\r\n").status(), 429, "the refused four were counted");
}

#[test]
fn a_route_may_bring_its_own_limit() {
    let app = App::start();
    let (_tollgate, rls, _folder) = on_envoys_files(include_str!("envoy/ratelimit.yaml"));
    let envoy = Envoy::start(&features(), Between { rls, app: app.address });
    let first = ask(&envoy, "GET /override", "");
    assert_eq!(first.header("x-ratelimit-limit"), Some("2, 2;w=31536000"), "{first:?}");
    assert_eq!(statuses(&envoy, "GET /override", "", 2), [200, 429]);
}

#[test]
fn a_limit_in_shadow_mode_does_not_refuse() {
    let app = App::start();
    let (_tollgate, rls, _folder) = on_envoys_files(include_str!("envoy/ratelimit.yaml"));
    let envoy = Envoy::start(&features(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /shadow", "", 4), [200; 4]);
    assert_eq!(statuses(&envoy, "GET /plain", "", 4), [200, 200, 200, 429]);
}

#[test]
fn an_edited_file_is_in_force_without_a_restart() {
    let app = App::start();
    let (mut tollgate, rls, folder) = on_envoys_files(include_str!("envoy/ratelimit.yaml"));
    let envoy = Envoy::start(&features(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /plain", "", 4), [200, 200, 200, 429]);
    let more =
        include_str!("envoy/ratelimit.yaml").replace("requests_per_unit: 3", "requests_per_unit: 1000000");
    folder.write("edge.yaml", &more);
    tollgate.program.wait_until("new limit", || ask(&envoy, "GET /plain", "").status() == 200);
    folder.write("edge.yaml", "domain: [");
    let (program, log) = (&mut tollgate.program, tollgate.files.path().join("stderr.log"));
    program.wait_until("complaint", || fs::read_to_string(&log).unwrap().contains("edge.yaml:1:"));
    assert_eq!(ask(&envoy, "GET /plain", "").status(), 200, "a bad file changes nothing");
}

#[test]
fn without_a_response_the_failure_mode_of_the_filter_applies() {
    let (app, nobody) = (App::start(), SocketAddr::from(([127, 0, 0, 1], free_port())));
    let between = Between { rls: nobody, app: app.address };
    let open = Envoy::start(&copied(), between);
    assert_eq!(statuses(&open, "GET /login", "", 8), [200; 8]);
    assert_eq!(open.counted("cluster.app.ratelimit.failure_mode_allowed"), 8);
    let closed = replaced(&copied(), "failure_mode_deny: false", "failure_mode_deny: true");
    let closed = Envoy::start(&closed, between);
    assert_eq!(statuses(&closed, "GET /login", "", 3), [500; 3]);
    assert_eq!(app.seen(), 8);
}

#[test]
fn of_ten_thousand_concurrent_requests_exactly_the_limit_is_admitted() {
    let app = App::start();
    let (_tollgate, rls) = tollgate(
        "limits:\n- {name: addresses, domain: edge, descriptor: [remote_address], bucket: \"3/day, burst 3000\"}\n",
    );
    let envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    let seen = load::send(envoy.address, "/", &Load::of(LOAD));
    assert_eq!(seen, Statuses::from([(200, 3_000), (429, LOAD - 3_000)]));
    assert_eq!(app.seen(), 3_000);
    assert_eq!(envoy.counted("cluster.app.ratelimit.ok"), 3_000);
    assert_eq!(envoy.counted("cluster.app.ratelimit.over_limit"), LOAD - 3_000);
    assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0);
}

/// Sends a load while Tollgate is replaced by another one, each with a limit of a thousand. Returns the
/// statuses, the requests that were admitted without a response, and the number of missing responses.
fn load_across_a_restart(config: &str) -> (Statuses, u64, u64) {
    let (app, port) = (App::start(), free_port());
    let listen = format!("--listen-rls=127.0.0.1:{port}");
    let policy = "limits:\n- {name: addresses, domain: edge, descriptor: [remote_address], bucket: \"1/day, burst 1000\"}\n";
    let (mut first, rls) = serving(policy, &[&listen]);
    let mut envoy = Envoy::start(config, Between { rls, app: app.address });
    envoy.wait_for_health("healthy");
    // Until the second server has been called too.
    let (load, address) = (Load::of(u64::MAX), envoy.address);
    let (statuses, _second) = thread::scope(|scope| {
        let sending = scope.spawn(|| load::send(address, "/", &load));
        load.wait_for(LOAD / 4);
        first.program.signal("TERM");
        assert!(first.program.wait().success(), "{}", first.log());
        load.wait_for(500);
        let second = serving(policy, &[&listen]);
        envoy.wait_for_health("healthy");
        load.wait_for(LOAD / 4);
        load.end_at(LOAD);
        (sending.join().unwrap(), second)
    });
    let counted = |what: &str| envoy.counted(&format!("cluster.app.ratelimit.{what}"));
    assert!(statuses.values().sum::<u64>() >= LOAD, "{statuses:?}");
    (statuses, counted("failure_mode_allowed"), counted("error"))
}

#[test]
fn while_tollgate_restarts_no_client_sees_an_error_where_requests_may_pass() {
    let (statuses, allowed, errors) = load_across_a_restart(&copied());
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 429], "{statuses:?}");
    // Admitted requests and requests without a response, nothing else.
    assert!(allowed >= 400 && allowed == errors, "{allowed} of {errors}");
    assert_eq!(statuses[&200] - allowed, 2_000, "{statuses:?}, {allowed} without an answer");
}

#[test]
fn while_tollgate_restarts_clients_see_500_only_where_requests_may_not_pass() {
    let closed = replaced(&copied(), "failure_mode_deny: false", "failure_mode_deny: true");
    let (statuses, allowed, errors) = load_across_a_restart(&closed);
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 429, 500], "{statuses:?}");
    assert_eq!((allowed, statuses[&500]), (0, errors), "{statuses:?}");
    assert_eq!(statuses[&200], 2_000, "{statuses:?}");
}

#[test]
fn envoys_health_check_notices_a_restart_of_tollgate() {
    let (app, port) = (App::start(), free_port());
    let listen = format!("--listen-rls=127.0.0.1:{port}");
    let (mut first, rls) = serving("limits: []\n", &[&listen]);
    let mut envoy = Envoy::start(&copied(), Between { rls, app: app.address });
    envoy.wait_for_health("healthy");
    first.program.signal("TERM");
    first.program.wait();
    envoy.wait_for_health("/failed_active_hc");
    assert_eq!(ask(&envoy, "GET /", "").status(), 200, "it is not waited for");
    let _second = serving("limits: []\n", &[&listen]);
    envoy.wait_for_health("healthy");
    // Envoy's workers learn of it shortly after it is reported.
    let is_called = (0..1_000).any(|_| {
        assert_eq!(ask(&envoy, "GET /", "").status(), 200);
        envoy.counted("cluster.app.ratelimit.ok") > 0
    });
    assert!(is_called, "it is healthy, and asked again");
}
