//! Nodes of a cluster fail, and slots move.

use std::time::{Duration, Instant};

use tollgate_testkit::RedisCluster;

use crate::harness::{Fault, Rig, ServedNode, run, wait_until_copied};

fn fault<'f>(place: u32, name: &'f str, why: &'f str, cluster: &RedisCluster) -> Fault<'f> {
    let store = format!("url: ['{}']", cluster.urls().join("', '"));
    Fault { place, name, topology: "Cluster", store, nodes: 2, why }
}

/// Returns slots of one node that hold tight keys.
fn slots_in_use(cluster: &RedisCluster, node: usize) -> Vec<u16> {
    let names = cluster.node(node).cli(&["--no-raw", "KEYS", "tg1:*tight*"]);
    let tag = |line: &str| Some(line.split_once('{')?.1.split_once('}')?.0.to_owned());
    let mut slots: Vec<u16> =
        names.lines().filter_map(tag).map(|tag| cluster.slot_of(&format!("{{{tag}}}"))).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// Migrates the keys of a slot; requests for them are redirected.
fn send_keys(cluster: &RedisCluster, slot: u16, from: usize, to: usize) {
    let (from, port) = (cluster.node(from), cluster.node(to).port().to_string());
    let keys = from.cli(&["--no-raw", "CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
    let keys: Vec<&str> = keys.lines().filter_map(|line| Some(line.split_once(") ")?.1)).collect();
    let migrate = ["--quoted-input", "MIGRATE", "127.0.0.1", &port, "\"\"", "0", "5000", "KEYS"];
    from.cli(&[&migrate, &*keys].concat());
}

#[test]
fn a_cluster_that_promotes_a_replica_costs_what_it_had_not_heard_of() {
    let cluster = RedisCluster::start();
    let why = "replication is asynchronous: what the replica had not heard of is forgotten";
    let fault = fault(30, "`kill -9` of one primary of three, failover to its replica", why, &cluster);
    let report = run(&fault, |rig| {
        let before = rig.spent();
        let replica = cluster.replica_of(0).unwrap();
        wait_until_copied(cluster.node(0), &[cluster.node(replica)]);
        cluster.kill(0);
        let lost = rig.spent_since(before);
        cluster.wait_until_ok();
        ServedNode { at: Instant::now(), lost }
    });
    assert!(report.degraded > 0);
}

#[test]
fn a_primary_that_falls_silent_is_an_outage_of_its_part() {
    let cluster = RedisCluster::start();
    let why = "replication is asynchronous: what the replica had not heard of is forgotten";
    let name = "`SIGSTOP` of one primary of three; its replica takes over, and it comes back";
    let report = run(&fault(33, name, why, &cluster), |rig| {
        let before = rig.spent();
        let replica = cluster.replica_of(0).unwrap();
        wait_until_copied(cluster.node(0), &[cluster.node(replica)]);
        cluster.node(0).pause();
        let lost = rig.spent_since(before);
        cluster.wait_until_ok();
        let served = Instant::now();
        rig.endure(Duration::from_secs(1));
        cluster.node(0).resume();
        ServedNode { at: served, lost }
    });
    assert!(report.degraded > 0);
}

#[test]
fn slots_that_move_keep_what_was_spent() {
    let cluster = RedisCluster::start();
    let fault = fault(
        31,
        "four slots in use move to another node, one by one, and back (`ASK`, `MOVED`)",
        "",
        &cluster,
    );
    run(&fault, |rig: &Rig| {
        let slots = slots_in_use(&cluster, 0);
        assert!(slots.len() >= 4, "{slots:?}");
        for to in [1, 0] {
            for slot in &slots[..4] {
                cluster.open_slot(*slot, to);
                send_keys(&cluster, *slot, 1 - to, to);
                rig.endure(Duration::from_millis(150));
                cluster.close_slot(*slot, to);
            }
        }
        let stats = cluster.node(0).cli(&["INFO", "errorstats"]);
        assert!(stats.contains("errorstat_ASK") && stats.contains("errorstat_MOVED"), "{stats}");
        ServedNode::since(Instant::now())
    });
}

#[test]
fn a_cluster_that_is_resharded_keeps_what_was_spent() {
    let cluster = RedisCluster::start();
    let fault =
        fault(32, "`redis-cli --cluster reshard`: 1,000 slots from one node to another", "", &cluster);
    run(&fault, |_| {
        cluster.reshard(0, 1, 1_000);
        ServedNode::since(Instant::now())
    });
}
