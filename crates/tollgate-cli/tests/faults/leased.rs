//! Faults while a hot key is leased: units that nodes hold are charged already, so no fault adds to the bound.

use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::{Redis, Tollgate};

use crate::client::{get, post_json};
use crate::harness::{Fault, ServedNode, run, tight_key, wait_until_it_serves};

fn fault<'f>(place: u32, name: &'f str, redis: &Redis, why: &'f str) -> Fault<'f> {
    let store = format!("url: '{}', lease: 500ms", redis.url());
    Fault { place, name, topology: "standalone, leased hot key", store, nodes: 2, why }
}

#[test]
fn a_primary_that_is_killed_while_a_key_is_leased_costs_what_it_forgot() {
    let redis = Redis::start();
    let fault = fault(
        300,
        "`kill -9`, started again empty after 1 s",
        &redis,
        "no persistence: what was spent and leased is forgotten",
    );
    run(&fault, |rig| {
        redis.kill();
        // Units that nodes hold were charged to Redis, and are spent after it forgot them.
        let held: u64 = rig.nodes.iter().map(held).sum();
        let lost = held + rig.spent();
        rig.endure(Duration::from_secs(1));
        redis.restart();
        ServedNode { at: wait_until_it_serves(&redis), lost }
    });
}

#[test]
fn a_primary_that_stands_still_while_a_key_is_leased_forgets_nothing() {
    let redis = Redis::start();
    let fault = fault(301, "`SIGSTOP` for 2 s, then `SIGCONT`", &redis, "");
    run(&fault, |rig| {
        redis.pause();
        rig.endure(Duration::from_secs(2));
        redis.resume();
        ServedNode::since(wait_until_it_serves(&redis))
    });
}

#[test]
fn connections_that_are_closed_while_a_key_is_leased_lose_no_unit() {
    let redis = Redis::start();
    let fault = fault(302, "`CLIENT KILL TYPE normal`, five times", &redis, "");
    run(&fault, |rig| {
        for _ in 0..5 {
            redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
            rig.endure(Duration::from_millis(100));
        }
        ServedNode::since(Instant::now())
    });
}

/// Returns the leased units that a node holds.
fn held(node: &Tollgate) -> u64 {
    let page = String::from_utf8_lossy(&get(node.api, "/metrics").body).into_owned();
    let value = page.lines().find_map(|line| line.strip_prefix("tollgate_lease_units_held "));
    value.and_then(|it| it.parse().ok()).unwrap()
}

/// Asks a node for the hot key until it is refused or the time is over. Returns the admissions.
fn spend(node: &Tollgate, time: Duration) -> u64 {
    let (body, start) = (format!(r#"{{"path":"/tight","api_key":"{}"}}"#, tight_key(0)), Instant::now());
    let mut admitted = 0;
    while start.elapsed() < time {
        admitted += u64::from(post_json(node.api, "/v1/check", &body)["allowed"] == true);
    }
    admitted
}

#[test]
fn a_holder_that_is_killed_takes_its_units_along() {
    let redis = Redis::start();
    let fault = fault(303, "`kill -9` of a node that holds leased units", &redis, "");
    let mut elsewhere = 0;
    let report = run(&fault, |rig| {
        let holder = fault.start_node(2);
        elsewhere = spend(&holder, Duration::from_millis(600));
        // `Program` kills it.
        drop(holder);
        rig.endure(Duration::from_millis(500));
        ServedNode::since(Instant::now())
    });
    let total = report.admitted + elsewhere;
    assert!(elsewhere > 0 && total <= report.allowed.total(), "{} and {elsewhere}", report.admitted);
}

#[test]
fn a_holder_that_stands_still_spends_nothing_of_what_has_expired() {
    let redis = Redis::start();
    let fault =
        fault(304, "`SIGSTOP` of a node that holds leased units, for 5 s, then `SIGCONT`", &redis, "");
    let mut elsewhere = 0;
    let report = run(&fault, |_| {
        let holder = fault.start_node(2);
        elsewhere = spend(&holder, Duration::from_millis(600));
        holder.program.signal("STOP");
        thread::sleep(Duration::from_secs(5));
        holder.program.signal("CONT");
        elsewhere += spend(&holder, Duration::from_millis(500));
        ServedNode::since(Instant::now())
    });
    let total = report.admitted + elsewhere;
    assert!(elsewhere > 0 && total <= report.allowed.total(), "{} and {elsewhere}", report.admitted);
}
