//! Versions of a limit that are in force at the same time on nodes that know each other, and the registry
//! by which they know each other.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Amount, Bucket, Quota, Rate, Rule, Span, Timestamp};
use tollgate_redis::{RedisSettings, RedisStore, Registration, Registry, Version};
use tollgate_store::{Check, Store};
use tollgate_testkit::{Redis, RedisCluster, SentinelTrio};

use crate::support::{Servers, patient, store};

/// Returns the rules of several quotas, each with all others as its predecessors.
fn versions(name: &str, quotas: &[Quota]) -> Vec<Rule> {
    let rules: Vec<_> = quotas.iter().map(|quota| Rule::new(name, quota.clone())).collect();
    let knowing = |rule: &Rule| {
        let others = rules.iter().filter(|other| other.id != rule.id);
        others.fold(rule.clone(), Rule::replacing)
    };
    rules.iter().map(knowing).collect()
}

fn bucket(units: u64, period: Span, burst: u64) -> Bucket {
    Bucket::new(Rate::new(units, period)).unwrap().with_burst(burst).unwrap()
}

async fn take(store: &RedisStore, rule: &Rule, key: &str, units: u64) -> bool {
    store.decide(&[Check::new(rule, key.as_bytes(), units)]).await.unwrap().admitted
}

#[tokio::test]
async fn versions_in_force_together_admit_no_more_than_the_largest_burst_and_rate() {
    let redis = Redis::start();
    let settings = RedisSettings { deny_cache: Duration::ZERO, ..patient(&[redis.url()]) };
    let store = RedisStore::on_test_clock(settings);
    let servers = Servers::One(Box::new(redis::Client::open(redis.url()).unwrap()));
    let window = Span::from_secs(12);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(2..=3);
        let buckets: Vec<_> =
            (0..count).map(|_| bucket(random.u64(1..=12), window, random.u64(1..=12))).collect();
        let most = |of: fn(&Bucket) -> u64| buckets.iter().map(of).max().unwrap();
        let largest = bucket(most(|it| it.rate().count), window, most(tollgate_core::Algorithm::capacity));
        let largest = Quota::from(largest);
        let quotas: Vec<_> = buckets.iter().map(|&it| Quota::from(it)).collect();
        let rules = versions(&format!("together/{seed}"), &quotas);
        let mut counted = largest.fresh();
        let mut now = Timestamp::from_secs(1_900_000_000);
        for step in 0..80 {
            servers.set_clock(now).await;
            let (rule, units) = (random.choice(&rules).unwrap(), random.u64(1..=3));
            if take(&store, rule, "key", units).await {
                let verdict = largest.acquire(&mut counted, Amount::Exactly(units), now);
                assert!(verdict.is_admitted(), "seed {seed}, step {step}: more than {largest} of {quotas:?}");
            }
            now = now + Span::from_micros(random.u64(0..window.as_micros() / 4));
        }
    }
}

/// Two nodes with two versions share the larger one exactly, and each admits what its own allows.
async fn share_the_larger(one: &RedisStore, other: &RedisStore) {
    let quota = |units| Quota::from(bucket(units, Span::from_days(1), units));
    for (name, first, second) in [("raised", 20, 30), ("lowered", 30, 20)] {
        let rules = versions(name, &[quota(first), quota(second)]);
        for key in ["a", "b", "c", "d", "e"] {
            let (mut by_first, mut by_second) = (0, 0);
            for _ in 0..40 {
                by_first += u64::from(take(one, &rules[0], key, 1).await);
                by_second += u64::from(take(other, &rules[1], key, 1).await);
            }
            assert_eq!(by_first + by_second, 30, "{name}: {by_first} and {by_second}");
            assert!(by_first >= 10 && by_second >= 10, "{name}: {by_first} and {by_second}");
        }
    }
}

fn version(digest: u64) -> Version {
    let rules = format!("the rules of {digest}");
    Version { digest, memory: Span::from_hours(1), rules: Arc::from(rules.as_bytes()) }
}

async fn register(store: &RedisStore, digest: u64, known_revision: Option<u64>) -> Registry {
    let version = version(digest);
    let mut it = Registration { version: &version, sends_rules: false, in_force: digest, known_revision };
    if let Some(registry) = store.register(&it).await.unwrap() {
        return registry;
    }
    it.sends_rules = true;
    store.register(&it).await.unwrap().expect("the rules were sent")
}

