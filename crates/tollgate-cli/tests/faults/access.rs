//! Redis denies access or writes.

use std::time::{Duration, Instant};

use tollgate_testkit::{Redis, wait_until};

use crate::harness::{
    Decided, Fault, ServedNode, both, run, serves, wait_until_copied, wait_until_it_serves,
};

both! {
    a_password_that_changes_under_way_forgets_nothing,
    a_server_started_with_a_wrong_password_serves_and_recovers_when_it_is_right,
    a_primary_that_becomes_a_replica_for_a_while_costs_what_was_not_copied,
}

/// A fault of a standalone Redis.
fn fault<'f>(place: u32, name: &'f str, redis: &Redis, decided: Decided) -> Fault<'f> {
    let url = format!("'{}'", redis.url());
    Fault { place, name, topology: "standalone", url, decided, nodes: 2, why: "" }
}

fn a_password_that_changes_under_way_forgets_nothing(decided: Decided) {
    let redis = Redis::start();
    let name = "password set and connections closed; taken back after 2 s (`NOAUTH`)";
    let report = run(&fault(70, name, &redis, decided), |rig| {
        redis.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
        let known = ["-a", "hunter2", "--no-auth-warning"];
        redis.cli(&[&known[..], &["CLIENT", "KILL", "TYPE", "normal"]].concat());
        rig.endure(Duration::from_secs(2));
        redis.cli(&[&known[..], &["CONFIG", "SET", "requirepass", ""]].concat());
        ServedNode::since(wait_until_it_serves(&redis))
    });
    assert!(report.degraded > 0);
}

fn a_server_started_with_a_wrong_password_serves_and_recovers_when_it_is_right(decided: Decided) {
    let redis = Redis::start_with_password(None, "hunter2");
    let name = "started with a wrong password, which becomes right after 2 s (`WRONGPASS`)";
    let url = format!("'redis://:hunter3@{}'", redis.address());
    let fault = Fault { url, nodes: 1, ..fault(71, name, &redis, decided) };
    let report = run(&fault, |rig| {
        rig.endure(Duration::from_secs(1));
        redis.cli(&["CONFIG", "SET", "requirepass", "hunter3"]);
        wait_until("Redis with the other password", || serves(&redis, Some("hunter3")));
        ServedNode::since(Instant::now())
    });
    assert!(report.degraded > 0);
    assert!(report.logs.iter().all(|log| !log.contains("hunter")), "{:?}", report.logs);
}

fn a_primary_that_becomes_a_replica_for_a_while_costs_what_was_not_copied(decided: Decided) {
    let (redis, other) = (Redis::start(), Redis::start());
    for server in [&redis, &other] {
        server.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    }
    let follow = |one: &Redis, two: &Redis| {
        one.cli(&["REPLICAOF", "127.0.0.1", &two.port().to_string()]);
        wait_until("linked replica", || one.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    };
    follow(&other, &redis);
    let name = "made a replica of its own replica for 2 s, then primary again (`READONLY`)";
    let why = "replication is asynchronous: what the other had not heard of is forgotten";
    let report = run(&Fault { why, ..fault(72, name, &redis, decided) }, |rig| {
        let before = rig.spent();
        wait_until_copied(&redis, &[&other]);
        other.cli(&["REPLICAOF", "NO", "ONE"]);
        follow(&redis, &other);
        let lost = rig.charged_since(before);
        rig.endure(Duration::from_secs(2));
        redis.cli(&["REPLICAOF", "NO", "ONE"]);
        ServedNode::with_loss(wait_until_it_serves(&redis), lost)
    });
    assert!(report.degraded > 0);
}
