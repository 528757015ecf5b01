//! Peers that die, and lists of peers that differ.
//!
//! The load is on two of three nodes, because callers of a dead node get no answer.

use std::time::{Duration, Instant};

use tollgate_testkit::{Tollgate, free_port, wait_until};

use crate::client::post_json;
use crate::harness::{Decided, Fault, KEYS, LIMIT, ServedNode, run, tight_key};

/// The share of a limit that is granted in an outage, and that a key begins with if its usage is lost.
const SHARE: u64 = LIMIT / 5;

fn list(ports: &[u16]) -> String {
    let addresses: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("'tollgate://{}'", addresses.join(","))
}

/// Waits until a node decides all tight keys by their owners.
fn wait_until_it_reaches_all(node: &Tollgate) {
    wait_until("a node that reaches all peers", || {
        (0..KEYS).all(|number| {
            let body = format!(r#"{{"path":"/wide","api_key":"{}"}}"#, tight_key(number));
            post_json(node.api, "/v1/check", &body)["degraded"] == false
        })
    });
}

#[test]
fn a_peer_that_is_killed_costs_no_more_than_the_share_of_its_keys() {
    let ports = [free_port(), free_port(), free_port()];
    let fault = Fault {
        place: 420,
        name: "one of three peers killed (`kill -9`), started again after 2 s",
        topology: "peers",
        url: list(&ports),
        decided: Decided::Exactly,
        nodes: 2,
        why: "its keys begin with the share",
    };
    let mut third = Some(fault.start_node(2));
    let report = run(&fault, |rig| {
        wait_until_it_reaches_all(&rig.nodes[0]);
        drop(third.take());
        rig.endure(Duration::from_secs(2));
        third = Some(fault.start_node(2));
        wait_until_it_reaches_all(&rig.nodes[0]);
        ServedNode::with_loss(Instant::now(), KEYS as u64 * SHARE)
    });
    assert!(report.degraded > 0);
}

#[test]
fn peers_whose_lists_differ_admit_the_limit() {
    let ports = [free_port(), free_port(), free_port()];
    let fault = Fault {
        place: 421,
        name: "a third peer joins that only its own list names",
        topology: "peers",
        url: list(&ports[..2]),
        decided: Decided::Exactly,
        nodes: 2,
        why: "",
    };
    let wide = Fault { url: list(&ports), nodes: 3, ..fault };
    let mut third = None;
    let report = run(&fault, |rig| {
        let joined = wide.start_node(2);
        wait_until_it_reaches_all(&joined);
        rig.endure(Duration::from_secs(1));
        third = Some(joined);
        ServedNode::since(Instant::now())
    });
    assert!(report.degraded < report.decisions / 2);
}
