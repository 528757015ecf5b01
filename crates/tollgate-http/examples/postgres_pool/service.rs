//! The service of the example: orders in PostgreSQL, written through a pool of connections.
//!
//! `tests/database_pool.rs` runs it against a real server.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Extension, Router};
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use tokio_postgres::NoTls;
use tollgate::Limiter;
use tollgate_http::{LimitLayer, SlotGuard, WaitingRoom};

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY, tenant text NOT NULL)";
/// `pg_sleep` stands for the work of a query.
const INSERT: &str = "INSERT INTO orders (tenant) SELECT $1 FROM pg_sleep($2) RETURNING id";

/// Creates a pool. `wait` is the longest wait for a connection.
pub(crate) fn connect(
    url: &str,
    connections: usize,
    wait: Option<Duration>,
) -> Result<Pool, Box<dyn std::error::Error>> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.parse()?, NoTls, recycling);
    let timeouts = Timeouts { wait, ..Timeouts::default() };
    let builder = Pool::builder(manager).max_size(connections).timeouts(timeouts);
    Ok(builder.runtime(Runtime::Tokio1).build()?)
}

/// Creates the layer that holds requests until they may use the database.
pub(crate) fn ceiling(limiter: Limiter, room: WaitingRoom) -> LimitLayer {
    LimitLayer::new(limiter).with_waiting_room(room)
}

/// A shop whose orders are in a database.
#[derive(Clone)]
pub(crate) struct Shop {
    pool: Pool,
    query_time: Duration,
}

impl Shop {
    /// Creates the table if it does not exist.
    pub(crate) async fn open(pool: Pool, query_time: Duration) -> Result<Self, PoolError> {
        pool.get().await?.batch_execute(CREATE).await?;
        Ok(Self { pool, query_time })
    }

    /// Returns the routes: `POST /orders` places an order of the tenant, and returns its number.
    pub(crate) fn router(self) -> Router {
        let routes = Router::new().route("/orders", post(place_order));
        routes.route("/healthz", get(|| async { "ok\n" })).with_state(self)
    }
}

async fn place_order(
    State(shop): State<Shop>,
    guard: Option<Extension<SlotGuard>>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let Some(tenant) = headers.get("x-tenant-id").and_then(|value| value.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "X-Tenant-Id is missing\n".to_owned());
    };
    let connection = match shop.pool.get().await {
        Ok(connection) => connection,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    };
    let work = insert(connection, tenant.to_owned(), shop.query_time.as_secs_f64());
    // PostgreSQL continues a query whose caller has left. A task of its own keeps the connection and the
    // slot until the query is done, so that no more than N queries run.
    let query = tokio::spawn(async move {
        let _guard = guard;
        work.await
    });
    match query.await {
        Ok(Ok(number)) => (StatusCode::CREATED, format!("{number}\n")),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

async fn insert(connection: Object, tenant: String, seconds: f64) -> Result<i64, tokio_postgres::Error> {
    let statement = connection.prepare_cached(INSERT).await?;
    connection.query_one(&statement, &[&tenant, &seconds]).await?.try_get(0)
}
