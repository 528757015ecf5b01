//! Versions of a limit that are in force at the same time on nodes that know each other, and the registry
//! by which they know each other.

use std::time::Duration;

use tollgate_core::{Amount, Bucket, Quota, Rate, Rule, Span, Timestamp};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::conformance::nodes::{digests, register, version, versions as versions_of_nodes};
use tollgate_store::{Check, Store, VersionRegistry as _};
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

/// Two nodes with two versions share the larger one exactly, and each admits the units of its own version.
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

/// Nodes know each other's versions.
async fn know_each_other(one: &RedisStore, other: &RedisStore) {
    versions_of_nodes(one, other, async || one.leave().await.unwrap()).await;
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

/// Writes a registry, as a Lua table.
fn write_registry(redis: &Redis, name: &str, table: &str) {
    let script = format!("return redis.call('SET', KEYS[1], cmsgpack.pack({table}))");
    assert_eq!(redis.cli(&["EVAL", &script, "1", name]).trim(), "OK", "{table}");
}

#[tokio::test]
async fn numbers_that_no_node_writes_do_not_poison_the_registry() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    register(&store, 1, None).await;
    let name = registry_keys(&redis).into_iter().min_by_key(String::len).unwrap();
    let (one, two) = ("0000000000000001", "0000000000000002");
    for table in [
        "{1/0, {}, {}}".to_owned(),
        "{0/0, {}, {}}".to_owned(),
        "{-5, {}, {}}".to_owned(),
        "{1.5, {}, {}}".to_owned(),
        format!("{{3, {{{{'{one}', 1, 1e300}}}}, {{}}}}"),
        format!("{{3, {{{{'{two}', 1/0, 1/0}}}}, {{}}}}"),
        format!("{{3, {{{{'{two}', 0/0, 0/0}}, {{'{one}', 2, 0/0}}}}, {{}}}}"),
        format!("{{3, {{{{'{one}', 1, 1}}, {{'{one}', 2, 2}}}}, {{}}}}"),
        format!("{{3, {{}}, {{{{'{two}', 1/0, '{two}', 1/0}}}}}}"),
        "{3, {{string.rep('x', 100000), 1, 1e15}}, {}}".to_owned(),
    ] {
        write_registry(&redis, &name, &table);
        let registry = register(&store, 1, Some(1)).await;
        assert_eq!((digests(&registry), registry.nodes.len()), (vec![1], 0), "{table}");
        assert!(registry.revision < 10, "{table}: {registry:?}");
        write_registry(&redis, &name, &table);
        store.leave().await.unwrap();
    }
    // A node that cannot know so much is not taken for one that knows all.
    let node = format!("redis.call('TIME')[1] + 5, '{one}', 9e15");
    write_registry(&redis, &name, &format!("{{3, {{}}, {{{{'{two}', {node}}}}}}}"));
    assert!(register(&store, 1, Some(1)).await.nodes.is_empty());
}

#[tokio::test]
async fn rules_that_were_overwritten_are_sent_again() {
    let redis = Redis::start();
    let (one, other) = (store(&[redis.url()]), store(&[redis.url()]));
    register(&one, 1, None).await;
    let name = registry_keys(&redis).into_iter().max_by_key(String::len).unwrap();
    for garbage in [&["SET", &name, "short"][..], &["RPUSH", &name, "a list"], &["HSET", &name, "a", "b"]] {
        redis.cli(&["DEL", &name]);
        redis.cli(garbage);
        let read = other.registered_rules(1).await.unwrap();
        assert!(read.is_none_or(|it| it == b"short"), "{garbage:?}");
        register(&one, 1, Some(1)).await;
        assert_eq!(other.registered_rules(1).await.unwrap().as_deref(), Some(&*version(1).rules));
    }
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
