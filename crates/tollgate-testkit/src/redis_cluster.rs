//! A cluster of three primaries with one replica each.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::redis::{DEADLINE, wait_until};
use crate::{ProgramOutput, Redis};

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// A cluster of six nodes: three primaries, each with a replica. All killed when dropped.
pub struct RedisCluster {
    nodes: Vec<Redis>,
    /// The id of each node, in the same order.
    names: Vec<String>,
}

impl RedisCluster {
    /// Starts the cluster and waits until every node reports it as healthy and the replicas are in
    /// sync.
    pub fn start() -> Self {
        let arguments = ["--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"];
        let nodes: Vec<Redis> = (0..6).map(|_| Redis::start_node(&arguments)).collect();
        let addresses: Vec<String> = nodes.iter().map(Redis::address).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        manage(&[&["create"], &*addresses, &["--cluster-replicas", "1"]].concat());
        let names = nodes.iter().map(|it| it.cli(&["CLUSTER", "MYID"])).collect();
        let cluster = Self { nodes, names };
        cluster.wait_until_ok();
        wait_until("linked replicas", || {
            let roles: Vec<String> =
                cluster.nodes.iter().map(|it| it.cli(&["INFO", "replication"])).collect();
            let count = |what: &str| roles.iter().filter(|it| it.contains(what)).count();
            count("role:master") == 3 && count("master_link_status:up") == 3
        });
        cluster
    }

    /// Returns the URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Returns a node, 0 to 5; the first three started as primaries.
    pub fn node(&self, index: usize) -> &Redis {
        &self.nodes[index]
    }

