//! The board of the nodes that share a database, as in [`tollgate_store::node_board`].
//!
//! The record of a node is in the table of nodes; a question and its answer are one row. Everything is on the
//! clock of the server, and with bounds that apply before anything is sent to a node: other users of the
//! database may have written any value.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use tollgate_store::node_board::{
    ANSWER_DEADLINE, ANSWER_POLL_INTERVAL, BoardFuture, MAX_ANSWER_BYTES, MAX_NODES, MAX_OPEN_QUESTIONS,
    MAX_QUESTIONS_PER_READ, MAX_RECORD_BYTES, NodeBoard, NodeId, NodeRecord, NodeRecords, QUESTION_LIFETIME,
    Question, RECORD_LIFETIME,
};

use crate::background::{Background, Values};
use crate::connection::CLOCK;
use crate::failure::Failure;
use crate::pool::Pool;

/// The deadline of a call.
const CALL_DEADLINE: Duration = Duration::from_secs(2);

/// The board of the nodes that share a database.
pub(crate) struct PostgresBoard(pub(crate) Arc<Pool>);

impl PostgresBoard {
    /// Runs a query within the deadline.
    async fn query(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Failure> {
        let work = async {
            let work = Background::begin(&self.0).await?;
            let rows = work.query(statement, values).await?;
            work.commit(&self.0).await?;
            Ok(rows)
        };
        timeout(CALL_DEADLINE, work).await.unwrap_or(Err(Failure::TimedOut(CALL_DEADLINE)))
    }

    async fn read_answer(&self, question: Question) -> Result<Option<Vec<u8>>, Failure> {
        let read = format!(
            "SELECT answer FROM {} WHERE id = $1 AND expires > {CLOCK}
             AND octet_length(answer) BETWEEN 1 AND {MAX_ANSWER_BYTES}",
            self.0.tables.questions()
        );
        let rows = self.query(&read, &[&question.0.cast_signed()]).await?;
        Ok(rows.first().and_then(|row| row.try_get(0).ok()))
    }
}

impl NodeBoard for PostgresBoard {
    fn node(&self) -> NodeId {
        self.0.node
    }

    fn publish<'b>(&'b self, record: &'b [u8]) -> BoardFuture<'b, Vec<Question>> {
        Box::pin(async move {
            let (nodes, questions) = (self.0.tables.nodes(), self.0.tables.questions());
            // The row of a node that has not announced itself yet does not count.
            let publish = format!(
                "WITH published AS (
                    INSERT INTO {nodes} (name, expires, record, record_at) VALUES ($1, {CLOCK}, $2, {CLOCK})
                    ON CONFLICT (name) DO UPDATE SET record = EXCLUDED.record, record_at = EXCLUDED.record_at)
                 SELECT id FROM {questions} WHERE answer IS NULL AND expires > {CLOCK} AND expires <= {CLOCK} + {}
                 ORDER BY expires LIMIT {MAX_QUESTIONS_PER_READ}",
                QUESTION_LIFETIME.as_micros()
            );
            let rows = self.query(&publish, &[&self.node().to_string(), &record]).await?;
            let id = |row: &Row| row.try_get(0).ok().map(i64::cast_unsigned).map(Question);
            Ok(rows.iter().filter_map(id).collect())
        })
    }

    fn read(&self) -> BoardFuture<'_, NodeRecords> {
        Box::pin(async move {
            let read = format!(
                "SELECT left(name, 17), ({CLOCK} - record_at) / 1000,
                    CASE WHEN octet_length(record) <= {MAX_RECORD_BYTES} THEN record END
                 FROM {} WHERE record IS NOT NULL AND record_at > {CLOCK} - {} AND record_at <= {CLOCK} + 1000000
                 ORDER BY record_at DESC LIMIT {MAX_NODES}",
                self.0.tables.nodes(),
                RECORD_LIFETIME.as_micros()
            );
            let rows = self.query(&read, &[]).await?;
            let mut found = NodeRecords::default();
            for row in &rows {
                match read_record(row) {
                    Some(record) => found.records.push(record),
                    None => found.unreadable += 1,
                }
            }
            Ok(found)
        })
    }

    fn withdraw(&self) -> BoardFuture<'_, ()> {
        Box::pin(async move {
            let withdraw =
                format!("UPDATE {} SET record = NULL WHERE name = $1 RETURNING 1", self.0.tables.nodes());
            self.query(&withdraw, &[&self.node().to_string()]).await?;
            Ok(())
        })
    }

    fn ask(&self, question: Question) -> BoardFuture<'_, Option<Vec<u8>>> {
        Box::pin(async move {
            // An answer to the same question, a moment ago.
            if let Some(answer) = self.read_answer(question).await? {
                return Ok(Some(answer));
            }
            let questions = self.0.tables.questions();
            let ask = format!(
                "INSERT INTO {questions} (id, expires) SELECT $1, {CLOCK} + {}
                 WHERE (SELECT count(*) FROM {questions} WHERE answer IS NULL AND expires > {CLOCK} AND id <> $1)
                    < {MAX_OPEN_QUESTIONS}
                 ON CONFLICT (id) DO UPDATE SET expires = EXCLUDED.expires, answer = NULL RETURNING 1",
                QUESTION_LIFETIME.as_micros()
            );
            if self.query(&ask, &[&question.0.cast_signed()]).await?.is_empty() {
                return Ok(None);
            }
            let wait = async {
                loop {
                    sleep(ANSWER_POLL_INTERVAL).await;
                    if let Some(answer) = self.read_answer(question).await? {
                        return Ok(Some(answer));
                    }
                }
            };
            timeout(ANSWER_DEADLINE, wait).await.unwrap_or(Ok(None))
        })
    }

    fn answer<'b>(&'b self, question: Question, answer: &'b [u8]) -> BoardFuture<'b, ()> {
        Box::pin(async move {
            let write = format!(
                "UPDATE {} SET answer = $2, expires = {CLOCK} + {}
                 WHERE id = $1 AND answer IS NULL AND expires > {CLOCK} RETURNING 1",
                self.0.tables.questions(),
                QUESTION_LIFETIME.as_micros()
            );
            self.query(&write, &[&question.0.cast_signed(), &answer]).await?;
            Ok(())
        })
    }
}

/// Returns the record of a row. `None` if no node has written it.
fn read_record(row: &Row) -> Option<NodeRecord> {
    let (name, age): (String, i64) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
    let record: Option<Vec<u8>> = row.try_get(2).ok()?;
    let node = NodeId::parse(name.as_bytes())?;
    let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
    Some(NodeRecord { node, age, record: record.filter(|it| !it.is_empty())? })
}
