//! Stores on servers of their own.

use std::time::Duration;

use tollgate_redis::{RedisSettings, RedisStore};

/// Settings that wait for a busy machine: what is tested is not how fast it is.
pub(crate) fn patient(urls: &[String]) -> RedisSettings {
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut settings = RedisSettings::parse(&urls).unwrap();
    settings.deadline = Duration::from_secs(10);
    settings
}

pub(crate) fn store(urls: &[String]) -> RedisStore {
    RedisStore::new(patient(urls))
}
