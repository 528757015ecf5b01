//! A server with too few connections, tables of strangers, and more rows and requests than the store can take.

use std::sync::Arc;
use std::time::Duration;

use tollgate_postgres::{PostgresSettings, PostgresStore};
use tollgate_store::{Check, Store, StoreError};
use tollgate_testkit::Postgres;

use crate::support::{daily, eventually, left, patient, store};

/// Decides many keys at the same time, and returns the errors.
async fn failures(store: &Arc<PostgresStore>, requests: u32) -> Vec<StoreError> {
    let rule = daily("many", 1_000_000);
    let tasks: Vec<_> = (0..requests)
        .map(|number| {
            let (store, rule) = (Arc::clone(store), rule.clone());
            tokio::spawn(
                async move { store.decide(&[Check::new(&rule, &(number % 500).to_be_bytes(), 1)]).await },
            )
        })
        .collect();
    let mut failures = Vec::new();
    for task in tasks {
        failures.extend(task.await.unwrap().err());
    }
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_more_connections_is_used_through_the_open_ones() {
    let server = Postgres::start();
    server.sql("CREATE USER ann PASSWORD 'secret' CONNECTION LIMIT 1; CREATE SCHEMA AUTHORIZATION ann");
    let url = server.url_of("ann", "secret", "postgres");
    let settings = PostgresSettings::parse(&url).unwrap();
    let settings = PostgresSettings { deadline: Duration::from_secs(10), ..settings };
    let store = Arc::new(PostgresStore::new(settings));
    store.connect().await.unwrap();
    let background = Arc::clone(&store);
    let announcing = tokio::spawn(async move { background.announce().await });
    for _ in 0..5 {
        let failures = failures(&store, 2_000).await;
        assert!(failures.is_empty(), "{} of 2000: {:?}", failures.len(), failures[0]);
    }
    announcing.abort();
}

#[tokio::test]
async fn a_table_of_a_stranger_is_an_error() {
    let server = Postgres::start();
    server.sql("CREATE TABLE tollgate_format (version text); INSERT INTO tollgate_format VALUES ('one')");
    let refused = store(&server).connect().await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn a_table_that_was_dropped_is_created_again() {
    let server = Postgres::start();
    let rule = daily("dropped", 10);
    assert_eq!(left(&store(&server), &rule, "key").await, 10);
    server.sql("DROP TABLE tollgate_states");
    assert_eq!(left(&store(&server), &rule, "key").await, 10);
}

#[tokio::test]
async fn expired_rows_are_deleted_although_that_takes_longer_than_a_decision() {
    let server = Postgres::start();
    store(&server).connect().await.unwrap();
    server.sql(
        "INSERT INTO tollgate_states SELECT n, '\\x00', '\\x00', NULL, 1 FROM generate_series(1, 100000) AS n",
    );
    let settings = PostgresSettings { deadline: Duration::from_millis(2), ..patient(&server) };
    let hasty = Arc::new(PostgresStore::new(settings));
    let background = Arc::clone(&hasty);
    let announcing = tokio::spawn(async move { background.announce().await });
    let rows = || server.sql("SELECT count(*) FROM tollgate_states");
    eventually("the rows are deleted", async || rows() == "0").await;
    announcing.abort();
}

#[tokio::test]
async fn a_node_that_stops_is_no_longer_counted() {
    let server = Postgres::start();
    let node = Arc::new(store(&server));
    let background = Arc::clone(&node);
    let announcing = tokio::spawn(async move { background.announce().await });
    let nodes = || server.try_sql("SELECT count(*) FROM tollgate_nodes").unwrap_or_default();
    eventually("the node is counted", async || nodes() == "1").await;
    announcing.abort();
    node.leave().await.unwrap();
    assert_eq!(nodes(), "0");
}
