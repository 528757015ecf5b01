//! Leases from a real server: several nodes on one key never admit more than its limit.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Bucket, FixedWindow, Quota, Rate, Rule, SlidingWindow, Span};
use tollgate_lease::Leased;
use tollgate_redis::RedisStore;
use tollgate_store::{Check, Outcomes, Store};
use tollgate_testkit::Redis;

use crate::support::store;

const NODES: usize = 8;
const REQUESTS: usize = 150;

type Node = Arc<Leased<RedisStore>>;

fn nodes(redis: &Redis) -> Vec<Node> {
    (0..NODES).map(|_| Arc::new(Leased::new(store(&[redis.url()])))).collect()
}

/// Lets every node send its requests at once, and returns the number of admitted requests.
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

async fn check_stampede(name: &str, quota: impl Into<Quota>, at_least: usize) {
    let redis = Redis::start();
    let nodes = nodes(&redis);
    for node in &nodes {
        node.inner().connect().await.unwrap();
    }
    let rule = Rule::new(name, quota).leased_for(Some(Span::from_secs(1)));
    let admitted = stampede(&nodes, &rule).await;
    assert!((at_least..=100).contains(&admitted), "{name}: {admitted} of 100");
    for node in &nodes {
        node.drain().await;
    }
    // What was not spent has been returned, so all units are spent at the end.
    let rest = stampede(&nodes, &rule).await;
    assert!(admitted + rest <= 100, "{name}: {admitted} and {rest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_nodes_share_a_bucket_and_never_admit_more() {
    check_stampede("bucket", Bucket::new(Rate::per_hour(100)).unwrap(), 98).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_nodes_share_a_window_and_never_admit_more() {
    check_stampede("fixed", FixedWindow::anchored(Rate::per_hour(100)).unwrap(), 98).await;
    check_stampede("sliding", SlidingWindow::new(Rate::per_day(100)).unwrap(), 98).await;
}

#[tokio::test]
async fn a_hot_key_is_decided_while_redis_is_silent() {
    let redis = Redis::start();
    let node = Leased::new(store(&[redis.url()]));
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
    redis.pause();
    // Half of what is held: the lease lives for ten seconds, and no call is made.
    for _ in 0..held / 2 {
        assert!(node.try_decide(&checks, &mut Outcomes::new()).is_some_and(|(admitted, _)| admitted));
    }
    redis.resume();
    node.drain().await;
    assert_eq!(node.counters().held, 0);
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