    /// Returns the slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.running().next().map(|it| it.cli(&["CLUSTER", "KEYSLOT", key]));
        slot.and_then(|it| it.parse().ok()).expect("a node runs")
    }

    /// Returns the index of the primary of a slot, according to the first running node.
    pub fn primary_of_slot(&self, slot: u16) -> usize {
        let node = self.running().next().expect("a node runs");
        self.owner(node, slot).expect("the slot is covered")
    }

    /// Returns the index of the present replica of a primary, if there is one.
    pub fn replica_of(&self, primary: usize) -> Option<usize> {
        let node = self.running().next().expect("a node runs");
        let view = view(node);
        let replica = view.iter().find(|it| it.primary == self.names[primary]);
        replica.and_then(|it| self.names.iter().position(|name| *name == it.name))
    }

    /// Kills a node as `kill -9` does, and returns immediately; see
    /// [`RedisCluster::wait_until_ok`].
    pub fn kill(&self, index: usize) {
        self.nodes[index].kill();
    }

    /// Waits until all running nodes report a healthy cluster, agree on the primary of each slot,
    /// and that primary runs: a failover is then complete.
    pub fn wait_until_ok(&self) {
        let start = Instant::now();
        while !self.is_ok() {
            assert!(start.elapsed() < DEADLINE, "no healthy cluster: {}", self.report());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_ok(&self) -> bool {
        let maps: Option<BTreeSet<_>> = self.running().map(|it| self.map_of(it)).collect();
        maps.is_some_and(|maps| maps.len() == 1)
    }

    /// Returns the cluster as each node sees it, for the message of a failed test.
    fn report(&self) -> String {
        let of_node = |node: &Redis| {
            let answer = |command: &str| node.try_cli(&["CLUSTER", command]).unwrap_or_else(|error| error);
            format!(
                "\n{}, running: {}\n{}\n{}",
                node.address(),
                node.is_running(),
                answer("INFO"),
                answer("NODES")
            )
        };
        self.nodes.iter().map(of_node).collect()
    }

    /// Moves a slot with its keys to another primary while the cluster serves.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.open_slot(slot, to);
        self.close_slot(slot, to);
    }

    /// Runs the first half of [`RedisCluster::move_slot`]: the slot is migrating, so its old
    /// primary answers `ASK` for absent keys. No key has moved yet.
    pub fn open_slot(&self, slot: u16, to: usize) {
        let (from, slot) = (self.primary_of_slot(slot), slot.to_string());
        assert_ne!(from, to, "the slot is there already");
        self.nodes[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.names[from]]);
        self.nodes[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.names[to]]);
    }

    /// Runs the second half of [`RedisCluster::move_slot`]: moves the keys, then notifies all
    /// nodes.
    pub fn close_slot(&self, slot: u16, to: usize) {
        let (from, number) = (&self.nodes[self.primary_of_slot(slot)], slot.to_string());
        let port = self.nodes[to].port().to_string();
        wait_until("empty slot", || {
            // Quoted in both directions: a key may contain any byte.
            let keys = from.cli(&["--no-raw", "CLUSTER", "GETKEYSINSLOT", &number, "100"]);
            let keys: Vec<&str> =
                keys.lines().filter_map(|it| it.split_once(") ")).map(|(_, key)| key).collect();
            if !keys.is_empty() {
                let migrate = ["--quoted-input", "MIGRATE", "127.0.0.1", &port, "\"\"", "0", "5000", "KEYS"];
                from.cli(&[&migrate, &*keys].concat());
            }
            keys.is_empty()
        });
        let others = self.running().filter(|it| is_primary(it));
        for node in [&self.nodes[to], from].into_iter().chain(others) {
            node.cli(&["CLUSTER", "SETSLOT", &number, "NODE", &self.names[to]]);
        }
        wait_until("moved slot", || self.running().all(|it| self.owner(it, slot) == Some(to)));
    }

    /// Moves many slots with their keys from one primary to another while the cluster serves.
    pub fn reshard(&self, from: usize, to: usize, slots: u16) {
        let (address, slots) = (self.nodes[from].address(), slots.to_string());
        let ends = ["--cluster-from", &self.names[from], "--cluster-to", &self.names[to]];
        manage(&[&["reshard", &*address, "--cluster-slots", &slots], &ends[..]].concat());
        self.wait_until_ok();
    }

    /// Removes a slot from all nodes, and waits until the cluster is down because of it.
    pub fn uncover(&self, slot: u16) {
        let number = slot.to_string();
        wait_until("cluster that is down", || {
            // A node that does not know yet may announce the old owner once more.
            for node in self.running().filter(|it| self.owner(it, slot).is_some()) {
                let _ = node.try_cli(&["CLUSTER", "DELSLOTS", &number]);
            }
            self.running().all(|it| it.cli(&["CLUSTER", "INFO"]).contains("cluster_state:fail"))
        });
    }

    /// Assigns an uncovered slot to a primary, and waits until the cluster is healthy.
    pub fn cover(&self, slot: u16, index: usize) {
        self.nodes[index].cli(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
        self.wait_until_ok();
    }

    fn running(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|it| it.is_running())
    }

    /// Returns the primary of a slot, as seen by one node.
    fn owner(&self, node: &Redis, slot: u16) -> Option<usize> {
        let view = view(node);
        let owner =
            view.iter().find(|it| it.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot)));
        owner.and_then(|it| self.names.iter().position(|name| *name == it.name))
    }

    /// Returns the first slot, last slot and primary of each range as seen by one node; `None` if
    /// the cluster is not healthy.
    fn map_of(&self, node: &Redis) -> Option<BTreeSet<(u16, u16, String)>> {
        node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(())?;
        let (mut map, mut covered) = (BTreeSet::new(), 0);
        for seen in view(node).into_iter().filter(|it| !it.slots.is_empty()) {
            let index = self.names.iter().position(|name| *name == seen.name)?;
            self.nodes[index].is_running().then_some(())?;
            for (first, last) in seen.slots {
                covered += last - first + 1;
                map.insert((first, last, seen.name.clone()));
            }
        }
        (covered == SLOTS).then_some(map)
    }
}

/// A node as seen by another node.
struct NodeView {
    name: String,
    /// The id of its primary; `-` if it is a primary.
    primary: String,
    slots: Vec<(u16, u16)>,
}

/// Returns all nodes as seen by one node.
fn view(node: &Redis) -> Vec<NodeView> {
    let nodes = node.cli(&["CLUSTER", "NODES"]);
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A migrating slot appears a second time, in brackets.
        let slots = words.iter().skip(8).filter(|it| !it.starts_with('['));
        let range = |it: &&str| {
            let (first, last) = it.split_once('-').unwrap_or((it, it));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Some(NodeView {
            name: (*words.first()?).to_string(),
            primary: (*words.get(3)?).to_string(),
            slots: slots.filter_map(range).collect(),
        })
    };
    nodes.lines().filter_map(parse).collect()
}

fn is_primary(node: &Redis) -> bool {
    node.cli(&["ROLE"]).starts_with("master")
}

/// Runs a cluster command of `redis-cli` without prompts.
fn manage(arguments: &[&str]) {
    let mut command = Command::new("redis-cli");
    command.arg("--cluster").args(arguments).arg("--cluster-yes");
    let finished = ProgramOutput::of(command);
    assert_eq!(finished.code, Some(0), "redis-cli {arguments:?}: {}{}", finished.stdout, finished.stderr);
}
