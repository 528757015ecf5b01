//! Stores on a test server.

use std::time::{Duration, Instant};

use tollgate_core::{Bucket, Rate, Rule};
use tollgate_postgres::{PostgresSettings, PostgresStore};
use tollgate_store::{Check, Store};
use tollgate_testkit::Postgres;

/// Settings with a long deadline, for tests on a busy machine.
pub(crate) fn patient(server: &Postgres) -> PostgresSettings {
    let settings = PostgresSettings::parse(&server.url()).unwrap();
    PostgresSettings { deadline: Duration::from_secs(10), ..settings }
}

pub(crate) fn store(server: &Postgres) -> PostgresStore {
    PostgresStore::new(patient(server))
}

/// A rule that is not refilled within a test.
pub(crate) fn daily(name: &str, units: u64) -> Rule {
    Rule::new(name, Bucket::new(Rate::per_day(units)).unwrap())
}

/// Returns the remaining units of a key.
pub(crate) async fn left(store: &PostgresStore, rule: &Rule, key: &str) -> u64 {
    store.decide(&[Check::new(rule, key.as_bytes(), 0)]).await.unwrap().outcomes[0].remaining
}

/// Waits for a background event, with a generous timeout.
pub(crate) async fn eventually(what: &str, check: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !check().await {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
