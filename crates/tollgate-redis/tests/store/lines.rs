//! Requests that wait in line for a slot of a limit that several nodes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::{Call, Limiter, OutageSettings, Policy, Sleeper};
use tollgate_redis::RedisStore;
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::store;

/// Long enough for a busy machine: no test waits for it in vain.
const LONG: Duration = Duration::from_secs(60);

fn policy(slots: usize) -> Policy {
    let limit = format!("{{name: db, by: tenant, slots: {slots}, queue: {{length: 5000, wait: 60s}}}}");
    Policy::parse(&format!("limits: [{limit}]")).unwrap()
}

/// A node with its own connections.
fn node(urls: &[String], slots: usize) -> Limiter<RedisStore> {
    Limiter::with_store(policy(slots), store(urls)).with_sleeper(Sleeper::new(tokio::time::sleep))
}

fn call(tenant: &str) -> Call<'_> {
    Call::new("GET", "/").tenant(tenant)
}

async fn until_waiting(limiter: &Limiter<RedisStore>, number: usize) {
    let since = Instant::now();
    while limiter.waiting() < number {
        assert!(since.elapsed() < LONG, "{} wait", limiter.waiting());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn check_two_nodes(urls: &[String]) {
    let (one, other) = (node(urls, 1), node(urls, 1));
    for _ in 0..5 {
        let running = one.acquire(&call("ann")).await.unwrap();
        let waiting = {
            let other = other.clone();
            tokio::spawn(async move { other.acquire_within(&call("ann"), LONG).await.map_err(|_| "refused") })
        };
        until_waiting(&other, 1).await;
        assert!(one.acquire(&call("ann")).await.is_err(), "the slot is taken");
        running.release().await.unwrap();
        let permit = waiting.await.unwrap().unwrap();
        assert!(one.acquire(&call("ann")).await.is_err(), "the other node has the slot");
        permit.release().await.unwrap();
    }
    assert_eq!((one.waiting(), other.waiting()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_on_one_node_admits_a_request_that_waits_on_another() {
    check_two_nodes(&[Redis::start().url()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_on_one_node_admits_a_request_that_waits_on_another_of_a_cluster() {
    let cluster = RedisCluster::start();
    check_two_nodes(&cluster.urls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_to_redis_do_not_depend_on_the_number_of_requests_that_wait() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    let limiter = Limiter::with_shared_store(policy(1), Arc::clone(&store));
    let limiter = limiter.with_sleeper(Sleeper::new(tokio::time::sleep));
    let running = limiter.acquire(&call("ann")).await.unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let (limiter, served) = (limiter.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                let permit = limiter.acquire_within(&call("ann"), LONG).await.map_err(|_| "refused").unwrap();
                permit.release().await.unwrap();
                served.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    until_waiting(&limiter, 1_000).await;
    let (before, since) = (store.counters().calls, Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (calls, time) = (store.counters().calls - before, since.elapsed());
    // An attempt every 20 ms at most, and one that was under way.
    assert!(u128::from(calls) <= time.as_millis() / 20 + 2, "{calls} calls in {time:?}");
    assert!(calls >= 1, "the node asks from time to time");
    // A release on this node wakes a request immediately, and each admission the next.
    let first = store.counters().calls;
    running.release().await.unwrap();
    while served.load(Ordering::Relaxed) < 20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let calls = store.counters().calls - first;
    let served = served.load(Ordering::Relaxed);
    assert!(calls < served * 20, "{calls} calls for {served} requests");
    for task in tasks {
        task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_of_many_keys_share_calls() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    let limiter = Limiter::with_shared_store(policy(1), Arc::clone(&store));
    let limiter = limiter.with_sleeper(Sleeper::new(tokio::time::sleep));
    let tenants: Vec<String> = (0..300).map(|number| format!("tenant-{number}")).collect();
    let mut running = Vec::new();
    for tenant in &tenants {
        running.push(limiter.acquire(&call(tenant)).await.unwrap());
    }
    let tasks: Vec<_> = tenants
        .iter()
        .cloned()
        .map(|tenant| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.acquire_within(&call(&tenant), LONG).await.map(drop).map_err(|_| "refused")
            })
        })
        .collect();
    until_waiting(&limiter, tenants.len()).await;
    let before = store.counters();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = store.counters();
    let (calls, attempts) = (after.calls - before.calls, after.decisions - before.decisions);
    assert!(calls * 2 < attempts, "{attempts} attempts in {calls} calls");
    for permit in running {
        permit.release().await.unwrap();
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_waits_beyond_its_bound_when_redis_dies() {
    let mut redis = Redis::start();
    let settings = OutageSettings::default();
    for (on_outage, is_admitted) in [("local", true), ("deny", false)] {
        let policy = format!(
            "limits: [{{name: db, by: global, slots: 1, queue: {{length: 9, wait: 60s}}, on_outage: {on_outage}}}]"
        );
        let mut patient = crate::support::patient(&[redis.url()]);
        patient.deadline = Duration::from_millis(500);
        let limiter = Limiter::with_store(Policy::parse(&policy).unwrap(), RedisStore::new(patient))
            .with_outage(&settings)
            .with_sleeper(Sleeper::new(tokio::time::sleep));
        let running = limiter.acquire(&call("ann")).await.unwrap();
        let waiting = {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let bound = Duration::from_secs(5);
                limiter.acquire_within(&call("ann"), bound).await.map(drop).is_ok()
            })
        };
        until_waiting(&limiter, 1).await;
        redis.kill();
        let since = Instant::now();
        assert_eq!(waiting.await.unwrap(), is_admitted, "{on_outage}");
        assert!(since.elapsed() < LONG / 2, "{on_outage}: {:?}", since.elapsed());
        running.forget();
        redis = Redis::start();
    }
}
