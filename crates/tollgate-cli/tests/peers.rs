//! `store: tollgate://…` with the binary: several processes as one store.
//!
//! Deadlines are long, so that a busy machine does not affect the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::thread;

use serde_json::Value;
use tollgate_testkit::{Tollgate, free_port, wait_until};

use crate::service::client::asked;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

fn start(list: &str, port: u16) -> Tollgate {
    let policy = format!(
        "store: {{url: '{list}', deadline: 10s}}\ngateway: {{workers: 2}}\n\
         limits:\n  - {{name: api, by: user, bucket: 100/day}}\n"
    );
    Tollgate::start_with(BINARY, &policy, &["--set", &format!("listen.resp=127.0.0.1:{port}")])
}

fn check(node: &Tollgate, user: usize) -> Value {
    asked(node.api, "/v1/check", &format!(r#"{{"path":"/","user":"user-{user}"}}"#))
}

/// Returns how many of sixty users are decided without the owner of their key.
fn degraded(node: &Tollgate) -> usize {
    (0..60).filter(|user| check(node, *user)["degraded"] == true).count()
}

#[test]
fn three_processes_share_one_budget_and_lose_only_the_keys_of_a_dead_one() {
    let ports = [free_port(), free_port(), free_port()];
    let list = format!("tollgate://{}", ports.map(|port| format!("127.0.0.1:{port}")).join(","));
    let mut nodes: Vec<_> = ports.iter().map(|port| start(&list, *port)).collect();
    // Nodes that started earlier try to reach the later ones until they answer.
    let is_settled = || nodes.iter().all(|node| (0..20).all(|user| check(node, user)["degraded"] == false));
    wait_until("all nodes to reach each other", is_settled);
    let admitted: usize = thread::scope(|scope| {
        let call = |node| (0..50).filter(|_| check(node, 99)["allowed"] == true).count();
        let callers: Vec<_> =
            nodes.iter().cycle().take(6).map(|node| scope.spawn(move || call(node))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100, "{}", nodes[0].log());

    drop(nodes.pop());
    wait_until("the loss of a node to be noticed", || degraded(&nodes[0]) > 0);
    let lost = degraded(&nodes[0]);
    assert!((1..50).contains(&lost), "{lost} of 60 keys: only those of the dead node");
    nodes.push(start(&list, ports[2]));
    wait_until("the node to be back", || degraded(&nodes[0]) == 0);
}
