//! `store: redis://…` with the binary, on a real Redis.
//!
//! Deadlines are long, so that a busy machine does not affect the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

pub(crate) mod versions;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;

use crate::service::client::{Client, get, get_json, post_json};
use serde_json::Value;
use tollgate_testkit::{Redis, RedisCluster, Scratch, SentinelTrio, Tollgate, wait_until};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A limit for all callers that is not refilled within a test.
pub(crate) fn policy(units: u32, store: &str) -> String {
    format!(
        "store: {{deadline: 10s, {store}}}\ngateway: {{workers: 1}}\n\
         limits:\n  - {{name: api, by: global, bucket: {units}/day}}\n"
    )
}

pub(crate) fn start(units: u32, store: &str) -> Tollgate {
    Tollgate::start(BINARY, &policy(units, store))
}

pub(crate) fn check(api: SocketAddr) -> Value {
    post_json(api, "/v1/check", r#"{"path":"/","ip":"203.0.113.9"}"#)
}

/// Returns the number of admitted checks, none of them degraded.
pub(crate) fn admitted(api: SocketAddr, checks: usize) -> usize {
    let answers = (0..checks).map(|_| check(api));
    answers
        .filter(|answer| {
            assert_eq!(answer["degraded"], false, "{answer}");
            answer["allowed"] == true
        })
        .count()
}

pub(crate) fn metrics(api: SocketAddr) -> String {
    String::from_utf8(get(api, "/metrics").body).unwrap()
}

/// Returns one value of that page.
#[track_caller]
pub(crate) fn counted(name: &str, page: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

pub(crate) fn stop(tollgate: Tollgate) {
    tollgate.program.signal("TERM");
    ends_well(tollgate);
}

fn ends_well(mut tollgate: Tollgate) {
    assert_eq!(tollgate.program.wait().code(), Some(0), "{}", tollgate.log());
}

/// Calls two servers concurrently, and returns the servers and the number of admissions.
pub(crate) fn spend_one_budget(store: &str) -> ([Tollgate; 2], usize) {
    let start = || Tollgate::start_with(BINARY, &policy(100, store), &["--set", "gateway.workers=2"]);
    let (one, other) = (start(), start());
    let callers: Vec<_> = (0..8)
        .map(|number| {
            let api = if number % 2 == 0 { one.api } else { other.api };
            thread::spawn(move || admitted(api, 20))
        })
        .collect();
    let total = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    ([one, other], total)
}

/// Calls two servers concurrently: the number of admissions is exactly the limit.
#[track_caller]
fn share_one_budget(store: &str) {
    let ([one, other], total) = spend_one_budget(store);
    assert_eq!(total, 100, "{}\n{}", one.log(), other.log());
    // The gateway uses the same store.
    assert_eq!(get(one.gateway, "/").status, 429);
    stop(one);
    stop(other);
}

#[test]
fn two_servers_share_one_budget_exactly() {
    let redis = Redis::start();
    share_one_budget(&format!("url: '{}'", redis.url()));
}

#[test]
fn counts_survive_a_restart_of_the_server() {
    let redis = Redis::start();
    let store = format!("url: '{}'", redis.url());
    let first = start(5, &store);
    assert!(first.log().contains(&format!("  store    {}, 10000 ms\n", redis.url())), "{}", first.log());
    assert!(!first.log().contains("warning"), "{}", first.log());
    assert_eq!(admitted(first.api, 3), 3);
    stop(first);
    let second = start(5, &store);
    assert_eq!(admitted(second.api, 5), 2);
    assert_eq!(get(second.gateway, "/").status, 429);
}

/// An upstream that reports the cost of each response.
fn costing(used: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _head = stream.read(&mut [0; 4096]);
            let body = format!(r#"{{"usage":{{"total":{used}}}}}"#);
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _gone = stream.write_all((head + &body).as_bytes());
        }
    });
    address
}

