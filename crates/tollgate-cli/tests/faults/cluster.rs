//! Nodes of a cluster fail, and slots move.

use std::time::{Duration, Instant};

use tollgate_testkit::RedisCluster;

use crate::harness::{Decided, Fault, Rig, ServedNode, both, run, wait_until_copied};

both! {
    a_cluster_that_promotes_a_replica_costs_what_it_had_not_heard_of,
    a_primary_that_falls_silent_is_an_outage_of_its_part,
    slots_that_move_keep_what_was_spent,
    a_cluster_that_is_resharded_keeps_what_was_spent,
}

fn fault<'f>(place: u32, name: &'f str, cluster: &RedisCluster, decided: Decided) -> Fault<'f> {
    let url = format!("['{}']", cluster.urls().join("', '"));
    Fault { place, name, topology: "Cluster", url, decided, nodes: 2, why: "" }
}

/// Returns the first primary that has tight keys: that of the hot key, if there is one.
fn home(cluster: &RedisCluster) -> usize {
    (0..3).find(|node| !slots_in_use(cluster, *node).is_empty()).expect("tight keys are in use")
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

fn a_cluster_that_promotes_a_replica_costs_what_it_had_not_heard_of(decided: Decided) {
    let cluster = RedisCluster::start();
    let why = "replication is asynchronous: what the replica had not heard of is forgotten";
    let name = "`kill -9` of one primary of three, failover to its replica";
    let report = run(&Fault { why, ..fault(30, name, &cluster, decided) }, |rig| {
        let (before, home) = (rig.spent(), home(&cluster));
        let replica = cluster.replica_of(home).unwrap();
        wait_until_copied(cluster.node(home), &[cluster.node(replica)]);
        cluster.kill(home);
        let lost = rig.charged_since(before);
        cluster.wait_until_ok();
        ServedNode::with_loss(Instant::now(), lost)
    });
    assert!(report.degraded > 0);
}

fn a_primary_that_falls_silent_is_an_outage_of_its_part(decided: Decided) {
    let cluster = RedisCluster::start();
    let why = "replication is asynchronous: what the replica had not heard of is forgotten";
    let name = "`SIGSTOP` of one primary of three; its replica takes over, and it comes back";
    let report = run(&Fault { why, ..fault(33, name, &cluster, decided) }, |rig| {
        let (before, home) = (rig.spent(), home(&cluster));
        let replica = cluster.replica_of(home).unwrap();
        wait_until_copied(cluster.node(home), &[cluster.node(replica)]);
        cluster.node(home).pause();
        let lost = rig.charged_since(before);
        cluster.wait_until_ok();
        let served = Instant::now();
        rig.endure(Duration::from_secs(1));
        cluster.node(home).resume();
        ServedNode::with_loss(served, lost)
    });
    assert!(report.degraded > 0);
}

fn slots_that_move_keep_what_was_spent(decided: Decided) {
    let cluster = RedisCluster::start();
    let (name, moves) = match decided {
        Decided::Exactly => {
            ("four slots in use move to another node, one by one, and back (`ASK`, `MOVED`)", (4, 1))
        }
        Decided::Leased => {
            ("the slot of the hot key moves to another node and back, four times (`ASK`, `MOVED`)", (1, 4))
        }
    };
    run(&fault(31, name, &cluster, decided), |rig: &Rig| {
        let (count, rounds) = moves;
        let home = home(&cluster);
        let (away, slots) = ((home + 1) % 3, slots_in_use(&cluster, home));
        assert!(slots.len() >= count, "{slots:?}");
        for (from, to) in [(home, away), (away, home)].repeat(rounds) {
            for slot in &slots[..count] {
                cluster.open_slot(*slot, to);
                send_keys(&cluster, *slot, from, to);
                rig.endure(Duration::from_millis(150));
                cluster.close_slot(*slot, to);
            }
        }
        let stats = cluster.node(home).cli(&["INFO", "errorstats"]);
        assert!(stats.contains("errorstat_ASK") && stats.contains("errorstat_MOVED"), "{stats}");
        ServedNode::since(Instant::now())
    });
}

fn a_cluster_that_is_resharded_keeps_what_was_spent(decided: Decided) {
    let cluster = RedisCluster::start();
    let name = "`redis-cli --cluster reshard`: 1,000 slots from one node to another";
    run(&fault(32, name, &cluster, decided), |_| {
        cluster.reshard(0, 1, 1_000);
        ServedNode::since(Instant::now())
    });
}
