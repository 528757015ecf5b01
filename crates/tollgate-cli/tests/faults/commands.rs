//! Commands of an operator in `redis-cli`.

use std::time::{Duration, Instant};

use tollgate_testkit::Redis;

use crate::harness::{Decided, Fault, KEYS, LIMIT, Rig, ServedNode, both, run};

both! {
    scripts_that_are_flushed_are_sent_again,
    data_that_are_flushed_give_back_what_was_spent_once,
    connections_that_are_killed_are_made_again,
}

fn fault<'f>(place: u32, name: &'f str, redis: &Redis, decided: Decided) -> Fault<'f> {
    let url = format!("'{}'", redis.url());
    Fault { place, name, topology: "standalone", url, decided, nodes: 2, why: "" }
}

fn ten_times(rig: &Rig, redis: &Redis, command: &[&str]) -> ServedNode {
    for _ in 0..10 {
        redis.cli(command);
        rig.endure(Duration::from_millis(100));
    }
    ServedNode::since(Instant::now())
}

fn scripts_that_are_flushed_are_sent_again(decided: Decided) {
    let redis = Redis::start();
    run(&fault(50, "`SCRIPT FLUSH`, ten times", &redis, decided), |rig| {
        ten_times(rig, &redis, &["SCRIPT", "FLUSH"])
    });
}

fn data_that_are_flushed_give_back_what_was_spent_once(decided: Decided) {
    let redis = Redis::start();
    let why = "what was spent is forgotten";
    let report = run(&Fault { why, ..fault(51, "`FLUSHALL`", &redis, decided) }, |rig| {
        redis.cli(&["FLUSHALL"]);
        ServedNode::with_loss(Instant::now(), rig.charged())
    });
    assert!(report.admitted > LIMIT * KEYS as u64, "{}", report.admitted);
}

fn connections_that_are_killed_are_made_again(decided: Decided) {
    let redis = Redis::start();
    run(&fault(52, "`CLIENT KILL TYPE normal`, ten times", &redis, decided), |rig| {
        ten_times(rig, &redis, &["CLIENT", "KILL", "TYPE", "normal"])
    });
}
