//! Background work of a node: registers itself, counts the nodes, and deletes expired rows.
//!
//! While PostgreSQL does not answer, each node admits its share of a limit (`tollgate::outage`), so it
//! must know the number of nodes. The last known number is kept until a new one arrives.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Error};

use crate::connection::CLOCK;
use crate::counters::Counts;
use crate::pool::Pool;

/// The time between two announcements.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);
/// How long an announcement counts, in microseconds.
const NODE_LIFETIME_US: i64 = 10_000_000;
/// How long an expired row is kept, in microseconds: the clock of the server may be set back.
const EXPIRED_ROW_LIFETIME_US: i64 = 600_000_000;
/// The pages that one step reads for expired rows: one megabyte.
const PAGES_PER_STEP: i64 = 128;

/// Announces this node and deletes expired rows, until dropped.
pub(crate) async fn announce(pool: &Arc<Pool>) {
    let name = format!("{:016x}", RandomState::new().hash_one(0u8));
    let mut sweep = Sweep::default();
    loop {
        let round = async {
            let connection = pool.connection().await.ok()?;
            let nodes = count_nodes(pool, connection.client(), &name).await.ok()?;
            pool.nodes.store(nodes, Ordering::Relaxed);
            let deleted = sweep.step(pool, connection.client()).await.ok()?;
            Counts::add(&pool.counters.expired, deleted);
            pool.keep(connection);
            Some(())
        };
        // A connection that does not answer is dropped.
        let _failed = timeout(ANNOUNCE_INTERVAL, round).await;
        sleep(ANNOUNCE_INTERVAL).await;
    }
}

/// Registers a node for ten seconds and returns the number of registered nodes.
async fn count_nodes(pool: &Pool, client: &Client, name: &str) -> Result<usize, Error> {
    let nodes = pool.tables.nodes();
    let register = format!(
        "INSERT INTO {nodes} VALUES ($1, {CLOCK} + $2) ON CONFLICT (name) DO UPDATE SET expires = EXCLUDED.expires"
    );
    client.execute(&register, &[&name, &NODE_LIFETIME_US]).await?;
    // An entry far in the future was written before the clock was set back.
    let count = format!("SELECT count(*) FROM {nodes} WHERE expires > {CLOCK} AND expires <= {CLOCK} + $1");
    let count: i64 = client.query_one(&count, &[&NODE_LIFETIME_US]).await?.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(0).max(1))
}

/// Deletes expired rows, a few pages at a time. All nodes do so, each from its own position.
#[derive(Default)]
struct Sweep {
    next_page: i64,
}

impl Sweep {
    /// Deletes the expired rows of the next pages, and returns their number.
    async fn step(&mut self, pool: &Pool, client: &Client) -> Result<u64, Error> {
        let states = pool.tables.states();
        let size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint";
        let pages: i64 = client.query_one(size, &[&states]).await?.try_get(0)?;
        let (first, last) = (self.next_page, self.next_page + PAGES_PER_STEP);
        self.next_page = if last < pages { last } else { 0 };
        // Without waiting for a locked row: a decision may hold it, and wait for another one of
        // these. The numbers are ours, so no text from outside is part of the statement.
        let delete = format!(
            "DELETE FROM {states} WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM {states}
                WHERE ctid >= '({first},0)' AND ctid < '({last},0)' AND expires < {CLOCK} - {EXPIRED_ROW_LIFETIME_US}
                FOR UPDATE SKIP LOCKED))"
        );
        let mut deleted = client.execute(&delete, &[]).await?;
        for (table, kept) in [(pool.tables.adjustments(), 0), (pool.tables.nodes(), NODE_LIFETIME_US)] {
            let delete = format!(
                "DELETE FROM {table} WHERE ctid = ANY(ARRAY(
                    SELECT ctid FROM {table} WHERE expires < {CLOCK} - {kept} LIMIT 1000 FOR UPDATE SKIP LOCKED))"
            );
            deleted += client.execute(&delete, &[]).await?;
        }
        Ok(deleted)
    }
}
