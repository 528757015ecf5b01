//! Unit leases on PostgreSQL: nodes that share a budget, and decide hot keys by themselves.

use tollgate_core::{Bucket, FixedWindow, Rate};
use tollgate_lease::Leased;
use tollgate_lease::conformance::{a_hot_key_outlives_silence, nodes_share_a_limit};
use tollgate_testkit::Postgres;

use crate::support::store;

const NODES: usize = 8;

#[tokio::test]
async fn eight_nodes_share_a_limit_and_never_admit_more() {
    let server = Postgres::start();
    let nodes: Vec<_> = (0..NODES).map(|_| Leased::new(store(&server))).collect();
    for node in &nodes {
        node.inner().connect().await.unwrap();
    }
    nodes_share_a_limit(&nodes, "bucket", Bucket::new(Rate::per_hour(100)).unwrap()).await;
    nodes_share_a_limit(&nodes, "window", FixedWindow::anchored(Rate::per_hour(100)).unwrap()).await;
}

#[tokio::test]
async fn a_hot_key_is_decided_while_the_server_is_silent() {
    let server = Postgres::start();
    let node = Leased::new(store(&server));
    node.inner().connect().await.unwrap();
    a_hot_key_outlives_silence(&node, || server.pause(), || server.resume()).await;
}
