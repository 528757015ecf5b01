//! One connection: it locks and reads the states of keys, and commits their changes.
//!
//! A transaction takes two round trips, because statements are sent without waiting for the reply to
//! the previous one:
//!
//! ```text
//! BEGIN, locks, clock, states  ─►  the decisions, in this process  ─►  changes, COMMIT
//! ```
//!
//! Locks are advisory, one for each key, so that keys without a row are locked, too, and a refusal
//! writes nothing. All transactions lock in the order of the numbers of the locks, so that no two
//! wait for each other. The clock and the states are read by statements of their own after that: in
//! READ COMMITTED each statement sees the transactions that committed before it began. PostgreSQL releases the
//! locks after the changes have become visible.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};
use tollgate_core::Timestamp;

use crate::states::{Changes, RowKey, StoredRow};
use crate::tables::Tables;

/// The time of the server in microseconds since 1970.
pub(crate) const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

pub(crate) struct Connection {
    client: Client,
    locks: Statement,
    clock: Statement,
    states: Statement,
    known_ids: Statement,
    write: Statement,
    delete: Statement,
    write_ids: Statement,
    lock_class: i32,
    /// Whether it was idle in between, so that the server may have closed it.
    pub(crate) is_reused: bool,
}

/// The data that a transaction has locked and read.
pub(crate) struct LockedRows {
    /// The time of the server after it had taken the locks.
    pub(crate) now: Timestamp,
    /// The stored rows, each with its index in the request.
    pub(crate) rows: Vec<(usize, StoredRow)>,
    /// The requested ids of adjustments that were made before.
    pub(crate) known_ids: Vec<u128>,
}

/// The data that a transaction needs.
#[derive(Default)]
pub(crate) struct RowRequest {
    /// The locks, in ascending order.
    pub(crate) locks: Vec<i32>,
    pub(crate) rows: Vec<RowKey>,
    pub(crate) ids: Vec<u128>,
}

impl Connection {
    /// Prepares the statements on a new connection.
    pub(crate) async fn new(client: Client, tables: &Tables) -> Result<Self, Error> {
        let [states, adjustments] = [tables.states(), tables.adjustments()];
        let clock = format!("SELECT {CLOCK}");
        let read = format!(
            "SELECT wanted.n, s.state, s.carried_to
             FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS wanted (rule, key, n)
             JOIN {states} AS s ON s.rule = wanted.rule AND s.key = wanted.key"
        );
        let known_ids = format!("SELECT id FROM {adjustments} WHERE id = ANY($1) AND expires > {CLOCK}");
        let write = format!(
            "INSERT INTO {states} AS s (rule, key, state, carried_to, expires)
             SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[])
             ON CONFLICT (rule, key) DO UPDATE
             SET state = EXCLUDED.state, carried_to = EXCLUDED.carried_to, expires = EXCLUDED.expires"
        );
        let delete = format!(
            "DELETE FROM {states} AS s USING unnest($1::bigint[], $2::bytea[]) AS gone (rule, key)
             WHERE s.rule = gone.rule AND s.key = gone.key"
        );
        let write_ids = format!(
            "INSERT INTO {adjustments} SELECT * FROM unnest($1::bytea[], $2::bigint[])
             ON CONFLICT (id) DO UPDATE SET expires = EXCLUDED.expires"
        );
        // The array is sorted, and `unnest` keeps its order. With ORDER BY, rows would be locked
        // before they are sorted.
        let locks = "SELECT pg_advisory_xact_lock($1, n) FROM unnest($2::integer[]) AS n";
        let (locks, clock, states, known_ids, write, delete, write_ids) = tokio::try_join!(
            client.prepare(locks),
            client.prepare(&clock),
            client.prepare(&read),
            client.prepare(&known_ids),
            client.prepare(&write),
            client.prepare(&delete),
            client.prepare(&write_ids),
        )?;
        let (lock_class, is_reused) = (tables.lock_class, false);
        Ok(Self { client, locks, clock, states, known_ids, write, delete, write_ids, lock_class, is_reused })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the client, for statements beside decisions.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Begins a transaction, locks keys, and reads the clock and the states.
    pub(crate) async fn begin(&self, wanted: &RowRequest) -> Result<LockedRows, Error> {
        let rules: Vec<i64> = wanted.rows.iter().map(RowKey::column).collect();
        let keys: Vec<&[u8]> = wanted.rows.iter().map(|row| &*row.key).collect();
        let lock_columns: [&(dyn ToSql + Sync); 2] = [&self.lock_class, &wanted.locks];
        let row_columns: [&(dyn ToSql + Sync); 2] = [&rules, &keys];
        // Polled in order, so that they are sent in order.
        let (begun, locked, clock, rows) = tokio::join!(
            biased;
            // The isolation level and the mode of the server may be others by default. A standby
            // refuses this.
            self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
            self.client.query(&self.locks, &lock_columns),
            self.client.query_one(&self.clock, &[]),
            self.client.query(&self.states, &row_columns),
        );
        begun?;
        locked?;
        let now = time_from(clock?.try_get(0)?);
        let rows = rows?.iter().map(stored).collect::<Result<_, _>>()?;
        let known_ids = if wanted.ids.is_empty() { Vec::new() } else { self.known_ids(&wanted.ids).await? };
        Ok(LockedRows { now, rows, known_ids })
    }

