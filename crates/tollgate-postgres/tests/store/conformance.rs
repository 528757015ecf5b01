//! The store conformance suite and the test vectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_postgres::PostgresStore;
use tollgate_store::conformance::{Harness, run};
use tollgate_testkit::Postgres;

use crate::support::{patient, store};

/// A store that uses the clock of the server.
struct OwnClock(PostgresStore);

impl Harness for OwnClock {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.0
    }

    async fn pass(&self, span: Span) {
        tokio::time::sleep(Duration::from(span)).await;
    }
}

/// A store whose clock the test sets.
struct SetClock {
    store: PostgresStore,
    micros: Arc<AtomicU64>,
}

impl Harness for SetClock {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn pass(&self, span: Span) {
        self.micros.fetch_add(span.as_micros(), Ordering::Relaxed);
    }

    async fn set_clock(&self, now: Timestamp) -> bool {
        self.micros.store(now.as_micros(), Ordering::Relaxed);
        true
    }
}

#[tokio::test]
async fn the_suite_passes_on_the_clock_of_the_server() {
    let server = Postgres::start();
    run(&OwnClock(store(&server))).await;
}

#[tokio::test]
async fn the_suite_and_the_vectors_pass_on_a_clock_that_is_set() {
    let server = Postgres::start();
    let micros = Arc::new(AtomicU64::new(1_772_366_370_000_000));
    let store = PostgresStore::on_test_clock(patient(&server), Arc::clone(&micros));
    run(&SetClock { store, micros }).await;
}
