//! Nodes that fail while they hold leased units: these are charged already, so no fault adds to the bound.

use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::{Redis, Tollgate};

use crate::client::post_json;
use crate::harness::{Decided, Fault, ServedNode, run, tight_key};

fn fault<'f>(place: u32, name: &'f str, redis: &Redis) -> Fault<'f> {
    let url = format!("'{}'", redis.url());
    Fault { place, name, topology: "standalone", url, decided: Decided::Leased, nodes: 2, why: "" }
}

/// Asks a node for the hot key for some time. Returns the admissions.
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
    let fault = fault(201, "`kill -9` of a third node that holds leased units", &redis);
    run(&fault, |rig| {
        let holder = fault.start_node(2);
        let elsewhere = spend(&holder, Duration::from_millis(600));
        assert!(elsewhere > 0);
        // `Program` kills it.
        drop(holder);
        rig.endure(Duration::from_millis(500));
        ServedNode { elsewhere, ..ServedNode::since(Instant::now()) }
    });
}

#[test]
fn a_holder_that_stands_still_spends_nothing_of_what_has_expired() {
    let redis = Redis::start();
    let name = "`SIGSTOP` of a third node that holds leased units, for 5 s, then `SIGCONT`";
    let fault = fault(202, name, &redis);
    run(&fault, |_| {
        let holder = fault.start_node(2);
        let before = spend(&holder, Duration::from_millis(600));
        assert!(before > 0);
        holder.program.signal("STOP");
        thread::sleep(Duration::from_secs(5));
        holder.program.signal("CONT");
        let elsewhere = before + spend(&holder, Duration::from_millis(500));
        ServedNode { elsewhere, ..ServedNode::since(Instant::now()) }
    });
}
