//! Local charges during an outage are applied to a killed server when it is back, key by key.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::policy::Key;
use tollgate::throttle::Throttle;
use tollgate::{Call, Decision, Limiter, OutageSettings, Policy, Rule};
use tollgate_redis::RedisStore;
use tollgate_store::{Store, StoreError};
use tollgate_testkit::Redis;

use crate::support::store;

const KEYS: usize = 12;

fn limiter(redis: &Redis) -> Limiter<RedisStore> {
    let policy = Policy::parse("limits: [{name: slow, by: user, bucket: 100/day}]").unwrap();
    let probes = Duration::from_millis(10);
    let settings = OutageSettings { first_probe: probes, longest_probe: probes, ..OutageSettings::default() };
    Limiter::with_store(policy, store(&[redis.url()])).with_outage(&settings)
}

fn left(decision: &Decision<'_>) -> u64 {
    decision.limits().next().unwrap().outcome().remaining
}

async fn spend(limiter: &Limiter<RedisStore>, key: usize, cost: u64) -> (bool, u64) {
    let user = format!("user-{key}");
    let decision = limiter.decide(&Call::new("GET", "/").user(&user).cost(cost)).await;
    assert!(decision.is_allowed());
    (decision.is_degraded(), left(&decision))
}

async fn throttle(limiter: &Limiter<RedisStore>, rule: &Rule, key: usize, cost: u64) -> (bool, u64) {
    let key = Key::named(format!("key-{key}").as_bytes());
    let decision = limiter.decide_rule(rule, key, cost).await;
    assert!(decision.is_allowed());
    (decision.is_degraded(), left(&decision))
}

/// A runtime with its own threads, so that connection events are processed while no request runs.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn every_key_of_a_server_that_was_killed_is_charged_when_it_is_back() {
    let redis = Redis::start();
    let limiter = limiter(&redis);
    let rule = Throttle { capacity: 100, count: 1, period: Duration::from_secs(3_600) }.rule().unwrap();
    // Requests use one connection, and deferred charges another.
    let (requests, upkeep) = (runtime(), runtime());
    upkeep.block_on(limiter.probe());
    std::thread::scope(|scope| {
        let ask = scope.spawn(|| {
            requests.block_on(async {
                for key in 0..KEYS {
                    assert_eq!(spend(&limiter, key, 1).await, (false, 99));
                }
                redis.kill();
                tokio::time::sleep(Duration::from_millis(200)).await;
                for key in 0..KEYS {
                    assert!(spend(&limiter, key, 3).await.0, "the store is gone");
                    assert!(throttle(&limiter, &rule, key, 4).await.0);
                }
            });
        });
        ask.join().unwrap();
    });
    upkeep.block_on(async {
        for _ in 0..20 {
            assert_eq!(limiter.reconcile().await, 0);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let health = limiter.health();
        assert_eq!((health.ledger_keys, health.lost_entries), (2 * KEYS, 0), "{health:?}");
        redis.restart();
        let (begun, mut charged) = (Instant::now(), 0);
        while charged < 2 * KEYS {
            assert!(begun.elapsed() < Duration::from_secs(30), "{charged} of {}", 2 * KEYS);
            charged += limiter.reconcile().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(limiter.health().lost_entries, 0);
        for key in 0..KEYS {
            // The server lost its state.
            assert_eq!(spend(&limiter, key, 0).await, (false, 97));
            assert_eq!(throttle(&limiter, &rule, key, 0).await, (false, 96));
        }
    });
}

#[test]
fn an_idle_connection_that_ended_is_replaced_without_an_error() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    runtime()
        .block_on(async {
            for _ in 0..3 {
                store.probe().await?;
                redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            store.probe().await?;
            assert_eq!(store.counters().connections, 4);
            assert_eq!(store.counters().failures, 0);
            Ok::<(), StoreError>(())
        })
        .unwrap();
}
