//! Stores on test servers, and the clock that a test sets there.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::{Cmd, Value};
use tollgate_core::Timestamp;
use tollgate_redis::{RedisSettings, RedisStore};

/// Settings with a long deadline, for tests on a busy machine.
pub(crate) fn patient(urls: &[String]) -> RedisSettings {
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut settings = RedisSettings::parse(&urls).unwrap();
    settings.deadline = Duration::from_secs(10);
    settings
}

pub(crate) fn store(urls: &[String]) -> RedisStore {
    RedisStore::new(patient(urls))
}

/// The servers whose test clock is set.
pub(crate) enum Servers {
    One(Box<redis::Client>),
    Cluster(Box<ClusterClient>),
}

impl Servers {
    pub(crate) async fn set_clock(&self, now: Timestamp) {
        let mut command = Cmd::new();
        command.arg("MSET");
        for key in RedisStore::test_clocks() {
            command.arg(key).arg(now.as_micros());
        }
        let _: Value = match self {
            Self::One(client) => command
                .query_async(&mut client.get_multiplexed_async_connection().await.unwrap())
                .await
                .unwrap(),
            Self::Cluster(client) => {
                command.query_async(&mut client.get_async_connection().await.unwrap()).await.unwrap()
            }
        };
    }
}
