//! Commands of an operator in `redis-cli`.

use std::time::{Duration, Instant};

use tollgate_testkit::Redis;

use crate::harness::{Fault, KEYS, LIMIT, Rig, ServedNode, run};

fn fault<'f>(place: u32, name: &'f str, why: &'f str, redis: &Redis) -> Fault<'f> {
    let store = format!("url: '{}'", redis.url());
    Fault { place, name, topology: "standalone", store, nodes: 2, why }
}

fn ten_times(rig: &Rig, redis: &Redis, command: &[&str]) -> ServedNode {
    for _ in 0..10 {
        redis.cli(command);
        rig.endure(Duration::from_millis(100));
    }
    ServedNode::since(Instant::now())
}

#[test]
fn scripts_that_are_flushed_are_sent_again() {
    let redis = Redis::start();
    run(&fault(50, "`SCRIPT FLUSH`, ten times", "", &redis), |rig| {
        ten_times(rig, &redis, &["SCRIPT", "FLUSH"])
    });
}

#[test]
fn data_that_are_flushed_give_back_what_was_spent_once() {
    let redis = Redis::start();
    let why = "what was spent is forgotten";
    let report = run(&fault(51, "`FLUSHALL`", why, &redis), |rig| {
        redis.cli(&["FLUSHALL"]);
        ServedNode { at: Instant::now(), lost: rig.spent() }
    });
    assert!(report.admitted > LIMIT * KEYS as u64, "{}", report.admitted);
}

#[test]
fn connections_that_are_killed_are_made_again() {
    let redis = Redis::start();
    run(&fault(52, "`CLIENT KILL TYPE normal`, ten times", "", &redis), |rig| {
        ten_times(rig, &redis, &["CLIENT", "KILL", "TYPE", "normal"])
    });
}
