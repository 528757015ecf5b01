//! Real Envoys on one limit that Tollgate divides, with the files in `integrations/envoy-rlqs`.
//!
//! The numbers of a quiet machine are in `make bench-rlqs`. Here a busy machine must not matter: the
//! bound holds at any speed, and the rest is waited for.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "Envoy reports in real time")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_testkit::{PacedClient, ProgramOutput, Redis, Tollgate};

use crate::envoy::app::App;
use crate::envoy::proxy::{Between, Envoy};
use crate::integrations::message::Ask;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
/// The limit of the policy, per second.
const LIMIT: u64 = 300;
/// The maximum time that a test waits for an event on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn integration(file: &str) -> String {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/envoy-rlqs"));
    fs::read_to_string(folder.join(file)).unwrap()
}

fn quotas(tollgate: &Tollgate) -> Value {
    Ask::new("GET /v1/quotas").send(tollgate.api).json()
}

/// Waits until the view of the quotas has a property, and returns it.
fn wait_for(tollgate: &Tollgate, what: &str, has: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let view = quotas(tollgate);
        if has(&view) {
            return view;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "no {what}: {view}\n{}", tollgate.log());
        thread::sleep(Duration::from_millis(200));
    }
}

fn streams(view: &Value) -> Vec<Value> {
    view["top"][0]["streams"].as_array().cloned().unwrap_or_default()
}

#[test]
fn three_envoys_share_a_limit_and_the_share_of_a_killed_one_is_used_by_the_others() {
    let app = App::start();
    let tollgate = Tollgate::start_with(BINARY, &integration("policy.yaml"), &["--listen-rls=127.0.0.1:0"]);
    let between = Between { rls: tollgate.rls.unwrap(), app: app.address };
    let envoys: Vec<Envoy> = (0..3).map(|_| Envoy::start(&integration("envoy.yaml"), between)).collect();
    // The first request of each Envoy opens its stream; then no request passes without an assignment.
    for envoy in &envoys {
        Ask { headers: "x-tenant: acme\r\n", ..Ask::new("GET /") }.send(envoy.address);
    }
    wait_for(&tollgate, "three streams", |view| view["streams"] == 3 && streams(view).len() == 3);
    thread::sleep(Duration::from_millis(500));
    let (start, before) = (Instant::now(), app.seen());
    let mut clients: Vec<PacedClient> = envoys
        .iter()
        .zip([30, 250, 250])
        .map(|(envoy, rate)| PacedClient::start(envoy.address, rate, "x-tenant: acme"))
        .collect();
    let view = wait_for(&tollgate, "division by demand", |view| {
        let streams = streams(view);
        let known = streams.iter().filter(|it| it["demanded"].as_f64().is_some_and(|it| it > 1.0)).count();
        let shares = streams.iter().filter(|it| it["assigned"].as_f64().is_some_and(|it| it > 60.0)).count();
        streams.len() == 3 && known == 3 && shares >= 2
    });
    assert!(view["top"][0]["assigned"].as_f64().unwrap() <= 300.0, "{view}");
    // The limit, and a burst of it: the capacities of all token buckets, which grow with the shares.
    let bound =
        |elapsed: Duration| LIMIT * (u64::try_from(elapsed.as_millis()).unwrap() + 1_000) / 1_000 + 2 * LIMIT;
    let admitted: u64 = clients.iter().map(PacedClient::admitted).sum();
    assert!(admitted <= bound(start.elapsed()), "{admitted} in {:?}", start.elapsed());
    assert!(app.seen() - before >= admitted, "the service has seen what was admitted");
    assert!(clients.iter().any(|it| it.refused() > 0), "{view}");

    let mut explain = Command::new(BINARY);
    explain.args(["explain", "--bucket", "tenant=acme, name=search", "--api"]).arg(tollgate.api.to_string());
    let explained = ProgramOutput::of(explain);
    assert_eq!(explained.code, Some(0), "{explained:?}");
    for part in
        ["by 3 Envoys", "limit     edge-search, enforce", "  - limit `edge-search`: 300/s", "  - Envoy 3: "]
    {
        assert!(explained.stdout.contains(part), "{part} in\n{}", explained.stdout);
    }

    // A killed Envoy: its stream ends, and its share goes to the others.
    let mut envoys = envoys.into_iter();
    let (_, killed) = (envoys.next(), envoys.next().unwrap());
    killed.program.signal("KILL");
    drop(clients.remove(1));
    let view = wait_for(&tollgate, "share of the killed Envoy", |view| {
        let streams = streams(view);
        streams.len() < 3 && streams.iter().any(|it| it["assigned"].as_f64().is_some_and(|it| it > 160.0))
    });
    assert!(view["top"][0]["assigned"].as_f64().unwrap() <= 300.0, "{view}");
    let metrics = String::from_utf8(Ask::new("GET /metrics").send(tollgate.api).body).unwrap();
    assert!(
        metrics.contains("tollgate_rlqs_requests_total{limit=\"edge-search\",result=\"allowed\"}"),
        "{metrics}"
    );
}

/// Returns the rates that a node may assign and has assigned in its busiest bucket.
fn rates(view: &Value) -> (f64, f64) {
    let rate = |name: &str| view["top"][0][name].as_f64().unwrap_or(0.0);
    (rate("budget"), rate("assigned"))
}

#[test]
fn nodes_on_one_redis_divide_a_limit_and_keep_their_assignments_while_it_is_away() {
    let (app, redis) = (App::start(), Redis::start());
    let policy = format!("store: {}\n{}", redis.url(), integration("policy.yaml"));
    let nodes: Vec<Tollgate> =
        (0..2).map(|_| Tollgate::start_with(BINARY, &policy, &["--listen-rls=127.0.0.1:0"])).collect();
    let envoys: Vec<Envoy> = nodes
        .iter()
        .map(|node| Between { rls: node.rls.unwrap(), app: app.address })
        .map(|between| Envoy::start(&integration("envoy.yaml"), between))
        .collect();
    let clients: Vec<PacedClient> =
        envoys.iter().map(|envoy| PacedClient::start(envoy.address, 250, "x-tenant: acme")).collect();
    for node in &nodes {
        let view = wait_for(node, "share of the limit", |view| {
            let (budget, assigned) = rates(view);
            budget > 60.0 && budget <= 200.0 && assigned > 60.0
        });
        assert!(view["place"].is_u64() && view["degraded"] == false, "{view}");
        assert!(view["quotas"][0]["summary"].as_str().unwrap().contains("by 1 Envoy"), "{view}");
    }
    // The shares of nodes are in the store, and do not overlap. The first node is looked at twice, so that
    // the sum is that of one instant.
    let start = Instant::now();
    loop {
        let [before, other, after] = [0, 1, 0].map(|at: usize| rates(&quotas(&nodes[at])).0);
        if before.total_cmp(&after).is_eq() {
            assert!(before + other <= 300.0, "{before} and {other}");
            break;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "the shares do not settle");
    }

    redis.pause();
    for node in &nodes {
        wait_for(node, "word of the outage", |view| view["degraded"] == true);
    }
    let admitted = |clients: &[PacedClient]| clients.iter().map(PacedClient::admitted).sum::<u64>();
    let before = admitted(&clients);
    for node in &nodes {
        let view = wait_for(node, "assignment without the store", |view| rates(view).1 > 60.0);
        assert_eq!(view["degraded"], true, "{view}");
    }
    wait_for(&nodes[0], "requests without the store", |_| admitted(&clients) > before + 100);
    redis.resume();
    for node in &nodes {
        wait_for(node, "word of the store", |view| view["degraded"] == false);
    }
}
