//! The service of `examples/postgres_pool` on a real PostgreSQL: the ceiling before the pool.
//!
//! A lock on the table holds every query for as long as a test needs, so no clock decides.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../examples/postgres_pool/service.rs"]
mod service;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use deadpool_postgres::{Object, Pool};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;
use tollgate::Limiter;
use tollgate_http::WaitingRoom;
use tollgate_testkit::{Postgres, wait_until};
use tower::ServiceExt as _;

use self::service::{Shop, ceiling, connect};

/// The pool has more connections than any limit has slots: the ceiling bounds the queries, not the pool.
const CONNECTIONS: usize = 16;

struct Site {
    postgres: Arc<Postgres>,
    pool: Pool,
    room: WaitingRoom,
    app: Router,
    /// Holds the table, until it is dropped.
    table: Option<Object>,
}

type Reply = JoinHandle<(StatusCode, String)>;

impl Site {
    async fn start(slots: usize, length: usize) -> Self {
        let postgres = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
        let pool = connect(&postgres.url(), CONNECTIONS, None).unwrap();
        let shop = Shop::open(pool.clone(), Duration::ZERO).await.unwrap();
        let room = WaitingRoom::new(1_000, tokio::time::sleep);
        let policy = format!(
            "limits: [{{name: database, endpoint: /orders, by: global, slots: {slots}, \
             queue: {{length: {length}, wait: 1h}}, fair_by: tenant}}]"
        );
        let app = shop.router().layer(ceiling(Limiter::from_policy(&policy).unwrap(), room.clone()));
        let table = connect(&postgres.url(), 1, None).unwrap().get().await.unwrap();
        table.batch_execute("BEGIN; LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
        Self { postgres: Arc::new(postgres), pool, room, app, table: Some(table) }
    }

    fn send(&self, tenant: &str) -> Reply {
        let request = Request::post("/orders").header("x-tenant-id", tenant).body(Body::empty()).unwrap();
        let response = self.app.clone().oneshot(request);
        tokio::spawn(async move {
            let response = response.await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap().trim().to_owned())
        })
    }

    /// Waits until this many queries run and this many requests wait before the pool.
    async fn settle(&self, queries: usize, waiting: usize) {
        let (postgres, room) = (Arc::clone(&self.postgres), self.room.clone());
        let settled = tokio::task::spawn_blocking(move || {
            wait_until("queries that wait for the table", || {
                let running = postgres.sql("SELECT count(*) FROM pg_locks WHERE NOT granted");
                running == queries.to_string() && room.waiting() == waiting
            });
        });
        settled.await.unwrap();
    }

    async fn release_the_table(&mut self) {
        self.table.take().unwrap().batch_execute("COMMIT").await.unwrap();
    }
}

#[tokio::test]
async fn no_more_queries_run_than_there_are_slots() {
    let mut site = Site::start(4, 100).await;
    let replies: Vec<Reply> = (0..24).map(|nth| site.send(&format!("tenant-{}", nth % 3))).collect();
    site.settle(4, 20).await;
    assert_eq!(site.pool.status().size, 4, "a request that waits has no connection");
    site.release_the_table().await;
    for reply in replies {
        assert_eq!(reply.await.unwrap().0, StatusCode::CREATED);
    }
    assert!(site.pool.status().size <= 4, "as many connections as slots were enough");
    assert_eq!(site.postgres.sql("SELECT count(*) FROM orders"), "24");
}

#[tokio::test]
async fn a_greedy_tenant_does_not_starve_another() {
    let mut site = Site::start(1, 10).await;
    let greedy: Vec<Reply> = (0..13).map(|_| site.send("greedy")).collect();
    site.settle(1, 10).await;
    // The queue is full: the greedy tenant loses a place to the other.
    let quiet = site.send("quiet");
    site.settle(1, 10).await;
    assert!(!quiet.is_finished());
    site.release_the_table().await;
    let (status, number) = quiet.await.unwrap();
    // After the query that ran, and one that waited: neither tenant has had a turn in the queue before.
    assert_eq!((status, number.as_str()), (StatusCode::CREATED, "3"));
    let mut refused = 0;
    for reply in greedy {
        refused += usize::from(reply.await.unwrap().0 == StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(refused, 3, "two found the queue full, and one lost its place");
    assert_eq!(site.postgres.sql("SELECT count(*) FROM orders WHERE tenant = 'greedy'"), "10");
}

#[tokio::test]
async fn a_query_whose_caller_has_left_keeps_its_slot() {
    let mut site = Site::start(1, 10).await;
    let first = site.send("a");
    site.settle(1, 0).await;
    let second = site.send("b");
    site.settle(1, 1).await;
    // The handler is dropped. The query still waits for the table, so the second request must wait.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    site.settle(1, 1).await;
    site.release_the_table().await;
    assert_eq!(second.await.unwrap(), (StatusCode::CREATED, "2".to_owned()));
    assert_eq!(site.postgres.sql("SELECT string_agg(tenant, ',' ORDER BY id) FROM orders"), "a,b");
}
