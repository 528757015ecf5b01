//! The suite that every store passes, unchanged.

use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_redis::{Address, RedisSettings, RedisStore, Topology};
use tollgate_store::conformance::{Harness, run};

/// A store whose clock is the server's own.
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

/// A store whose clock is set by the test.
struct SetClock(RedisStore, redis::Client);

impl Harness for SetClock {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.0
    }

    async fn pass(&self, span: Span) {
        let mut connection = self.1.get_multiplexed_async_connection().await.unwrap();
        let _: i64 = redis::cmd("INCRBY")
            .arg("tollgate-test-clock")
            .arg(span.as_micros())
            .query_async(&mut connection)
            .await
            .unwrap();
    }

    async fn set_clock(&self, now: Timestamp) -> bool {
        let mut connection = self.1.get_multiplexed_async_connection().await.unwrap();
        let _: () = redis::cmd("SET")
            .arg("tollgate-test-clock")
            .arg(now.as_micros())
            .query_async(&mut connection)
            .await
            .unwrap();
        true
    }
}

fn settings() -> RedisSettings {
    let mut settings =
        RedisSettings::new(Topology::Standalone(Address { host: "127.0.0.1".into(), port: 6399 }));
    settings.deadline = Duration::from_secs(5);
    settings
}

#[tokio::test]
async fn a_single_server_passes_on_its_own_clock() {
    run(&OwnClock(RedisStore::new(settings()))).await;
}

#[tokio::test]
async fn a_single_server_answers_the_vectors() {
    let client = redis::Client::open("redis://127.0.0.1:6399").unwrap();
    let mut settings = settings();
    settings.prefix = "v.".into();
    settings.deny_cache = Duration::ZERO;
    let harness = SetClock(RedisStore::on_test_clock(settings), client);
    harness.set_clock(Timestamp::from_secs(1_772_366_370)).await;
    run(&harness).await;
}
