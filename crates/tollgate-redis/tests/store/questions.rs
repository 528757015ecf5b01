//! Peeks and candidates behave on Redis as in memory.
//!
//! The same requests at the same times go to two limiters, one on Redis and one in memory. Both
//! give equal answers, and a peek leaves Redis unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;
use redis::cluster::ClusterClient;
use tollgate::{
    Call, Decision, Limiter, ManualClock, MemoryStore, Outcome, Policy, Receipt, Span, Timestamp,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::{Servers, patient, store};

const START: Timestamp = Timestamp::from_secs(1_772_366_400);

/// Pairs of a limit in force and a candidate.
const LIMITS: [(&str, &str); 9] = [
    ("bucket: 4/10s", "bucket: 7/10s"),
    ("bucket: 7/10s", "bucket: \"4/10s, burst 2\""),
    ("bucket: 4/10s", "windows: [2/s, 9/30s]"),
    ("rate: 5/10s, algorithm: sliding-log", "windows: [3/2s, 9/30s], algorithm: sliding-window"),
    ("bucket: 3/10s, count_denied: true", "rate: 5/10s, algorithm: fixed-window, align: first-request"),
    ("rate: 6/10s, algorithm: fixed-window", "rate: 4/10s, algorithm: sliding-log, count_denied: false"),
    ("bucket: 6/10s, count_denied: true", "windows: [2/s, 9/30s], algorithm: fixed-window"),
    ("slots: 2, ttl: 5s", "slots: 3, ttl: 5s"),
    ("bucket: 5/10s", "slots: 2, ttl: 5s"),
];

/// Reads all keys and values of these nodes.
async fn contents(urls: &[String]) -> BTreeMap<Vec<u8>, (Value, Value)> {
    let mut found = BTreeMap::new();
    for url in urls {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
        for key in keys {
            // The node registry changes independently of requests.
            if key.ends_with(b":nodes") {
                continue;
            }
            let dump = redis::cmd("DUMP").arg(&key).query_async(&mut connection).await.unwrap();
            let ends = redis::cmd("PEXPIRETIME").arg(&key).query_async(&mut connection).await.unwrap();
            found.insert(key, (dump, ends));
        }
    }
    found
}

fn summarize(decision: &Decision<'_>) -> (bool, Option<Duration>, Vec<(String, Outcome)>) {
    let limits = decision.limits().map(|it| (it.name().to_owned(), *it.outcome())).collect();
    (decision.is_allowed(), decision.retry_after(), limits)
}

struct Worlds {
    redis: Limiter<RedisStore>,
    memory: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
    held: Vec<(Receipt, Receipt)>,
}

impl Worlds {
    fn new(text: &str, settings: RedisSettings) -> Self {
        let policy = || Policy::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let clock = ManualClock::at(START);
        // The clock jumps here, unlike a real one, so the deny cache is off.
        let settings = RedisSettings { deny_cache: Duration::ZERO, ..settings };
        Self {
            redis: Limiter::with_store(policy(), RedisStore::on_test_clock(settings)),
            memory: Limiter::with_store(policy(), MemoryStore::with_seed(1_000, clock.clone(), 7)),
            clock,
            held: Vec::new(),
        }
    }

    async fn step(&mut self, call: &Call<'_>, context: &str) {
        let considered = self.redis.consider(call).await.unwrap();
        let in_memory = self.memory.consider(call).await.unwrap();
        assert_eq!(summarize(&considered), summarize(&in_memory), "considered: {context}");
        let (decision, in_memory) = (self.redis.decide(call).await, self.memory.check(call));
        assert!(!decision.is_degraded(), "{context}");
        assert_eq!(summarize(&decision), summarize(&in_memory), "decided: {context}");
        self.held.extend(decision.receipt().zip(in_memory.receipt()));
    }

    async fn release(&mut self, at: usize) {
        if at < self.held.len() {
            let (here, there) = self.held.swap_remove(at);
            self.redis.release_receipt(&here).await.unwrap();
            self.memory.release_receipt(&there).await.unwrap();
        }
    }
}

async fn compare(settings: RedisSettings, servers: &Servers, nodes: &[String], steps: usize) {
    for (seed, (live, tried)) in (0..).zip(LIMITS) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let text = format!(
            "limits:
  - {{name: it-{seed}, by: user, {live}, candidate: {{{tried}}}}}
  - {{name: all-{seed}, by: global, bucket: 30/20s}}"
        );
        let mut worlds = Worlds::new(&text, settings.clone());
        servers.set_clock(START).await;
        for step in 0..steps {
            let call = Call::new("GET", "/").user(["ann", "bob"][rng.usize(..2)]);
            let call = if rng.u8(..4) == 0 { call.cost(rng.u64(1..4)) } else { call };
            let context = format!("seed {seed}, step {step}\n{text}");
            if step % 10 == 9 {
                let before = contents(nodes).await;
                drop(worlds.redis.consider(&call).await.unwrap());
                assert_eq!(contents(nodes).await, before, "{context}");
            }
            worlds.step(&call, &context).await;
            if rng.u8(..3) == 0 {
                worlds.release(rng.usize(..4)).await;
            }
            worlds.clock.advance(Span::from_micros(rng.u64(..1_500_000)));
            servers.set_clock(tollgate::Clock::now(&worlds.clock)).await;
        }
    }
}

#[tokio::test]
async fn peeks_and_candidates_on_a_single_server_equal_memory() {
    let redis = Redis::start();
    let servers = Servers::One(Box::new(redis::Client::open(redis.url()).unwrap()));
    compare(patient(&[redis.url()]), &servers, &[redis.url()], 80).await;
}

#[tokio::test]
async fn peeks_and_candidates_on_a_cluster_equal_memory() {
    let cluster = RedisCluster::start();
    let servers = Servers::Cluster(Box::new(ClusterClient::new(cluster.urls()).unwrap()));
    // The first three nodes are the primaries.
    compare(patient(&cluster.urls()), &servers, &cluster.urls()[..3], 40).await;
}

/// The deny cache may be outdated; a peek returns the current state.
#[tokio::test]
async fn peeks_do_not_use_the_deny_cache() {
    let redis = Redis::start();
    for (name, how_much) in [
        ("bucket", "bucket: 3/day"),
        ("window", "rate: 3/day, algorithm: fixed-window"),
        ("sliding", "rate: 3/day, algorithm: sliding-window"),
        ("log", "rate: 3/day, algorithm: sliding-log"),
    ] {
        let policy = Policy::parse(&format!("limits: [{{name: {name}, by: user, {how_much}}}]")).unwrap();
        let limiter = Limiter::with_store(policy, store(&[redis.url()]));
        let ann = Call::new("GET", "/").user("ann");
        for left in (0..3).rev() {
            for _ in 0..3 {
                assert!(limiter.consider(&ann).await.unwrap().is_allowed(), "{name}, {left} left then");
            }
            let decision = limiter.decide(&ann).await;
            assert_eq!(decision.limiting().unwrap().outcome().remaining, left, "{name}");
        }
        let refused = limiter.consider(&ann).await.unwrap();
        assert!(!refused.is_allowed() && refused.retry_after().is_some(), "{name}");
        assert_eq!(contents(&[redis.url()]).await.len(), 1, "{name}: one key for one caller");
        redis.cli(&["FLUSHALL"]);
    }
}