    async fn known_ids(&self, ids: &[u128]) -> Result<Vec<u128>, Error> {
        let ids: Vec<Vec<u8>> = ids.iter().map(|id| id.to_be_bytes().to_vec()).collect();
        let rows = self.client.query(&self.known_ids, &[&ids]).await?;
        let mut known = Vec::new();
        for row in &rows {
            known.extend(row.try_get::<_, &[u8]>(0)?.try_into().map(u128::from_be_bytes));
        }
        Ok(known)
    }

    /// Writes the changes and commits.
    pub(crate) async fn commit(&self, changes: &Changes) -> Result<(), Error> {
        let written = async {
            if changes.written.is_empty() {
                return Ok(0);
            }
            let rows = &changes.written;
            let rules: Vec<i64> = rows.iter().map(|(row, _)| row.column()).collect();
            let keys: Vec<&[u8]> = rows.iter().map(|(row, _)| &*row.key).collect();
            let states: Vec<&[u8]> = rows.iter().map(|(_, stored)| &*stored.state).collect();
            let carried: Vec<Option<i64>> = rows.iter().map(|(_, stored)| stored.carried_to).collect();
            let expires: Vec<i64> = rows.iter().map(|(_, stored)| stored.expires).collect();
            self.client.execute(&self.write, &[&rules, &keys, &states, &carried, &expires]).await
        };
        let deleted = async {
            if changes.deleted.is_empty() {
                return Ok(0);
            }
            let rules: Vec<i64> = changes.deleted.iter().map(RowKey::column).collect();
            let keys: Vec<&[u8]> = changes.deleted.iter().map(|row| &*row.key).collect();
            self.client.execute(&self.delete, &[&rules, &keys]).await
        };
        let noted = async {
            if changes.ids.is_empty() {
                return Ok(0);
            }
            let ids: Vec<Vec<u8>> = changes.ids.iter().map(|(id, _)| id.to_be_bytes().to_vec()).collect();
            let expires: Vec<i64> = changes.ids.iter().map(|(_, expires)| *expires).collect();
            self.client.execute(&self.write_ids, &[&ids, &expires]).await
        };
        let committed = self.client.batch_execute("COMMIT");
        let (written, deleted, noted, committed) = tokio::join!(biased; written, deleted, noted, committed);
        // After an error of a statement, COMMIT succeeds and rolls back, so the statements are first.
        written?;
        deleted?;
        noted?;
        committed
    }

    /// Ends a transaction that has changed nothing, or that has failed.
    pub(crate) async fn rollback(&self, patience: Duration) -> bool {
        let ended = tokio::time::timeout(patience, self.client.batch_execute("ROLLBACK"));
        matches!(ended.await, Ok(Ok(())))
    }
}

fn stored(row: &Row) -> Result<(usize, StoredRow), Error> {
    let number: i64 = row.try_get(0)?;
    let stored = StoredRow { state: row.try_get(1)?, carried_to: row.try_get(2)?, expires: 0 };
    // Ordinalities start at one.
    Ok((usize::try_from(number - 1).unwrap_or(usize::MAX), stored))
}

/// Returns the time of a column. Times before 1970 do not occur.
pub(crate) fn time_from(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}
