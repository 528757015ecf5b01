//! The store conformance suite and the test vectors, on every topology.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::cluster::ClusterClient;
use tollgate_core::{Span, Timestamp};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::conformance::{Harness, run};
use tollgate_testkit::{Redis, RedisCluster, SentinelTrio};

use crate::support::{Servers, patient, store};

/// A store that uses the clock of the server.
struct OwnClock(RedisStore);

impl Harness for OwnClock {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.0
    }

    async fn pass(&self, span: Span) {
        tokio::time::sleep(Duration::from(span)).await;
    }
}

/// A store whose clock the test sets.
struct SetClock {
    store: RedisStore,
    servers: Servers,
    now: AtomicU64,
}

impl SetClock {
    async fn on(settings: RedisSettings, servers: Servers) -> Self {
        // The clock jumps here, unlike a real one, so the deny cache is off.
        let settings = RedisSettings { deny_cache: Duration::ZERO, prefix: "set.".to_owned(), ..settings };
        let harness = Self { store: RedisStore::on_test_clock(settings), servers, now: AtomicU64::new(0) };
        harness.set_clock(Timestamp::from_secs(1_772_366_370)).await;
        harness
    }
}

impl Harness for SetClock {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.store
    }

    async fn pass(&self, span: Span) {
        let now = Timestamp::from_micros(self.now.load(Ordering::Relaxed));
        self.set_clock(now + span).await;
    }

    async fn set_clock(&self, now: Timestamp) -> bool {
        self.now.store(now.as_micros(), Ordering::Relaxed);
        self.servers.set_clock(now).await;
        true
    }
}

#[tokio::test]
async fn a_single_server_passes() {
    let redis = Redis::start();
    run(&OwnClock(store(&[redis.url()]))).await;
}

#[tokio::test]
async fn a_single_server_answers_the_vectors() {
    let redis = Redis::start();
    let servers = Servers::One(Box::new(redis::Client::open(redis.url()).unwrap()));
    run(&SetClock::on(patient(&[redis.url()]), servers).await).await;
}

#[tokio::test]
async fn a_primary_found_by_sentinels_passes_and_answers_the_vectors() {
    let trio = SentinelTrio::start();
    run(&OwnClock(store(&[trio.url()]))).await;
    let servers = Servers::One(Box::new(redis::Client::open(trio.primary().url()).unwrap()));
    run(&SetClock::on(patient(&[trio.url()]), servers).await).await;
}

#[tokio::test]
async fn a_cluster_passes_and_answers_the_vectors() {
    let cluster = RedisCluster::start();
    run(&OwnClock(store(&cluster.urls()))).await;
    let servers = Servers::Cluster(Box::new(ClusterClient::new(cluster.urls()).unwrap()));
    run(&SetClock::on(patient(&cluster.urls()), servers).await).await;
}
