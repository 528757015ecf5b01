//! A server that is killed, frozen, or blocked: no charge is lost, doubled or left behind.

use std::thread;
use std::time::Duration;

use tollgate_core::{Amount, Concurrency, Owner, Rule, Span};
use tollgate_postgres::{PostgresSettings, PostgresStore};
use tollgate_store::{Check, Store, StoreError};
use tollgate_testkit::Postgres;

use crate::support::{daily, eventually, left, patient, store};

fn hasty(server: &Postgres) -> PostgresStore {
    PostgresStore::new(PostgresSettings { deadline: Duration::from_millis(200), ..patient(server) })
}

#[tokio::test]
async fn a_killed_server_is_found_again_with_its_counts() {
    let server = Postgres::start();
    let settings = PostgresSettings { synchronous_commit: true, ..patient(&server) };
    let store = PostgresStore::new(settings.clone());
    let rule = daily("killed", 10);
    for _ in 0..4 {
        assert!(store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted);
    }
    server.kill();
    let failed = store.decide(&[Check::new(&rule, b"key", 1)]).await;
    assert!(matches!(failed, Err(StoreError::Refused(_) | StoreError::Failed(_))), "{failed:?}");
    assert!(store.probe().await.is_err());
    server.restart();
    eventually("the server is found", async || store.probe().await.is_ok()).await;
    assert_eq!(left(&store, &rule, "key").await, 6);

    // A node that starts with changed numbers, and knows the rule that it replaces.
    server.restart();
    let other = PostgresStore::new(settings);
    let raised = daily("killed", 20).replacing(&rule);
    eventually("the server is found", async || other.probe().await.is_ok()).await;
    assert_eq!(left(&other, &raised, "key").await, 16);
}

#[tokio::test]
async fn charges_after_the_deadline_are_undone() {
    let server = Postgres::start();
    let (hasty, calm) = (hasty(&server), store(&server));
    let rule = daily("late", 100);
    let slots = Rule::new("slots", Concurrency::new(10, Span::from_hours(1)).unwrap());
    eventually("connected", async || hasty.probe().await.is_ok()).await;
    for round in 0..10 {
        let pausing = async {
            // In different stages of a transaction.
            tokio::time::sleep(Duration::from_micros(200 * round)).await;
            server.pause();
        };
        let slot = Check { amount: Amount::Slot(Owner(7)), ..Check::new(&slots, b"key", 1) };
        let checks = [Check::new(&rule, b"key", 2), slot];
        let (answer, ()) = tokio::join!(hasty.decide(&checks), pausing);
        let was_answered = answer.is_ok();
        if !was_answered {
            assert!(matches!(answer, Err(StoreError::TimedOut(_))), "{answer:?}");
        }
        server.resume();
        if was_answered {
            let reset = tollgate_core::Adjustment::Reset;
            calm.adjust(&rule, b"key", reset).await.unwrap();
            calm.adjust(&slots, b"key", reset).await.unwrap();
        }
        eventually("the units are back", async || left(&calm, &rule, "key").await == 100).await;
        eventually("the slot is back", async || left(&calm, &slots, "key").await == 10).await;
    }
}

#[test]
fn a_key_that_another_session_locks_is_an_outage_of_that_key_only() {
    let server = Postgres::start();
    let hasty = hasty(&server);
    let rule = daily("locked", 100);
    // A session that locks the row and does not go on, as that of an operator might.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let take = async |key: &[u8]| hasty.decide(&[Check::new(&rule, key, 1)]).await;
    runtime.block_on(eventually("the row exists", async || take(b"key").await.is_ok()));
    thread::scope(|threads| {
        let locking = threads.spawn(|| {
            server.try_sql("BEGIN; SELECT 1 FROM tollgate_states FOR UPDATE; SELECT pg_sleep(600)")
        });
        runtime.block_on(async {
            eventually("the row is locked", async || take(b"key").await.is_err()).await;
            eventually("another key is decided", async || take(b"other").await.is_ok()).await;
            server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()",
            );
            eventually("the key is free", async || take(b"key").await.is_ok()).await;
        });
        assert!(locking.join().unwrap().is_err());
    });
}
