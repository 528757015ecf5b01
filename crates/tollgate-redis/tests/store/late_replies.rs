//! Calls without a reply in time: their charges are undone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{Adjustment, Amount, Bucket, ChargeTimes, Concurrency, Owner, Queue, Rate, Rule, Span};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{Check, Store, StoreError};
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::{patient, store};

fn daily(name: &str, units: u64) -> Rule {
    Rule::new(name, Bucket::new(Rate::per_day(units)).unwrap())
}

async fn left(store: &RedisStore, rule: &Rule, key: &str) -> u64 {
    store.decide(&[Check::new(rule, key.as_bytes(), 0)]).await.unwrap().outcomes[0].remaining
}

/// Waits for a background event, with a generous timeout.
async fn eventually(what: &str, check: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !check().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn charges_after_the_deadline_are_undone() {
    let redis = Redis::start();
    let hasty =
        RedisStore::new(RedisSettings { deadline: Duration::from_millis(50), ..patient(&[redis.url()]) });
    let calm = store(&[redis.url()]);
    let (rule, slots) =
        (daily("late", 100), Rule::new("slots", Concurrency::new(10, Span::from_hours(1)).unwrap()));
    hasty.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap();
    redis.pause();
    let slot = Check { amount: Amount::Slot(Owner(7)), ..Check::new(&slots, b"key", 1) };
    let late = hasty.decide(&[Check::new(&rule, b"key", 20), slot]).await;
    assert!(matches!(late, Err(StoreError::TimedOut(_))), "{late:?}");
    redis.resume();
    eventually("the units are back", async || left(&calm, &rule, "key").await == 99).await;
    eventually("the slot is back", async || left(&calm, &slots, "key").await == 10).await;
}

#[tokio::test]
async fn a_canceled_request_leaves_no_charge() {
    let cluster = RedisCluster::start();
    let store = Arc::new(store(&cluster.urls()));
    store.connect().await.unwrap();
    let (all, own) = (Arc::new(daily("all", 1_000)), Arc::new(daily("own", 1)));
    let slots = Arc::new(Rule::new("slots", Concurrency::new(1_000, Span::from_hours(1)).unwrap()));
    store.decide(&[Check::new(&own, b"drained", 1)]).await.unwrap();
    for round in 0..300_u64 {
        let (store, all, own, slots) =
            (Arc::clone(&store), Arc::clone(&all), Arc::clone(&own), Arc::clone(&slots));
        let task = tokio::spawn(async move {
            let slot =
                Check { amount: Amount::Slot(Owner(u128::from(round))), ..Check::new(&slots, b"slots", 1) };
            let checks = [Check::new(&all, b"all", 1), slot, Check::new(&own, b"drained", 1)];
            store.decide(&checks).await.map(drop)
        });
        tokio::time::sleep(Duration::from_micros(round * 4)).await;
        task.abort();
    }
    eventually("all units are back", async || left(&store, &all, "all").await == 1_000).await;
    eventually("all slots are back", async || left(&store, &slots, "slots").await == 1_000).await;
}

#[tokio::test]
async fn a_canceled_request_leaves_no_place_in_a_queue() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    store.connect().await.unwrap();
    let queue = Bucket::new(Rate::per_day(1)).unwrap().with_queue(Queue::new(50)).unwrap();
    let rule = Arc::new(Rule::new("queue", queue));
    assert!(store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted);
    for round in 0..300_u64 {
        let (store_of_task, rule_of_task) = (Arc::clone(&store), Arc::clone(&rule));
        let task = tokio::spawn(async move {
            // If the answer arrives, the caller leaves by itself.
            let answer = store_of_task.decide(&[Check::new(&rule_of_task, b"key", 1)]).await.unwrap();
            let charge = ChargeTimes::of(answer.at, &answer.outcomes[0]);
            let refund = Adjustment::Refund { units: 1, charge };
            let adjusting = async move { store_of_task.adjust(&rule_of_task, b"key", refund).await };
            let _done = tokio::spawn(adjusting).await;
        });
        tokio::time::sleep(Duration::from_micros(round * 4)).await;
        task.abort();
        eventually("the place is given back", async || left(&store, &rule, "key").await == 50).await;
    }
}

#[tokio::test]
async fn a_silent_node_affects_no_other_node_and_is_replaced() {
    let cluster = RedisCluster::start();
    let hasty = RedisSettings { deadline: Duration::from_millis(100), ..patient(&cluster.urls()) };
    let (store, rule) = (RedisStore::new(hasty), daily("silent", 1_000_000));
    let keys: Vec<_> = (0..60).map(|at| format!("key-{at}")).collect();
    let ask = async || {
        let mut served = 0;
        for key in &keys {
            served += usize::from(store.decide(&[Check::new(&rule, key.as_bytes(), 1)]).await.is_ok());
        }
        served
    };
    eventually("all is well", async || ask().await == 60).await;
    let victim = cluster.primary_of_slot(0);
    cluster.node(victim).pause();
    let served = ask().await;
    assert!((30..60).contains(&served), "{served} of 60: a third is silent, and only that");
    eventually("its replica has taken over", async || ask().await == 60).await;
    cluster.node(victim).resume();
    eventually("and the old one does no harm", async || ask().await == 60).await;
}

#[tokio::test]
async fn a_server_that_refuses_work_is_not_flooded_with_connections() {
    let (primary, replica) = (Redis::start(), Redis::start());
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let (store, rule) = (store(&[replica.url()]), daily("stormed", 10));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let reply = store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap_err();
        assert!(matches!(reply, StoreError::Refused(_)), "{reply:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(store.counters().connections <= 25, "{:?}", store.counters());
}

#[tokio::test]
async fn a_node_with_the_old_quota_grants_no_second_budget() {
    let redis = Redis::start();
    let (new, old) = (store(&[redis.url()]), store(&[redis.url()]));
    let before = daily("rolling", 100);
    let after = daily("rolling", 110).replacing(&before);
    let take = async |store: &RedisStore, rule: &Rule, units| {
        store.decide(&[Check::new(rule, b"key", units)]).await.unwrap().admitted
    };
    assert!(take(&old, &before, 100).await);
    assert!(take(&new, &after, 10).await && !take(&new, &after, 1).await, "a hundred are carried over");
    assert!(!take(&old, &before, 1).await, "and the old one is still drained");
    let back = daily("rolling", 100).replacing(&after);
    assert!(!take(&new, &back, 1).await, "and back again");
}

#[test]
fn a_store_outlives_runtimes_that_shut_down_before_a_request_was_sent() {
    let redis = Redis::start();
    let (store, rule) = (store(&[redis.url()]), daily("outliving", 10));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let checks = [Check::new(&rule, b"key", 1)];
    for _ in 0..4 {
        runtime().block_on(async {
            tokio::select! {
                biased;
                reply = store.decide(&checks) => panic!("nothing was sent: {reply:?}"),
                () = std::future::ready(()) => {}
            }
        });
    }
    let answer = runtime()
        .block_on(async { tokio::time::timeout(Duration::from_secs(30), store.decide(&checks)).await });
    assert!(answer.expect("it is sent").unwrap().admitted);
}
