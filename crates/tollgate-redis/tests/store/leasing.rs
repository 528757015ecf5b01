//! Leases from a real server: several nodes on one key never admit more than its limit.

use std::time::Duration;

use tollgate_core::{Bucket, FixedWindow, Rate, Rule, SlidingWindow, Span};
use tollgate_lease::Leased;
use tollgate_lease::conformance::{a_hot_key_outlives_silence, nodes_share_a_limit};
use tollgate_redis::RedisStore;
use tollgate_store::{Check, Store};
use tollgate_testkit::Redis;

use crate::support::store;

const NODES: usize = 8;

async fn nodes(redis: &Redis) -> Vec<Leased<RedisStore>> {
    let nodes: Vec<_> = (0..NODES).map(|_| Leased::new(store(&[redis.url()]))).collect();
    for node in &nodes {
        node.inner().connect().await.unwrap();
    }
    nodes
}

#[tokio::test]
async fn eight_nodes_share_a_limit_and_never_admit_more() {
    let redis = Redis::start();
    let nodes = nodes(&redis).await;
    nodes_share_a_limit(&nodes, "bucket", Bucket::new(Rate::per_hour(100)).unwrap()).await;
    nodes_share_a_limit(&nodes, "fixed", FixedWindow::anchored(Rate::per_hour(100)).unwrap()).await;
    nodes_share_a_limit(&nodes, "sliding", SlidingWindow::new(Rate::per_day(100)).unwrap()).await;
}

#[tokio::test]
async fn a_hot_key_is_decided_while_redis_is_silent() {
    let redis = Redis::start();
    let node = Leased::new(store(&[redis.url()]));
    node.inner().connect().await.unwrap();
    a_hot_key_outlives_silence(&node, || redis.pause(), || redis.resume()).await;
}

#[tokio::test]
async fn the_units_of_a_killed_node_stay_charged() {
    let redis = Redis::start();
    let rule = Rule::new("killed", Bucket::new(Rate::per_hour(1_000)).unwrap());
    let rule = rule.leased_for(Some(Span::from_secs(1)));
    let checks = [Check::new(&rule, b"hot", 1)];
    let killed = Leased::new(store(&[redis.url()]));
    for _ in 0..40 {
        assert!(killed.decide(&checks).await.unwrap().admitted);
    }
    let held = killed.counters().held;
    assert!(held > 0);
    drop(killed);
    let other = store(&[redis.url()]);
    let mut admitted = 0;
    while other.decide(&checks).await.unwrap().admitted {
        admitted += 1;
    }
    // Less than one unit comes back in three seconds.
    tokio::time::sleep(Duration::ZERO).await;
    assert!(40 + held + admitted <= 1_002, "{held} held, {admitted} admitted");
}
