//! The queue of requests, and the tasks that run them in transactions.
//!
//! Requests that arrive while all connections are busy wait, and share the next transaction. There
//! are no timers: on an idle store no request waits for another.
//!
//! A worker is a task that takes requests from the queue until it is empty. A request that finds
//! fewer workers than connections starts one, on its own runtime.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::connect::connect;
use crate::connection::Connection;
use crate::counters::Counts;
use crate::failure::Failure;
use crate::request::{OwnedChange, Request, Undelivered, Waiter, Work, fail};
use crate::settings::PostgresSettings;
use crate::tables::Tables;
use crate::transaction::{TransactionEnd, run};

/// The maximum number of requests of a transaction. Their locks are held for two round trips.
const MAX_REQUESTS: usize = 64;

/// The time for which requests fail without an attempt after a failed attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// The maximum number of attempts to undo a late charge, and the delay between them.
const MAX_UNDO_ATTEMPTS: usize = 20;
const UNDO_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The state that all tasks of a store share.
pub(crate) struct Pool {
    pub(crate) settings: PostgresSettings,
    pub(crate) tables: Tables,
    pub(crate) counters: Counts,
    /// The last known number of nodes, including this one.
    pub(crate) nodes: AtomicUsize,
    pub(crate) clock: DecisionClock,
    queue: Mutex<Queue>,
    /// One permit for each connection that waits for a late commit.
    late_commits: Semaphore,
}

/// The clock of decisions.
pub(crate) enum DecisionClock {
    /// That of the server.
    Server,
    /// A time in microseconds that a test sets.
    #[cfg(feature = "test-clock")]
    Test(Arc<std::sync::atomic::AtomicU64>),
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    workers: usize,
    idle: Vec<Connection>,
    /// The last failure to connect.
    failure: Option<(Instant, Failure)>,
}

impl Pool {
    pub(crate) fn new(settings: PostgresSettings, clock: DecisionClock) -> Arc<Self> {
        Arc::new(Self {
            tables: Tables::new(&settings),
            late_commits: Semaphore::new(settings.connections),
            settings,
            counters: Counts::default(),
            nodes: AtomicUsize::new(1),
            clock,
            queue: Mutex::default(),
        })
    }

    /// Queues a request.
    pub(crate) fn submit(self: &Arc<Self>, work: Work) -> Waiter {
        let (request, waiter) = Request::new(work);
        let slot = {
            let mut queue = self.locked();
            queue.requests.push_back(request);
            self.take_slot(&mut queue)
        };
        start(slot);
        waiter
    }

    fn take_slot(self: &Arc<Self>, queue: &mut Queue) -> Option<WorkerSlot> {
        if queue.workers >= self.settings.connections {
            return None;
        }
        queue.workers += 1;
        Some(WorkerSlot { pool: Arc::clone(self), is_running: false })
    }

    /// Puts requests back to the front of the queue.
    fn put_back(&self, requests: Vec<Request>) {
        let mut queue = self.locked();
        requests.into_iter().rev().for_each(|request| queue.requests.push_front(request));
    }

    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open connection.
    pub(crate) async fn connection(&self) -> Result<Connection, Failure> {
        {
            let mut queue = self.locked();
            queue.idle.retain(|it| !it.is_closed());
            if let Some(connection) = queue.idle.pop() {
                return Ok(connection);
            }
            if let Some((at, failure)) = &queue.failure
                && at.elapsed() < RECONNECT_DELAY
            {
                return Err(failure.clone());
            }
        }
        let connected = connect(&self.settings, &self.tables).await.map_err(Failure::refused);
        self.locked().failure = connected.as_ref().err().map(|it| (Instant::now(), it.clone()));
        let count = if connected.is_ok() { &self.counters.connections } else { &self.counters.failures };
        Counts::add(count, 1);
        connected
    }

    /// Keeps a connection for the next transaction.
    pub(crate) fn keep(&self, mut connection: Connection) {
        if !connection.is_closed() {
            connection.is_reused = true;
            self.locked().idle.push(connection);
        }
    }

    /// Returns the permission to wait for a late commit. `None` if as many connections as there are
    /// for decisions wait for one: a server whose commits hang is not given ever more of them.
    pub(crate) fn late_commit(&self) -> Option<SemaphorePermit<'_>> {
        self.late_commits.try_acquire().ok()
    }

    /// Undoes a charge whose caller did not get the answer.
    pub(crate) fn undo(self: &Arc<Self>, undelivered: Undelivered) {
        tokio::spawn(undo(Arc::clone(self), undelivered));
    }
}

/// The right to run transactions. Another worker takes over when it is dropped.
pub(crate) struct WorkerSlot {
    pool: Arc<Pool>,
    /// Whether the task of the worker has been polled.
    is_running: bool,
}

/// Starts a worker. Not under the lock of the queue: a runtime that shuts down drops the task at once.
fn start(slot: Option<WorkerSlot>) {
    if let Some(slot) = slot {
        tokio::spawn(work(slot));
    }
}

impl WorkerSlot {
    /// Takes the next requests. `None`, and the slot is gone, if there are none.
    fn next_batch(self) -> Option<(Self, Vec<Request>)> {
        let mut queue = self.pool.locked();
        let length = queue.requests.len().min(MAX_REQUESTS);
        if length == 0 {
            // Under the lock, so that no request is queued in between. `drop` finds an empty queue.
            drop(queue);
            return None;
        }
        let requests = queue.requests.drain(..length).collect();
        drop(queue);
        Some((self, requests))
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let (next, orphans) = {
            let mut queue = self.pool.locked();
            queue.workers -= 1;
            if queue.requests.is_empty() {
                return;
            }
            if self.is_running && tokio::runtime::Handle::try_current().is_ok() {
                (self.pool.take_slot(&mut queue), VecDeque::new())
            } else {
                // The runtime shuts down. The callers learn that by the end of their requests.
                (None, std::mem::take(&mut queue.requests))
            }
        };
        drop(orphans);
        start(next);
    }
}

async fn work(mut slot: WorkerSlot) {
    slot.is_running = true;
    let pool = Arc::clone(&slot.pool);
    while let Some((next, requests)) = slot.next_batch() {
        slot = next;
        let connection = match pool.connection().await {
            Ok(connection) => connection,
            Err(failure) => {
                fail(requests, &failure);
                continue;
            }
        };
        match run(&pool, connection, requests, slot).await {
            TransactionEnd::OnTime(same) => slot = same,
            TransactionEnd::Stale(same, requests) => {
                slot = same;
                pool.put_back(requests);
            }
            TransactionEnd::Late => return,
        }
        // Lets the receivers of the replies send new requests for the next transaction.
        yield_now().await;
    }
}

async fn undo(pool: Arc<Pool>, undelivered: Undelivered) {
    let Undelivered { decided, checks } = undelivered;
    for (at, (check, outcome)) in checks.into_iter().zip(&decided.answer.outcomes).enumerate() {
        let renewed = decided.renewed.contains(&at);
        let change = tollgate_store::undo_check(check.amount, outcome, renewed, decided.answer.at);
        let Some(adjustment) = change else { continue };
        for _ in 0..MAX_UNDO_ATTEMPTS {
            let (rule, key) = (check.rule.clone(), Arc::clone(&check.key));
            let change = OwnedChange { rule, key, adjustment, id: None };
            let reply = pool.submit(Work::Change(Box::new(change))).wait_patiently().await;
            if !matches!(reply, Err(Failure::Refused(_) | Failure::TimedOut(_))) {
                break;
            }
            sleep(UNDO_RETRY_DELAY).await;
        }
        // If every attempt fails, the charge decays with time.
    }
}
