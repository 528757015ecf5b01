//! Background work of a node: registers itself, counts the nodes, and deletes expired rows.
//!
//! While PostgreSQL does not answer, each node admits its share of a limit (`tollgate::outage`), so it
//! must know the number of nodes. The last known number is kept until a new one arrives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Error};

use crate::connection::CLOCK;
use crate::counters::Counts;
use crate::failure::{Failure, explain};
use crate::pool::Pool;
use crate::tables::Tables;

/// The time between two announcements.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);
/// How long an announcement counts, in microseconds.
const NODE_LIFETIME_US: i64 = 10_000_000;
/// How long an expired row is kept, in microseconds: the clock of the server may be set back.
const EXPIRED_ROW_LIFETIME_US: i64 = 600_000_000;
/// The pages that one step reads for expired rows: one megabyte.
const PAGES_PER_STEP: i64 = 128;
/// The maximum number of steps of one round, for each table.
const MAX_STEPS: usize = 8;
/// The maximum duration of a step. It may be longer than the deadline of a decision.
const MAX_STEP_MS: u32 = 1_000;

/// Announces this node and deletes expired rows, until dropped.
pub(crate) async fn announce(pool: &Arc<Pool>) {
    let mut sweep = Sweep::new(&pool.tables);
    loop {
        let round = async {
            let (connection, slot) = pool.background_connection().await.ok()?;
            let nodes = count_nodes(pool, connection.client()).await.ok()?;
            pool.nodes.store(nodes, Ordering::Relaxed);
            let deleted = sweep.run(connection.client()).await.ok()?;
            Counts::add(&pool.counters.expired, deleted);
            pool.keep(connection);
            drop(slot);
            Some(())
        };
        // A connection that does not answer is dropped.
        let _failed = timeout(ANNOUNCE_INTERVAL, round).await;
        sleep(ANNOUNCE_INTERVAL).await;
    }
}

/// Registers a node for ten seconds and returns the number of registered nodes.
async fn count_nodes(pool: &Pool, client: &Client) -> Result<usize, Error> {
    let (nodes, name) = (pool.tables.nodes(), pool.node.to_string());
    let register = format!(
        "INSERT INTO {nodes} VALUES ($1, {CLOCK} + $2) ON CONFLICT (name) DO UPDATE SET expires = EXCLUDED.expires"
    );
    client.execute(&register, &[&name, &NODE_LIFETIME_US]).await?;
    // An entry far in the future was written before the clock was set back.
    let count = format!("SELECT count(*) FROM {nodes} WHERE expires > {CLOCK} AND expires <= {CLOCK} + $1");
    let count: i64 = client.query_one(&count, &[&NODE_LIFETIME_US]).await?.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(0).max(1))
}

/// Removes this node, so that it is no longer counted.
pub(crate) async fn leave(pool: &Arc<Pool>) -> Result<(), Failure> {
    let (connection, slot) = pool.background_connection().await?;
    let delete = format!("DELETE FROM {} WHERE name = $1", pool.tables.nodes());
    let deleted = connection.client().execute(&delete, &[&pool.node.to_string()]).await;
    deleted.map_err(|error| Failure::refused(explain(&error)))?;
    pool.keep(connection);
    drop(slot);
    Ok(())
}

/// Deletes expired rows, a few pages at a time. All nodes do so, each from its own position.
struct Sweep {
    tables: [SweptTable; 3],
}

struct SweptTable {
    name: String,
    /// How long an expired row is kept, in microseconds.
    kept: i64,
    next_page: i64,
}

impl Sweep {
    fn new(tables: &Tables) -> Self {
        let table = |name, kept| SweptTable { name, kept, next_page: 0 };
        Self {
            tables: [
                table(tables.states(), EXPIRED_ROW_LIFETIME_US),
                table(tables.adjustments(), 0),
                table(tables.nodes(), NODE_LIFETIME_US),
            ],
        }
    }

    /// Reads some pages of each table, and more while it finds expired rows. Returns the number of
    /// deleted rows.
    async fn run(&mut self, client: &Client) -> Result<u64, Error> {
        let mut deleted = 0;
        for table in &mut self.tables {
            for _ in 0..MAX_STEPS {
                let found = table.step(client).await?;
                deleted += found;
                if found == 0 || table.next_page == 0 {
                    break;
                }
            }
        }
        Ok(deleted)
    }
}

impl SweptTable {
    /// Deletes the expired rows of the next pages, and returns their number.
    async fn step(&mut self, client: &Client) -> Result<u64, Error> {
        let Self { name, kept, .. } = self;
        let size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint";
        let pages: i64 = client.query_one(size, &[name]).await?.try_get(0)?;
        let (first, last) = (self.next_page, self.next_page + PAGES_PER_STEP);
        self.next_page = if last < pages { last } else { 0 };
        // Without waiting for a locked row: a decision may hold it, and wait for another one of
        // these. The numbers are ours, so no text from outside is part of the statement.
        let delete = format!(
            "DELETE FROM {name} WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM {name}
                WHERE ctid >= '({first},0)' AND ctid < '({last},0)' AND expires < {CLOCK} - {kept}
                FOR UPDATE SKIP LOCKED))"
        );
        // The session has the deadline of decisions.
        let begin = format!("BEGIN READ WRITE; SET LOCAL statement_timeout = {MAX_STEP_MS}");
        client.batch_execute(&begin).await?;
        let deleted = client.execute(&delete, &[]).await?;
        client.batch_execute("COMMIT").await?;
        Ok(deleted)
    }
}
