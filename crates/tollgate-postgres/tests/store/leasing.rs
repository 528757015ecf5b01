//! Unit leases on PostgreSQL: nodes that share a budget, and decide hot keys by themselves.

use std::sync::Arc;

use tollgate_core::{Bucket, FixedWindow, Quota, Rate, Rule, Span};
use tollgate_lease::Leased;
use tollgate_postgres::PostgresStore;
use tollgate_store::{Check, Outcomes, Store};
use tollgate_testkit::Postgres;

use crate::support::store;

const NODES: usize = 4;
const REQUESTS: usize = 50;

type Node = Arc<Leased<PostgresStore>>;

/// Sends requests from all nodes concurrently, and returns the number of admitted ones.
async fn stampede(nodes: &[Node], rule: &Rule) -> usize {
    let mut tasks = Vec::new();
    for _ in 0..REQUESTS {
        for node in nodes {
            let (node, rule) = (Arc::clone(node), rule.clone());
            tasks.push(tokio::spawn(async move {
                node.decide(&[Check::new(&rule, b"hot", 1)]).await.unwrap().admitted
            }));
        }
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += usize::from(task.await.unwrap());
    }
    admitted
}

async fn check_stampede(server: &Postgres, name: &str, quota: impl Into<Quota>) {
    let nodes: Vec<Node> = (0..NODES).map(|_| Arc::new(Leased::new(store(server)))).collect();
    let rule = Rule::new(name, quota).leased_for(Some(Span::from_secs(1)));
    let admitted = stampede(&nodes, &rule).await;
    // Nodes that are slow hold units that the others miss.
    assert!((50..=100).contains(&admitted), "{name}: {admitted} of 100");
    for node in &nodes {
        node.drain().await;
    }
    let rest = stampede(&nodes, &rule).await;
    assert!(admitted + rest <= 100, "{name}: {admitted} and {rest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_leases_never_admit_more_than_the_limit() {
    let server = Postgres::start();
    check_stampede(&server, "bucket", Bucket::new(Rate::per_hour(100)).unwrap()).await;
    check_stampede(&server, "window", FixedWindow::anchored(Rate::per_hour(100)).unwrap()).await;
}

#[tokio::test]
async fn a_hot_key_is_decided_while_the_server_is_silent() {
    let server = Postgres::start();
    let node = Leased::new(store(&server));
    node.inner().connect().await.unwrap();
    let bucket = Bucket::new(Rate::per_hour(3_600_000)).unwrap();
    let rule = Rule::new("silent", bucket).leased_for(Some(Span::from_secs(10)));
    let checks = [Check::new(&rule, b"hot", 1)];
    for _ in 0..200 {
        assert!(node.decide(&checks).await.unwrap().admitted);
    }
    node.tend().await;
    let held = node.counters().held;
    assert!(held >= 100, "{:?}", node.counters());
    server.pause();
    // Half of what is held: the lease lives for ten seconds, and no call is made.
    for _ in 0..held / 2 {
        assert!(node.try_decide(&checks, &mut Outcomes::new()).is_some_and(|(admitted, _)| admitted));
    }
    server.resume();
    node.drain().await;
    assert_eq!(node.counters().held, 0);
}
