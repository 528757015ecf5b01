//! A transaction beside decisions: of the registry of rules, and of the board of the nodes.
//!
//! It takes a connection of the pool for a moment, and has a timeout of its own: no request waits for it.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use crate::connection::Connection;
use crate::failure::{Failure, during_commit, ends_connection, explain};
use crate::pool::{Pool, WorkerSlot};

/// The maximum duration of a statement.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The values of a statement.
pub(crate) type Values<'v> = &'v [&'v (dyn ToSql + Sync)];

/// A transaction. If it is dropped before its commit, its connection is closed, and the server rolls it back.
pub(crate) struct Background {
    connection: Connection,
    /// Dropped after the connection is kept.
    slot: WorkerSlot,
}

impl Background {
    /// Begins a transaction.
    pub(crate) async fn begin(pool: &Arc<Pool>) -> Result<Self, Failure> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {}",
            STATEMENT_TIMEOUT.as_millis()
        );
        loop {
            let (connection, slot) = pool.background_connection().await?;
            match connection.client().batch_execute(&begin).await {
                Ok(()) => return Ok(Self { connection, slot }),
                // The server has closed an idle connection.
                Err(error) if connection.is_reused && ends_connection(&error) => {}
                Err(error) => return Err(refused(&error)),
            }
        }
    }

    const fn client(&self) -> &Client {
        self.connection.client()
    }

    /// Executes a statement, and returns the number of rows that it changed.
    pub(crate) async fn execute(&self, statement: &str, values: Values<'_>) -> Result<u64, Failure> {
        self.client().execute(statement, values).await.map_err(|it| refused(&it))
    }

    /// Returns the rows of a query.
    pub(crate) async fn query(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Failure> {
        self.client().query(statement, values).await.map_err(|it| refused(&it))
    }

    /// Returns the number that is the result of a query.
    pub(crate) async fn number(&self, statement: &str, values: Values<'_>) -> Result<i64, Failure> {
        let row = self.client().query_one(statement, values).await;
        row.and_then(|row| row.try_get(0)).map_err(|it| refused(&it))
    }

    /// Commits, and keeps the connection.
    pub(crate) async fn commit(self, pool: &Pool) -> Result<(), Failure> {
        self.client().batch_execute("COMMIT").await.map_err(|it| during_commit(&it))?;
        pool.keep(self.connection);
        drop(self.slot);
        Ok(())
    }
}

pub(crate) fn refused(error: &Error) -> Failure {
    Failure::refused(explain(error))
}
