//! The fleet shedder: two nodes share the slots and the rate of one Redis, class by class.

use tollgate::{Call, Limiter, Policy};
use tollgate_redis::RedisStore;
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::store;

fn policy(fleet: &str) -> Policy {
    let classes = "[{name: critical, endpoint: /pay}, {name: paid, endpoint: /paid}, {name: bulk}]";
    let text = format!("priorities: {classes}\nshed: {{fleet: {{{fleet}}}}}\nlimits: []");
    Policy::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Creates two nodes on one store.
fn nodes(fleet: &str, urls: &[String]) -> [Limiter<RedisStore>; 2] {
    [(), ()].map(|()| Limiter::with_store(policy(fleet), store(urls)))
}

/// Returns the number of admitted requests among `count`, which alternate between the nodes.
async fn admitted(nodes: &[Limiter<RedisStore>; 2], path: &str, count: usize) -> usize {
    let mut admitted = 0;
    for at in 0..count {
        let decision = nodes[at % 2].decide(&Call::new("GET", path)).await;
        assert!(!decision.is_degraded(), "Redis answers");
        admitted += usize::from(decision.is_allowed());
    }
    admitted
}

async fn check_slots(urls: &[String]) {
    let nodes = nodes("slots: 20, reserve: {critical: 20%, paid: 6}", urls);
    assert_eq!(admitted(&nodes, "/bulk", 30).await, 10);
    assert_eq!(admitted(&nodes, "/paid", 30).await, 6, "the deny cache knows the maximum of each class");
    assert_eq!(admitted(&nodes, "/bulk", 4).await, 0);
    let held = nodes[0].decide(&Call::new("GET", "/pay")).await;
    assert!(held.is_allowed());
    assert_eq!(admitted(&nodes, "/pay", 30).await, 3);
    let refused = nodes[1].decide(&Call::new("GET", "/pay")).await;
    assert!(refused.is_shed());
    assert_eq!(refused.limiting().map(|it| (it.name(), it.outcome().limit)), Some(("shed.fleet", 20)));
    nodes[0].release(&held).await.unwrap();
    assert_eq!(admitted(&nodes, "/paid", 4).await, 0, "the free slot is reserved");
    assert_eq!(admitted(&nodes, "/pay", 2).await, 1);
}

#[tokio::test]
async fn two_nodes_share_the_slots_of_the_fleet_by_class() {
    let redis = Redis::start();
    check_slots(&[redis.url()]).await;
}

#[tokio::test]
async fn two_nodes_share_the_slots_of_the_fleet_on_a_cluster() {
    let cluster = RedisCluster::start();
    check_slots(&cluster.urls()).await;
}

#[tokio::test]
async fn two_nodes_share_the_rate_of_the_fleet_by_class() {
    let redis = Redis::start();
    // Whole ticks use the plain script, fractions of a tick the general one.
    for (fleet, all) in [
        ("rate: 20/day, reserve: {critical: 4, paid: 6}", 20),
        ("rate: '7/day, burst 20', reserve: {critical: 4, paid: 6}", 20),
    ] {
        let nodes = nodes(fleet, &[redis.url()]);
        let found = [
            admitted(&nodes, "/bulk", 30).await,
            admitted(&nodes, "/paid", 30).await,
            admitted(&nodes, "/bulk", 3).await,
            admitted(&nodes, "/pay", 30).await,
            admitted(&nodes, "/paid", 3).await,
        ];
        assert_eq!((found, found.iter().sum::<usize>()), ([10, 6, 0, 4, 0], all), "{fleet}");
    }
}
