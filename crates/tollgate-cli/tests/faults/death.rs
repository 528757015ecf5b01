//! Redis crashes or hangs.

use std::time::Duration;

use tollgate_testkit::{Redis, SentinelTrio};

use crate::harness::{Decided, Fault, ServedNode, both, run, wait_until_copied, wait_until_it_serves};

both! {
    a_primary_that_is_killed_and_started_again_costs_what_it_forgot,
    a_primary_that_stands_still_for_five_seconds_forgets_nothing,
    sentinels_that_promote_a_replica_cost_what_it_had_not_heard_of,
}

fn a_primary_that_is_killed_and_started_again_costs_what_it_forgot(decided: Decided) {
    let redis = Redis::start();
    let fault = Fault {
        place: 10,
        name: "`kill -9`, started again empty after 2 s",
        topology: "standalone",
        url: format!("'{}'", redis.url()),
        decided,
        nodes: 2,
        why: "no persistence: what was spent is forgotten",
    };
    let report = run(&fault, |rig| {
        redis.kill();
        let lost = rig.charged();
        rig.endure(Duration::from_secs(2));
        redis.restart();
        ServedNode::with_loss(wait_until_it_serves(&redis), lost)
    });
    assert!(report.degraded > 0);
    assert!(report.logs.iter().all(|log| log.contains("the store answers again")), "{:?}", report.logs);
}

fn a_primary_that_stands_still_for_five_seconds_forgets_nothing(decided: Decided) {
    let redis = Redis::start();
    let fault = Fault {
        place: 11,
        name: "`SIGSTOP` for 5 s, then `SIGCONT`",
        topology: "standalone",
        url: format!("'{}'", redis.url()),
        decided,
        nodes: 2,
        why: "",
    };
    let report = run(&fault, |rig| {
        redis.pause();
        rig.endure(Duration::from_secs(5));
        redis.resume();
        ServedNode::since(wait_until_it_serves(&redis))
    });
    assert!(report.degraded > 0);
}

fn sentinels_that_promote_a_replica_cost_what_it_had_not_heard_of(decided: Decided) {
    let trio = SentinelTrio::start();
    for sentinel in (0..3).map(|number| trio.sentinel(number)) {
        // Sentinels check once a second. With a shorter timeout they also depose the new primary while
        // they still connect to it, and there are two primaries for a while.
        sentinel.cli(&["SENTINEL", "SET", "tollgate-test", "down-after-milliseconds", "1500"]);
    }
    let fault = Fault {
        place: 20,
        name: "`kill -9` of the primary, failover by Sentinel",
        topology: "Sentinel",
        url: format!("'{}'", trio.url()),
        decided,
        nodes: 2,
        why: "replication is asynchronous: what the replica had not heard of is forgotten",
    };
    let report = run(&fault, |rig| {
        let before = rig.spent();
        wait_until_copied(trio.redis(0), &[trio.redis(1), trio.redis(2)]);
        trio.kill_primary();
        let lost = rig.charged_since(before);
        let new = trio.wait_for_failover();
        ServedNode::with_loss(wait_until_it_serves(new), lost)
    });
    assert!(report.degraded > 0);
}
