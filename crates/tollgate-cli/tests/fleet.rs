//! Several servers on one store: each of them reports on all of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::process::Command;

use crate::service::client::{get, get_json, post_json};
use serde_json::{Value, json};
use tollgate_testkit::{Postgres, Redis, Tollgate, wait_until};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A limit that is not refilled within a test, and one that is leased.
fn start(redis: &Redis) -> Tollgate {
    start_on(&redis.url())
}

fn start_on(url: &str) -> Tollgate {
    let policy = format!(
        "store: {{deadline: 10s, url: '{url}'}}\ngateway: {{workers: 1}}\n\
         limits:\n  - {{name: api, endpoint: /api, by: ip, bucket: 5/day}}\n  \
         - {{name: everybody, endpoint: /hot, by: global, bucket: 360_000/hour, lease: 10s}}\n"
    );
    Tollgate::start(BINARY, &policy)
}

fn check(api: SocketAddr, path: &str) -> Value {
    post_json(api, "/v1/check", &format!(r#"{{"path":"{path}","ip":"203.0.113.9"}}"#))
}

fn fleet(api: SocketAddr) -> Value {
    get_json(api, "/v1/fleet")
}

fn tollgate(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_sums_all_servers_and_explains_their_decisions() {
    let redis = Redis::start();
    sum_and_explain(&redis.url());
}

#[test]
fn a_server_on_postgres_sums_all_servers_and_explains_their_decisions() {
    let server = Postgres::start();
    sum_and_explain(&server.url());
}

#[track_caller]
fn sum_and_explain(url: &str) {
    let (one, other) = (start_on(url), start_on(url));
    let last = (0..7).map(|_| check(other.api, "/api")).reduce(|_, it| it).unwrap();
    assert_eq!(last["allowed"], false);
    assert_eq!(check(one.api, "/nothing")["allowed"], true);

    wait_until("reports of both", || {
        let totals = fleet(one.api)["totals"].clone();
        (&totals["nodes"], &totals["window"]["refused"], &totals["window"]["allowed"])
            == (&json!(2), &json!(2), &json!(6))
    });
    let seen = fleet(one.api);
    assert_eq!((&seen["shared"], &seen["ignored"], &seen["error"]), (&json!(true), &json!(0), &Value::Null));
    assert_eq!((&seen["nodes"][0]["this"], &seen["nodes"][1]["this"]), (&json!(true), &json!(false)));
    assert_eq!(seen["nodes"][1]["window"]["refused"], 2, "{seen}");
    // The other server says the same the other way round.
    wait_until("the report of the first server", || fleet(other.api)["totals"]["window"]["allowed"] == 6);

    let id = last["id"].as_str().unwrap();
    let path = format!("/v1/decisions/{id}");
    // On a busy machine, the answer may come after the first question has ended.
    wait_until("an explanation by the other server", || get(one.api, &path).status == 200);
    let own = get_json(other.api, &path);
    assert_eq!((&own["node"], &own["id"]), (&Value::Null, &json!(id)));
    let api = format!("http://{}", one.api);
    let mut text = String::new();
    wait_until("an explanation in the terminal", || {
        let output = Command::new(BINARY).args(["explain", id, "--api", &api]).output().unwrap();
        text = String::from_utf8(output.stdout).unwrap();
        output.status.success()
    });
    let name = seen["nodes"][1]["name"].as_str().unwrap();
    assert!(text.contains(&format!("  node      {name}\n")) && text.contains("Refused by `api`"), "{text}");

    // The number of nodes is announced every few seconds.
    wait_until("two nodes", || get_json(one.api, "/v1/overview")["store"]["nodes"] == 2);
    let text = tollgate(&["top", "--once", "--api", &api]);
    assert!(text.contains("  all 2 nodes, last 5 minutes: 6 allowed, 2 refused"), "{text}");
    assert!(text.contains("\nnodes, in 5 minutes\n") && text.contains(name), "{text}");
}

#[test]
fn garbage_is_ignored_and_a_killed_server_disappears() {
    let redis = Redis::start();
    let (one, other) = (start(&redis), start(&redis));
    wait_until("reports of both", || fleet(one.api)["totals"]["nodes"] == 2);
    let times = redis.cli(&["KEYS", "tg1:*:node-times"]).trim().to_owned();
    let start = times.strip_suffix("node-times").unwrap().to_owned();
    let garbage = "
        local time, start = redis.call('TIME'), KEYS[1]
        local now = time[1] * 1000
        redis.call('SET', start .. 'node:00000000000000aa', '{\"v\":1,\"node\":{\"name\":\"<b>\"}}')
        redis.call('SET', start .. 'node:00000000000000ab', string.rep('[', 4000))
        redis.call('ZADD', start .. 'node-times', now, '00000000000000aa', now, '00000000000000ab', now, 'x')";
    // Entries of ended nodes are removed after a while, and so is garbage.
    wait_until("garbage that is ignored", || {
        redis.cli(&["EVAL", garbage, "1", &start]);
        let seen = fleet(one.api);
        assert_eq!(seen["error"], Value::Null, "{seen}");
        (&seen["ignored"], &seen["totals"]["nodes"]) == (&json!(3), &json!(2))
    });
    other.program.signal("KILL");
    wait_until("the end of a report that is not renewed", || fleet(one.api)["totals"]["nodes"] == 1);
    let third = self::start(&redis);
    wait_until("the report of a new server", || fleet(one.api)["totals"]["nodes"] == 2);
    third.program.signal("TERM");
    wait_until("a report that is taken back", || fleet(one.api)["totals"]["nodes"] == 1);
}

#[test]
fn leases_are_shown_where_they_are_held_and_where_they_answer() {
    let redis = Redis::start();
    let (one, other) = (start(&redis), start(&redis));
    let mut explained = Value::Null;
    wait_until("a decision from a lease", || {
        let ids: Vec<_> =
            (0..50).map(|_| check(one.api, "/hot")["id"].as_str().unwrap().to_owned()).collect();
        // Of admitted requests, only a sample is recorded.
        let listed = get_json(one.api, "/v1/decisions?most=1000")["decisions"].clone();
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
        for id in ids.iter().filter(|id| listed.contains(&json!(id))) {
            let decision = get_json(one.api, &format!("/v1/decisions/{id}"));
            if decision["limits"][0]["leased"] == true {
                explained = decision;
                return true;
            }
        }
        false
    });
    let arithmetic = explained["limits"][0]["arithmetic"].to_string();
    assert!(arithmetic.contains("from units that it had leased from the store"), "{arithmetic}");
    wait_until("units that are held, here and there", || {
        check(one.api, "/hot");
        let leases = get_json(one.api, "/v1/overview")["leases"].clone();
        assert_eq!(leases["limits"][0]["limit"], "everybody", "{leases}");
        let held = post_json(one.api, "/v1/limits/everybody/peek", "{}")["limits"][0]["held"].clone();
        let elsewhere = fleet(other.api)["nodes"][1]["leases"].clone();
        leases["held"][0]["units"].as_u64() > Some(0)
            && held.as_u64() > Some(0)
            && elsewhere["limits"][0]["limit"] == "everybody"
            && elsewhere["units"].as_u64() > Some(0)
    });
}