#[test]
fn a_final_cost_is_settled_in_redis_and_slots_are_released() {
    let redis = Redis::start();
    let policy = format!(
        "store: {{deadline: 10s, url: '{}'}}\ngateway: {{workers: 1, upstream: 'http://{}'}}\n\
         limits:\n  - {{name: tokens, by: global, bucket: 1000/day, cost: {{reserve: 100, settle: 'json:usage.total'}}}}\n  \
         - {{name: requests, by: global, bucket: 50/day}}\n  - {{name: at-once, by: global, slots: 1}}\n",
        redis.url(),
        costing(250),
    );
    let (mut one, other) = (Tollgate::start(BINARY, &policy), Tollgate::start(BINARY, &policy));
    let left = |api| {
        let limits = post_json(api, "/v1/check", r#"{"path":"/","cost":0}"#)["limits"].clone();
        [0, 1, 2].map(|at| limits[at]["remaining"].as_u64().unwrap())
    };
    for (round, expected) in [[750, 49, 1], [500, 48, 1], [250, 47, 1]].into_iter().enumerate() {
        assert_eq!(get(one.gateway, "/").status, 200);
        let api = other.api;
        one.program.wait_until(&format!("settling number {round}"), || left(api) == expected);
    }
    stop(other);
    stop(one);
}

/// An upstream that responds on command, and reports its cost.
fn start_upstream_with_cost(used: u32, go_on: mpsc::Receiver<()>, began: mpsc::Sender<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _head = stream.read(&mut [0; 4096]);
        began.send(()).unwrap();
        go_on.recv().unwrap();
        let body = format!(r#"{{"usage":{{"total":{used}}}}}"#);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _gone = stream.write_all((head + &body).as_bytes());
    });
    address
}

