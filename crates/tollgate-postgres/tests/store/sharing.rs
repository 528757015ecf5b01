//! Nodes and tasks that share keys: never more than the limit, and no deadlocks.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Adjustment, Amount, Concurrency, Owner, Rate, Rule, SlidingLog, Span};
use tollgate_postgres::PostgresStore;
use tollgate_store::{Check, Store};
use tollgate_testkit::Postgres;

use crate::support::{daily, eventually, left, store};

/// Runs tasks on several stores; each decides `rounds` batches of the keys that `keys` returns for its
/// number. Returns the number of admitted batches.
async fn run(
    stores: &[Arc<PostgresStore>],
    (tasks, rounds): (usize, usize),
    rule: &Rule,
    keys: impl Fn(usize, usize) -> Vec<String>,
) -> usize {
    let mut running = Vec::new();
    for task in 0..tasks {
        let (store, rule) = (Arc::clone(&stores[task % stores.len()]), rule.clone());
        let batches: Vec<_> = (0..rounds).map(|round| keys(task, round)).collect();
        running.push(tokio::spawn(async move {
            let mut admitted = 0;
            for keys in batches {
                let checks: Vec<_> = keys.iter().map(|key| Check::new(&rule, key.as_bytes(), 1)).collect();
                admitted += usize::from(store.decide(&checks).await.unwrap().admitted);
            }
            admitted
        }));
    }
    let mut admitted = 0;
    for task in running {
        admitted += task.await.unwrap();
    }
    admitted
}

fn stores(server: &Postgres, count: usize) -> Vec<Arc<PostgresStore>> {
    (0..count).map(|_| Arc::new(store(server))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_two_nodes_never_admit_more_than_the_limit() {
    let server = Postgres::start();
    let stores = stores(&server, 2);
    let log = Rule::new("log", SlidingLog::new(Rate::per_day(60)).unwrap());
    for rule in [daily("bucket", 60), log] {
        // Brand-new keys, too: no row exists that could be locked.
        for key in ["one", "two", "three"] {
            let admitted = run(&stores, (8, 10), &rule, |_, _| vec![key.to_owned()]).await;
            assert_eq!(admitted, 60, "{} {key}", rule.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_opposite_order_do_not_deadlock() {
    let server = Postgres::start();
    let stores = stores(&server, 2);
    let rule = daily("opposite", 1_000);
    let keys = |task: usize, round: usize| -> Vec<String> {
        let keys = (0..8).map(|at| format!("{}-{at}", round % 3));
        if task.is_multiple_of(2) { keys.collect() } else { keys.rev().collect() }
    };
    let admitted = run(&stores, (8, 30), &rule, keys).await;
    assert_eq!(admitted, 240, "no transaction failed");
    assert!(!server.log().contains("deadlock"), "{}", server.log());
    assert_eq!(left(&stores[0], &rule, "0-0").await, 1_000 - 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_charges_nothing_under_contention() {
    let server = Postgres::start();
    let stores = stores(&server, 2);
    let (wide, narrow) = (daily("wide", 1_000), daily("narrow", 10));
    let mut running = Vec::new();
    for task in 0..8 {
        let (store, wide, narrow) = (Arc::clone(&stores[task % 2]), wide.clone(), narrow.clone());
        running.push(tokio::spawn(async move {
            for _ in 0..10 {
                let checks = [Check::new(&wide, b"key", 1), Check::new(&narrow, b"key", 1)];
                store.decide(&checks).await.unwrap();
            }
        }));
    }
    for task in running {
        task.await.unwrap();
    }
    assert_eq!(left(&stores[0], &wide, "key").await, 990);
}

#[tokio::test]
async fn requests_that_wait_share_a_transaction() {
    let server = Postgres::start();
    let store = Arc::new(store(&server));
    store.connect().await.unwrap();
    let rule = daily("shared", 1_000);
    let requests: Vec<_> = (0..64)
        .map(|_| {
            let (store, rule) = (Arc::clone(&store), rule.clone());
            tokio::spawn(async move { store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted })
        })
        .collect();
    for request in requests {
        assert!(request.await.unwrap());
    }
    let counters = store.counters();
    assert_eq!(counters.decisions, 64);
    assert!(counters.transactions <= 8, "{counters:?}");
    assert!(counters.connections <= 4, "{counters:?}");
    assert_eq!(left(&store, &rule, "key").await, 936);
}

#[tokio::test]
async fn a_caller_that_leaves_keeps_no_slot() {
    let server = Postgres::start();
    let store = Arc::new(store(&server));
    store.connect().await.unwrap();
    let slots = Rule::new("slots", Concurrency::new(1_000, Span::from_hours(1)).unwrap());
    for round in 0..200_u64 {
        let (store_of_task, slots_of_task) = (Arc::clone(&store), slots.clone());
        let owner = Owner(u128::from(round));
        let task = tokio::spawn(async move {
            let check = Check { amount: Amount::Slot(owner), ..Check::new(&slots_of_task, b"key", 1) };
            store_of_task.decide(&[check]).await.map(drop)
        });
        // Leaves in every stage of a transaction.
        tokio::time::sleep(Duration::from_micros(round * 20)).await;
        task.abort();
        if task.await.is_ok() {
            // It was answered before it could leave.
            store.adjust(&slots, b"key", Adjustment::Release { owner }).await.unwrap();
        }
    }
    eventually("all slots are free", async || left(&store, &slots, "key").await == 1_000).await;
}
