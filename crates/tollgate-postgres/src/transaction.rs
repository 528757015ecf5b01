//! Runs requests in one transaction: locks and reads, decides, writes and commits, answers.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::Error;
use tollgate_core::Timestamp;

use crate::connection::{Connection, LockedRows, RowRequest};
use crate::counters::Counts;
use crate::decide::{AdjustmentIds, decide};
use crate::failure::{Failure, before_commit, during_commit, ends_connection};
use crate::pool::{DecisionClock, Pool, WorkerSlot};
use crate::request::{Request, RequestResult, Work, fail};
use crate::states::{Changes, RowKey, States};
use crate::tables::lock_of;

/// The time that a worker waits for the server beyond the deadline. The server itself ends
/// statements at the deadline.
const GRACE: Duration = Duration::from_millis(100);

/// The time that a late commit is waited for, to undo it.
const MAX_COMMIT_DELAY: Duration = Duration::from_secs(30);

/// Whether a transaction ended in time.
pub(crate) enum TransactionEnd {
    /// The worker can go on.
    OnTime(WorkerSlot),
    /// The connection had been closed before, so nothing was done. The requests need another one.
    Stale(WorkerSlot, Vec<Request>),
    /// Another worker has taken over.
    Late,
}

/// Runs requests in a transaction, and answers them.
pub(crate) async fn run(
    pool: &Arc<Pool>,
    connection: Connection,
    requests: Vec<Request>,
    slot: WorkerSlot,
) -> TransactionEnd {
    let patience = pool.settings.deadline + GRACE;
    Counts::add(&pool.counters.transactions, 1);
    let wanted = wanted_rows(&requests);
    let failure = match timeout(patience, connection.begin(&wanted)).await {
        Ok(Ok(locked)) => return decide_and_commit(pool, connection, (requests, wanted, locked), slot).await,
        Ok(Err(error)) if connection.is_reused && ends_connection(&error) => {
            return TransactionEnd::Stale(slot, requests);
        }
        Ok(Err(error)) => before_commit(&error, pool.settings.deadline),
        // The connection is dropped, and the server rolls back.
        Err(_) => Failure::TimedOut(pool.settings.deadline),
    };
    Counts::add(&pool.counters.failures, 1);
    fail(requests, &failure);
    if !matches!(failure, Failure::TimedOut(_)) || connection.is_closed() {
        // A connection with an error that is not understood is not used again.
        return TransactionEnd::OnTime(slot);
    }
    if connection.rollback(patience).await {
        pool.keep(connection);
    }
    TransactionEnd::OnTime(slot)
}

async fn decide_and_commit(
    pool: &Arc<Pool>,
    connection: Connection,
    (requests, wanted, locked): (Vec<Request>, RowRequest, LockedRows),
    slot: WorkerSlot,
) -> TransactionEnd {
    let LockedRows { now, rows, known_ids } = locked;
    let rows = rows.into_iter().filter_map(|(at, row)| Some((wanted.rows.get(at)?.clone(), row)));
    let mut states = States::new(pool.clock.time(now), rows);
    let mut ids = AdjustmentIds::new(known_ids);
    let mut decided: Vec<(Request, RequestResult)> = Vec::with_capacity(requests.len());
    for request in requests {
        // The caller of an unclaimed request was notified that nothing is charged.
        if request.claim() {
            let result = decide(&request.work, &mut states, &mut ids);
            decided.push((request, result));
        }
    }
    let changes = states.into_changes(ids.made);
    Counts::add(&pool.counters.decisions, decided.len() as u64);
    if changes.is_empty() {
        deliver(pool, decided);
        if connection.rollback(pool.settings.deadline + GRACE).await {
            pool.keep(connection);
        }
        return TransactionEnd::OnTime(slot);
    }
    let (committed, slot) = commit(pool, &connection, &changes, slot).await;
    match committed {
        Ok(Ok(())) => {
            deliver(pool, decided);
            pool.keep(connection);
        }
        Ok(Err(error)) => fail_decided(pool, decided, &during_commit(&error)),
        Err(_) => fail_decided(pool, decided, &Failure::failed("no answer to a commit")),
    }
    slot.map_or(TransactionEnd::Late, TransactionEnd::OnTime)
}

/// Commits. A late commit is waited for, too, but other requests need not wait for it: the slot is gone
/// then. If it is committed after all, its charges are undone.
async fn commit(
    pool: &Pool,
    connection: &Connection,
    changes: &Changes,
    slot: WorkerSlot,
) -> (Result<Result<(), Error>, Elapsed>, Option<WorkerSlot>) {
    let mut committing = pin!(connection.commit(changes));
    match timeout(pool.settings.deadline + GRACE, &mut committing).await {
        Ok(committed) => (Ok(committed), Some(slot)),
        Err(elapsed) => {
            drop(slot);
            let Some(_late) = pool.late_commit() else { return (Err(elapsed), None) };
            (timeout(MAX_COMMIT_DELAY, committing).await, None)
        }
    }
}

fn deliver(pool: &Arc<Pool>, decided: Vec<(Request, RequestResult)>) {
    for (request, result) in decided {
        let pool = Arc::clone(pool);
        request.deliver(result, move |undelivered| pool.undo(undelivered));
    }
}

fn fail_decided(pool: &Pool, decided: Vec<(Request, RequestResult)>, failure: &Failure) {
    Counts::add(&pool.counters.failures, 1);
    fail(decided.into_iter().map(|(request, _)| request), failure);
}

/// Returns the locks and rows of the requests: each key under its rule and its predecessors.
fn wanted_rows(requests: &[Request]) -> RowRequest {
    let mut wanted = RowRequest::default();
    let mut seen = HashSet::new();
    for request in requests {
        if let Work::Change(change) = &request.work {
            wanted.ids.extend(change.id.map(|id| id.0));
        }
        for (rule, key) in request.work.keys() {
            wanted.locks.push(lock_of(key));
            let ids = [rule.id].into_iter().chain(rule.predecessors().map(|before| before.id));
            for rule in ids {
                let row = RowKey { rule, key: Arc::clone(key) };
                if seen.insert(row.clone()) {
                    wanted.rows.push(row);
                }
            }
        }
    }
    wanted.locks.sort_unstable();
    wanted.locks.dedup();
    wanted
}

impl DecisionClock {
    /// Returns the time of a decision: that of the server, unless a test sets another.
    fn time(&self, server: Timestamp) -> Timestamp {
        match self {
            Self::Server => server,
            #[cfg(feature = "test-clock")]
            Self::Test(micros) => Timestamp::from_micros(micros.load(std::sync::atomic::Ordering::Relaxed)),
        }
    }
}
