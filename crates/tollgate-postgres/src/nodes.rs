//! Background work of a node: registers itself, counts the nodes, and deletes expired rows.
//!
//! While PostgreSQL does not answer, each node admits its share of a limit (`tollgate::outage`), so it
//! must know the number of nodes. The last known number is kept until a new one arrives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::background::Background;
use crate::connection::CLOCK;
use crate::counters::Counts;
use crate::failure::Failure;
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

/// Announces this node and deletes expired rows, until dropped.
pub(crate) async fn announce(pool: &Arc<Pool>) {
    let mut sweep = Sweep::new(&pool.tables);
    loop {
        let round = async {
            let nodes = count_nodes(pool).await.ok()?;
            pool.nodes.store(nodes, Ordering::Relaxed);
            sweep.run(pool).await.ok()
        };
        // A connection that does not answer is dropped.
        let _failed = timeout(ANNOUNCE_INTERVAL, round).await;
        sleep(ANNOUNCE_INTERVAL).await;
    }
}

/// Registers a node for ten seconds and returns the number of registered nodes.
async fn count_nodes(pool: &Arc<Pool>) -> Result<usize, Failure> {
    let work = Background::begin(pool).await?;
    let (nodes, name) = (pool.tables.nodes(), pool.node.to_string());
    let register = format!(
        "INSERT INTO {nodes} (name, expires) VALUES ($1, {CLOCK} + $2) ON CONFLICT (name) DO UPDATE SET expires = EXCLUDED.expires"
    );
    work.execute(&register, &[&name, &NODE_LIFETIME_US]).await?;
    // An entry far in the future was written before the clock was set back.
    let count = format!("SELECT count(*) FROM {nodes} WHERE expires > {CLOCK} AND expires <= {CLOCK} + $1");
    let count = work.number(&count, &[&NODE_LIFETIME_US]).await?;
    work.commit(pool).await?;
    Ok(usize::try_from(count).unwrap_or(0).max(1))
}

/// Removes this node, so that it is no longer counted, and no other node waits for it.
pub(crate) async fn leave(pool: &Arc<Pool>) -> Result<(), Failure> {
    let work = Background::begin(pool).await?;
    let delete = format!("DELETE FROM {} WHERE name = $1", pool.tables.nodes());
    work.execute(&delete, &[&pool.node.to_string()]).await?;
    work.commit(pool).await
}

/// Deletes expired rows, a few pages at a time. All nodes do so, each from its own position.
struct Sweep {
    tables: [SweptTable; 4],
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
                table(tables.questions(), 0),
            ],
        }
    }

    /// Reads some pages of each table, and more while it finds expired rows.
    async fn run(&mut self, pool: &Arc<Pool>) -> Result<(), Failure> {
        for table in &mut self.tables {
            for _ in 0..MAX_STEPS {
                let found = table.step(pool).await?;
                Counts::add(&pool.counters.expired, found);
                if found == 0 || table.next_page == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl SweptTable {
    /// Deletes the expired rows of the next pages, and returns their number.
    async fn step(&mut self, pool: &Arc<Pool>) -> Result<u64, Failure> {
        let Self { name, kept, .. } = self;
        let work = Background::begin(pool).await?;
        let size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint";
        let pages = work.number(size, &[name]).await?;
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
        let deleted = work.execute(&delete, &[]).await?;
        work.commit(pool).await?;
        Ok(deleted)
    }
}