#[test]
fn the_slot_of_a_long_request_is_renewed_in_redis() {
    let redis = Redis::start();
    let ((go_on, may_go_on), (began, has_begun)) = (mpsc::channel(), mpsc::channel());
    let policy = format!(
        "store: {{deadline: 10s, url: '{}'}}\ngateway: {{workers: 1, upstream: 'http://{}'}}\n\
         limits:\n  - {{name: slots, by: global, slots: 1, ttl: 15s}}\n",
        redis.url(),
        start_upstream_with_cost(1, may_go_on, began),
    );
    let tollgate = Tollgate::start(BINARY, &policy);
    let (gateway, api) = (tollgate.gateway, tollgate.api);
    let client = thread::spawn(move || get(gateway, "/").status);
    has_begun.recv().unwrap();
    let lease = || {
        let limits = post_json(api, "/v1/check", r#"{"path":"/","cost":0}"#)["limits"].clone();
        limits[0]["reset_after_ms"].as_u64().unwrap()
    };
    let mut last = lease();
    wait_until("the lease starts again", || {
        let now = lease();
        std::mem::replace(&mut last, now) < now
    });
    go_on.send(()).unwrap();
    assert_eq!(client.join().unwrap(), 200);
    stop(tollgate);
}

#[test]
fn a_cost_known_during_an_outage_is_settled_afterwards() {
    // Killed, frozen and continued, frozen and killed.
    for (used, left, is_frozen, is_restarted) in [
        (250, 750, false, true),
        (20, 980, false, true),
        (250, 750, true, false),
        (20, 980, true, false),
        (250, 750, true, true),
        (20, 980, true, true),
    ] {
        // The reservation survives the restart.
        let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let ((go_on, may_go_on), (begin, began)) = (mpsc::channel(), mpsc::channel());
        let policy = format!(
            "store: {{deadline: 1s, url: '{}'}}\ngateway: {{workers: 1, upstream: 'http://{}'}}\n\
             limits:\n  - {{name: tokens, by: global, bucket: 1000/day, cost: {{reserve: 100, settle: 'json:usage.total'}}}}\n  \
             - {{name: at-once, by: global, slots: 1, ttl: 1h}}\n",
            redis.url(),
            start_upstream_with_cost(used, may_go_on, begin),
        );
        let mut tollgate = Tollgate::start(BINARY, &policy);
        let (api, gateway) = (tollgate.api, tollgate.gateway);
        let caller = thread::spawn(move || get(gateway, "/").status);
        began.recv().unwrap();
        let stood = || {
            let answer = post_json(api, "/v1/check", r#"{"path":"/","cost":0}"#);
            let degraded = answer["degraded"] == true;
            (degraded, [0, 1].map(|at| answer["limits"][at]["remaining"].as_u64()))
        };
        assert_eq!(stood(), (false, [Some(900), Some(0)]));
        if is_frozen {
            redis.pause();
        } else {
            redis.kill();
        }
        go_on.send(()).unwrap();
        assert_eq!(caller.join().unwrap(), 200);
        tollgate.program.wait_until("keeping the cost and the slot", || {
            counted("tollgate_ledger_keys", &metrics(api)) == 2
        });
        if is_restarted {
            redis.restart();
        } else {
            redis.resume();
        }
        tollgate.program.wait_until("settling", || stood() == (false, [Some(left), Some(1)]));
        // A cost that Redis applied late is repeated under its id, which changes nothing.
        tollgate.program.wait_until("confirming", || counted("tollgate_ledger_keys", &metrics(api)) == 0);
        assert_eq!(stood(), (false, [Some(left), Some(1)]));
    }
}

#[test]
fn a_settlement_during_a_freeze_is_kept_and_a_repetition_changes_nothing() {
    let redis = Redis::start();
    let policy = format!(
        "store: {{deadline: 1s, url: '{}'}}\nlimits: [{{name: tokens, by: global, bucket: 1000/day}}]\n",
        redis.url()
    );
    let mut tollgate = Tollgate::start(BINARY, &policy);
    let api = tollgate.api;
    let id = post_json(api, "/v1/check", r#"{"path":"/","cost":10}"#)["id"].clone();
    let settle = || post_json(api, "/v1/settle", &format!(r#"{{"id":{id},"cost":300}}"#))["cost"].as_u64();
    redis.pause();
    assert_eq!((settle(), settle()), (Some(300), Some(300)), "kept");
    redis.resume();
    let left = || {
        let answer = post_json(api, "/v1/check", r#"{"path":"/","cost":0}"#);
        (answer["degraded"] == true, answer["limits"][0]["remaining"].as_u64())
    };
    tollgate.program.wait_until("settling", || {
        left() == (false, Some(700)) && counted("tollgate_ledger_keys", &metrics(api)) == 0
    });
    assert_eq!((settle(), left()), (Some(300), (false, Some(700))), "once");
}

#[test]
fn a_flag_and_a_variable_can_set_the_store() {
    let redis = Redis::start();
    let url = redis.url();
    let limits = "limits:\n  - {name: api, by: global, bucket: 3/day}\n";
    let set = format!("store={{url: '{url}', deadline: 10s}}");
    for (spent, arguments) in [(1, ["--store", &url]), (2, ["--set", &set])] {
        let tollgate = Tollgate::start_with(BINARY, limits, &arguments);
        let answer = check(tollgate.api);
        assert!(tollgate.log().contains(&format!("  store    {url}, ")), "{}", tollgate.log());
        if arguments[0] == "--set" {
            assert_eq!(answer["limits"][0]["remaining"], 3 - spent, "{answer}");
        }
    }
}

#[test]
fn without_redis_the_server_starts_degraded_and_recovers() {
    let redis = Redis::start();
    redis.kill();
    let mut tollgate = start(100, &format!("url: '{}', outage: {{failures: 1}}", redis.url()));
    let log = tollgate.log();
    assert!(log.contains(&format!("warning: cannot use the store {}: ", redis.url())), "{log}");
    assert!(log.contains("on_outage"), "{log}");
    let answer = check(tollgate.api);
    assert_eq!((&answer["allowed"], &answer["degraded"]), (&true.into(), &true.into()), "{answer}");
    assert_eq!(get(tollgate.gateway, "/").status, 200);
    let ready = get_json(tollgate.api, "/readyz");
    assert_eq!(ready["store"]["state"], "degraded", "{ready}");
    assert_eq!(get(tollgate.api, "/readyz").status, 200);

    redis.restart();
    // Two degraded decisions so far.
    let (api, mut owed) = (tollgate.api, 2);
    tollgate.program.wait_until("an answer of Redis", || {
        let answer = check(api);
        // A long wait exhausts the share of the outage.
        owed += u64::from(answer["degraded"] == true && answer["allowed"] == true);
        answer["degraded"] == false
    });
    // Requests that were admitted without Redis are charged to it without further traffic.
    tollgate.program.wait_until("charging what is owed", || {
        counted("tollgate_replayed_units_total", &metrics(api)) == owed
    });
    let answer = check(api);
    assert_eq!(answer["degraded"], false, "{answer}");
    assert_eq!(answer["limits"][0]["remaining"], 100 - owed - 2, "{answer}");
    assert!(tollgate.log().contains("the store answers again"), "{}", tollgate.log());
}

#[test]
fn a_node_without_traffic_notices_an_outage_and_its_end() {
    let redis = Redis::start();
    redis.kill();
    let mut tollgate = start(100, &format!("url: '{}'", redis.url()));
    let api = tollgate.api;
    // There was no request.
    let store = get_json(api, "/readyz")["store"].clone();
    assert_eq!((&store["state"], &store["degraded_decisions"]), (&"degraded".into(), &0.into()), "{store}");
    assert_eq!(store["address"], redis.url(), "{store}");
    assert!(store["error"].as_str().is_some_and(|it| it.contains("refused")), "{store}");
    assert!(store["since"].is_string() && store["failures"].as_u64() > Some(0), "{store}");
    assert_eq!(counted("tollgate_store_up", &metrics(api)), 0);
    redis.restart();
    tollgate.program.wait_until("Redis to be found", || get_json(api, "/readyz")["store"]["state"] == "ok");
    assert_eq!(counted("tollgate_store_up", &metrics(api)), 1);
    redis.kill();
    tollgate.program.wait_until("Redis to be missed", || get_json(api, "/readyz")["store"]["state"] != "ok");
    assert_eq!(counted("tollgate_store_up", &metrics(api)), 0);
}

/// Returns the number of keys in all log lines with these words.
fn keys_that(words: &str, log: &str) -> u64 {
    let lines = log.lines().filter(|line| line.contains(words));
    let keys = lines.map(|line| line.split_once("keys=").unwrap().1);
    keys.map(|it| it.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap())
        .sum()
}

const CHARGED: &str = "charged the store with what was admitted without it";
const LOST: &str = "what these keys spent without it: that is lost";

#[test]
fn outstanding_charges_at_shutdown_are_charged_or_logged_as_lost() {
    const OWED: u64 = 20;
    let redis = Redis::start();
    let config = format!(
        "store: {{url: '{}', deadline: 100ms, outage: {{failures: 1}}}}\ngateway: {{workers: 1}}\n\
         limits:\n  - {{name: api, by: user, bucket: 100/day}}\n",
        redis.url()
    );
    let check = |api, user: &str| post_json(api, "/v1/check", &format!(r#"{{"path":"/","user":"{user}"}}"#));
    // Has outstanding charges for this many callers while Redis does not answer, and is told to stop.
    let end = |turn: u64, is_back: bool| {
        let mut tollgate = Tollgate::start(BINARY, &config);
        redis.pause();
        let api = tollgate.api;
        let look = r#"{"path":"/","user":"nobody","cost":0}"#;
        tollgate
            .program
            .wait_until("a degraded answer", || post_json(api, "/v1/check", look)["degraded"] == true);
        for caller in 0..OWED {
            let answer = check(api, &format!("{turn}-{caller}"));
            assert_eq!((&answer["allowed"], &answer["degraded"]), (&true.into(), &true.into()), "{answer}");
        }
        assert_eq!(counted("tollgate_ledger_keys", &metrics(api)), OWED);
        if is_back {
            redis.resume();
        }
        tollgate.program.signal("TERM");
        assert_eq!(tollgate.program.wait().code(), Some(0), "{}", tollgate.log());
        redis.resume();
        let (log, charged) = (tollgate.log(), keys_that(CHARGED, &tollgate.log()));
        assert_eq!(charged + keys_that(LOST, &log), OWED, "{log}");
        charged
    };
    assert_eq!(end(0, false), 0, "no key can be charged");
    // The backoff of Redis is random, and may exceed the shutdown timeout.
    let lucky = (1..20).find(|turn| end(*turn, true) == OWED).expect("one finds Redis in time");
    let next = Tollgate::start(BINARY, &config);
    let answer = check(next.api, &format!("{lucky}-7"));
    assert_eq!(answer["limits"][0]["remaining"], 98, "{answer}");
}

#[test]
fn a_degraded_response_of_the_gateway_has_a_header() {
    let redis = Redis::start();
    redis.kill();
    let tollgate = start(100, &format!("url: '{}'", redis.url()));
    assert_eq!(get(tollgate.gateway, "/").header("tollgate-degraded"), Some("local"));
}

#[test]
fn a_cluster_of_one_node_causes_no_warning() {
    let redis = Redis::start_with(&["--cluster-enabled", "yes"]);
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait_until("the cluster to be whole", || redis.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let store = format!("url: 'redis-cluster://{}'", redis.address());
    let tollgate =
        Tollgate::start(BINARY, &format!("store: {{{store}}}\nlimits: [{{by: ip, bucket: 1/s}}]\n"));
    assert!(!tollgate.log().contains("warning"), "{}", tollgate.log());
    assert_eq!(get_json(tollgate.api, "/readyz")["store"]["state"], "ok");
}

#[test]
fn a_redis_that_dies_and_comes_back_is_used_again() {
    let redis = Redis::start();
    let mut tollgate = start(100, &format!("url: '{}', outage: {{failures: 1}}", redis.url()));
    assert_eq!(admitted(tollgate.api, 1), 1);
    redis.kill();
    let api = tollgate.api;
    tollgate.program.wait_until("a degraded answer", || check(api)["degraded"] == true);
    assert!((0..5).all(|_| check(api)["allowed"] == true));
    redis.restart();
    tollgate.program.wait_until("an answer of Redis", || check(api)["degraded"] == false);
}

#[test]
fn a_wrong_password_is_reported_and_never_shown() {
    let redis = Redis::start_with_password(None, "hunter2");
    let (address, right) = (redis.address(), redis.url());
    for (store, cause) in [
        (format!("url: 'redis://:wr0ng@{address}'"), "password is wrong"),
        (format!("url: 'redis://{address}'"), "password"),
    ] {
        let tollgate = start(100, &store);
        let log = tollgate.log();
        assert!(log.contains("warning: cannot use the store redis://") && log.contains(cause), "{log}");
        assert!(!log.contains("wr0ng"), "{log}");
        assert_eq!(check(tollgate.api)["degraded"], true);
        assert!(!get_json(tollgate.api, "/readyz").to_string().contains("wr0ng"));
    }
    let files = Scratch::new();
    let file = files.write("password", "hunter2\n");
    for store in
        [format!("url: '{right}'"), format!("url: 'redis://{address}', password_file: {}", file.display())]
    {
        let tollgate = start(100, &store);
        assert_eq!(admitted(tollgate.api, 1), 1, "{}", tollgate.log());
        let log = tollgate.log();
        assert!(log.contains(&format!("redis://:***@{address}, ")) && !log.contains("hunter2"), "{log}");
    }
}

#[test]
fn a_user_of_access_control_lists_logs_in() {
    let redis = Redis::start_with_password(Some("tollgate"), "hunter2");
    let tollgate = start(100, &format!("url: '{}'", redis.url()));
    assert_eq!(admitted(tollgate.api, 1), 1, "{}", tollgate.log());
    assert!(!tollgate.log().contains("hunter2"), "{}", tollgate.log());
}

#[test]
fn tls_needs_a_trusted_certificate() {
    let redis = Redis::start_with_tls();
    let url = redis.url();
    assert!(url.starts_with("rediss://"), "{url}");
    let believed = start(100, &format!("url: '{url}', ca: {}", redis.ca().display()));
    assert_eq!(admitted(believed.api, 1), 1, "{}", believed.log());
    // No public authority has signed it.
    let stranger = start(100, &format!("url: '{url}'"));
    assert!(stranger.log().contains("warning: cannot use the store rediss://"), "{}", stranger.log());
    assert_eq!(check(stranger.api)["degraded"], true);
}

#[test]
fn sentinels_and_clusters_are_one_budget_too() {
    let sentinels = SentinelTrio::start();
    share_one_budget(&format!("url: '{}'", sentinels.url()));
    let cluster = RedisCluster::start();
    share_one_budget(&format!("url: ['{}']", cluster.urls().join("', '")));
}

#[test]
fn missing_permissions_are_detected_at_the_start() {
    let (primary, replica) = (Redis::start(), Redis::start());
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let cluster = RedisCluster::start();
    cluster.uncover(0);
    let slots = format!("url: ['{}']", cluster.urls().join("', '"));
    for (store, cause) in [
        (format!("url: '{}'", replica.url()), "this is a replica"),
        (format!("url: '{}'", cluster.node(0).url()), "write `redis-cluster://`"),
        (slots, "not covered"),
    ] {
        let tollgate = start(100, &store);
        let log = tollgate.log();
        assert!(log.contains("warning: cannot use the store redis") && log.contains(cause), "{log}");
        assert_eq!(check(tollgate.api)["allowed"], true);
        assert_eq!(get(tollgate.gateway, "/").status, 200);
    }
}

#[test]
fn servers_that_share_a_redis_know_how_many_they_are() {
    let redis = Redis::start();
    let store = format!("url: '{}'", redis.url());
    let (mut one, mut other) = (start(100, &store), start(100, &store));
    for tollgate in [&mut one, &mut other] {
        let api = tollgate.api;
        tollgate.program.wait_until("the other node", || counted("tollgate_nodes", &metrics(api)) == 2);
    }
    // Neither counts the other's keys.
    let apart = start(100, &format!("{store}, prefix: other"));
    assert_eq!(admitted(apart.api, 1), 1);
    assert_eq!(counted("tollgate_nodes", &metrics(apart.api)), 1);
    assert_eq!(check(one.api)["limits"][0]["remaining"], 99);
}

#[test]
fn the_last_request_of_a_stopping_server_releases_its_slot() {
    let redis = Redis::start();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "store: {{url: '{}', deadline: 10s}}\ngateway: {{workers: 1, upstream: http://{}}}\n\
         limits:\n  - {{name: slots, by: global, slots: 1, ttl: 1h}}\n",
        redis.url(),
        upstream.local_addr().unwrap()
    );
    let ((received, has_received), (answer, may_answer)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::spawn(move || {
        while let Ok((mut stream, _)) = upstream.accept() {
            let _ = stream.read(&mut [0; 4096]).unwrap();
            received.send(()).unwrap();
            may_answer.recv().unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")
                .unwrap();
        }
    });
    for _ in 0..3 {
        let tollgate = Tollgate::start(BINARY, &config);
        let gateway = tollgate.gateway;
        // The server has nothing left to do after this response.
        let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let client = thread::spawn(move || Client::connect(gateway).unwrap().ask(request).unwrap().status);
        has_received.recv().unwrap();
        assert_eq!(get(gateway, "/").status, 429, "the slot is taken");
        tollgate.program.signal("TERM");
        answer.send(()).unwrap();
        assert_eq!(client.join().unwrap(), 200);
        ends_well(tollgate);
    }
}

#[test]
fn calls_to_redis_are_counted() {
    let redis = Redis::start();
    let tollgate = start(2, &format!("url: '{}', deny_cache: off", redis.url()));
    let before = metrics(tollgate.api);
    assert_eq!(admitted(tollgate.api, 3), 2);
    let after = metrics(tollgate.api);
    for (name, more) in [("decisions", 3), ("calls", 3), ("remembered", 0), ("failures", 0)] {
        let name = format!("tollgate_redis_{name}_total");
        assert_eq!(counted(&name, &after) - counted(&name, &before), more, "{name}: {before}\n{after}");
    }
    assert!(counted("tollgate_redis_connections_total", &after) >= 1, "{after}");
    assert_eq!(counted("tollgate_nodes", &after), 1, "{after}");
}