fn digests(registry: &Registry) -> Vec<u64> {
    registry.versions.iter().map(|it| it.digest).collect()
}

/// Nodes see the versions of each other, their rules, and who knows what.
async fn know_each_other(one: &RedisStore, other: &RedisStore) {
    let first = register(one, 0x11, None).await;
    assert_eq!((digests(&first), first.nodes.len(), first.revision), (vec![0x11], 0, 1));
    let second = register(other, 0x22, None).await;
    assert_eq!((digests(&second), second.revision), (vec![0x11, 0x22], 2));
    assert_eq!((second.nodes[0].in_force, second.nodes[0].known_revision), (0x11, 1));
    let rules = other.registered_rules(0x11).await.unwrap();
    assert_eq!(rules.as_deref(), Some(&*version(0x11).rules));
    assert_eq!(other.registered_rules(0x33).await.unwrap(), None);
    let first = register(one, 0x11, Some(2)).await;
    assert_eq!((first.nodes.len(), first.nodes[0].known_revision), (1, 2), "a node that joins knows all");
    assert_eq!(register(other, 0x22, Some(2)).await.nodes[0].known_revision, 2);
    one.leave().await.unwrap();
    let second = register(other, 0x22, Some(2)).await;
    assert_eq!((digests(&second), second.nodes.len()), (vec![0x11, 0x22], 0), "its usage still counts");
}

#[tokio::test]
async fn nodes_of_one_server_share_the_larger_version() {
    let redis = Redis::start();
    let (one, other) = (store(&[redis.url()]), store(&[redis.url()]));
    share_the_larger(&one, &other).await;
    know_each_other(&one, &other).await;
}

#[tokio::test]
async fn nodes_of_a_primary_found_by_sentinels_share_the_larger_version() {
    let trio = SentinelTrio::start();
    let (one, other) = (store(&[trio.url()]), store(&[trio.url()]));
    share_the_larger(&one, &other).await;
    know_each_other(&one, &other).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_share_the_larger_version() {
    let cluster = RedisCluster::start();
    let (one, other) = (store(&cluster.urls()), store(&cluster.urls()));
    share_the_larger(&one, &other).await;
    know_each_other(&one, &other).await;
}

/// Returns the names of the keys of the registry.
fn registry_keys(redis: &Redis) -> Vec<String> {
    redis.cli(&["KEYS", "*:rules*"]).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn garbage_in_the_registry_is_replaced_and_lost_rules_are_sent_again() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    register(&store, 1, None).await;
    let name = registry_keys(&redis).into_iter().min_by_key(String::len).unwrap();
    for garbage in ["", "garbage", "\u{91}\u{1}", "42"] {
        redis.cli(&["SET", &name, garbage]);
        assert_eq!(digests(&register(&store, 1, Some(1)).await), [1], "{garbage:?}");
    }
    redis.cli(&["DEL", &name]);
    redis.cli(&["RPUSH", &name, "a list"]);
    assert_eq!(digests(&register(&store, 1, Some(1)).await), [1]);
    redis.cli(&["FLUSHALL"]);
    let lost = register(&store, 1, Some(9)).await;
    assert_eq!((digests(&lost), lost.revision), (vec![1], 1));
    assert!(store.registered_rules(1).await.unwrap().is_some());
}

#[tokio::test]
async fn the_registry_is_bounded_and_expires() {
    let redis = Redis::start();
    let (one, other) = (store(&[redis.url()]), store(&[redis.url()]));
    register(&other, 7_777, None).await;
    for digest in 1..=40 {
        let registry = register(&one, digest, Some(0)).await;
        let listed = digests(&registry);
        assert!(listed.len() <= 33 && listed.contains(&digest), "{listed:?}");
        assert!(listed.contains(&7_777), "a version in force stays: {listed:?}");
    }
    for name in registry_keys(&redis) {
        let seconds: i64 = redis.cli(&["TTL", &name]).trim().parse().unwrap();
        assert!((1..=3_700).contains(&seconds), "{name} expires in {seconds} s");
    }
}
