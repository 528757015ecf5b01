//! The queue of requests, and the tasks that run them in transactions.
//!
//! Requests that arrive while all connections are busy wait, and share the next transaction. There
//! are no timers: on an idle store no request waits for another.
//!
//! A worker is a task that takes requests from the queue until it is empty. A request that finds
//! fewer workers than connections starts one, on its own runtime. A worker that the server refuses a
//! connection leaves its requests to the workers that have one.
//!
//! Invariant: while requests are queued there is a worker, or a slot whose end starts one.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tollgate_store::SystemClock;
use tollgate_store::node_board::NodeId;
use tollgate_store::version_registry::StoreGate;

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

/// The maximum number of requests that wait. More would wait for longer than any deadline.
const MAX_QUEUED_REQUESTS: usize = 1 << 16;

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
    /// The id of this node.
    pub(crate) node: NodeId,
    /// The last known number of nodes, including this one.
    pub(crate) nodes: AtomicUsize,
    pub(crate) clock: DecisionClock,
    /// The clock of this node.
    pub(crate) local_clock: SystemClock,
    /// Whether requests wait for the rules of other nodes (`registry`).
    pub(crate) gate: StoreGate,
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
    /// The slots that had a connection when they last needed one.
    connected: usize,
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
            node: NodeId(RandomState::new().hash_one(0_u8)),
            nodes: AtomicUsize::new(1),
            clock,
            local_clock: SystemClock::new(),
            gate: StoreGate::default(),
            queue: Mutex::default(),
        })
    }

    /// Queues a request.
    pub(crate) fn submit(self: &Arc<Self>, work: Work) -> Waiter {
        let (request, waiter) = Request::new(work);
        let slot = {
            let mut queue = self.locked();
            if queue.requests.len() >= MAX_QUEUED_REQUESTS {
                drop(queue);
                fail([request], &Failure::refused("too many requests wait for PostgreSQL"));
                return waiter;
            }
            queue.requests.push_back(request);
            self.take_slot(&mut queue)
        };
        start(slot);
        waiter
    }

    fn take_slot(self: &Arc<Self>, queue: &mut Queue) -> Option<WorkerSlot> {
        let is_refused = queue.connected > 0 && queue.idle.is_empty() && queue.recent_failure().is_some();
        if queue.workers >= self.settings.connections || is_refused {
            return None;
        }
        queue.workers += 1;
        Some(self.slot(SlotKind::Worker))
    }

    fn slot(self: &Arc<Self>, kind: SlotKind) -> WorkerSlot {
        WorkerSlot { pool: Arc::clone(self), kind, is_running: false, is_connected: false }
    }

    /// Returns a connection for background work, with the slot that has to be dropped after it.
    pub(crate) async fn background_connection(self: &Arc<Self>) -> Result<(Connection, WorkerSlot), Failure> {
        let mut slot = self.slot(SlotKind::Background);
        slot.is_running = true;
        Ok((slot.connect().await?, slot))
    }

    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection, unless an attempt has just failed.
    async fn open(&self) -> Result<Connection, Failure> {
        if let Some(failure) = self.locked().recent_failure() {
            return Err(failure.clone());
        }
        let connected = connect(&self.settings, &self.tables).await.map_err(Failure::refused);
        self.locked().failure = connected.as_ref().err().map(|it| (Instant::now(), it.clone()));
        let count = if connected.is_ok() { &self.counters.connections } else { &self.counters.failures };
        Counts::add(count, 1);
        connected
    }

    /// Keeps a connection for the next transaction, unless there are enough: late commits have taken
    /// others for a while.
    pub(crate) fn keep(&self, mut connection: Connection) {
        let mut queue = self.locked();
        if !connection.is_closed() && queue.idle.len() <= self.settings.connections {
            connection.is_reused = true;
            queue.idle.push(connection);
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

impl Queue {
    /// Takes an open connection that no slot uses.
    fn take_idle(&mut self) -> Option<Connection> {
        self.idle.retain(|it| !it.is_closed());
        self.idle.pop()
    }

    /// Returns the last failure to connect, if it is too early for another attempt.
    fn recent_failure(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|(at, _)| at.elapsed() < RECONNECT_DELAY).map(|(_, it)| it)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    /// Runs transactions.
    Worker,
    /// Does not run transactions, and may have the only connection.
    Background,
    /// Has left its requests to others.
    Retired,
}

/// The right to run transactions. Another worker takes over when it is dropped.
pub(crate) struct WorkerSlot {
    pool: Arc<Pool>,
    kind: SlotKind,
    /// Whether the task of the worker has been polled.
    is_running: bool,
    is_connected: bool,
}

/// Requests that no connected slot serves, and the connection that the last one left.
struct Unserved {
    slot: WorkerSlot,
    requests: Vec<Request>,
    left: Option<Connection>,
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
        let mut requests = Vec::new();
        {
            let mut queue = self.pool.locked();
            while requests.len() < MAX_REQUESTS
                && let Some(request) = queue.requests.pop_front()
            {
                // Those whose callers have left must not keep others waiting.
                if request.is_wanted() {
                    requests.push(request);
                }
            }
        }
        // A request that is queued now is found by `drop`.
        (!requests.is_empty()).then_some((self, requests))
    }

    /// Returns a connection that no other slot uses, or opens one.
    async fn connect(&mut self) -> Result<Connection, Failure> {
        if let Some(connection) = self.take_idle() {
            return Ok(connection);
        }
        let opened = self.pool.open().await;
        self.set_connected(opened.is_ok());
        opened
    }

    /// Takes a connection that no other slot uses.
    fn take_idle(&mut self) -> Option<Connection> {
        let mut queue = self.pool.locked();
        let connection = queue.take_idle()?;
        // Under the same lock: a slot that finds neither an idle connection nor a connected slot fails
        // its requests.
        queue.connected += usize::from(!self.is_connected);
        drop(queue);
        self.is_connected = true;
        Some(connection)
    }

    fn set_connected(&mut self, is_connected: bool) {
        let mut queue = self.pool.locked();
        queue.connected -= usize::from(self.is_connected);
        queue.connected += usize::from(is_connected);
        drop(queue);
        self.is_connected = is_connected;
    }

    /// Puts requests back to the front of the queue.
    fn put_back(&self, requests: Vec<Request>) {
        let mut queue = self.pool.locked();
        requests.into_iter().rev().for_each(|request| queue.requests.push_front(request));
    }

    /// Leaves requests to a slot that has a connection, and ends this one. Returns both if there is no such
    /// slot, with the connection that it may have left.
    fn retire(mut self, requests: Vec<Request>) -> Result<(), Box<Unserved>> {
        self.set_connected(false);
        let mut queue = self.pool.locked();
        if queue.connected == 0 {
            let left = queue.take_idle();
            queue.connected += usize::from(left.is_some());
            drop(queue);
            self.is_connected = left.is_some();
            return Err(Box::new(Unserved { slot: self, requests, left }));
        }
        requests.into_iter().rev().for_each(|request| queue.requests.push_front(request));
        queue.workers -= 1;
        drop(queue);
        self.kind = SlotKind::Retired;
        Ok(())
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let (next, orphans) = {
            let mut queue = self.pool.locked();
            queue.workers -= usize::from(self.kind == SlotKind::Worker);
            queue.connected -= usize::from(self.is_connected);
            if queue.requests.is_empty() || self.kind == SlotKind::Retired {
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
    while let Some((next, batch)) = slot.next_batch() {
        slot = next;
        let (connection, requests) = match slot.connect().await {
            Ok(connection) => (connection, batch),
            Err(failure) => {
                let Err(unserved) = slot.retire(batch) else { return };
                let Unserved { slot: same, requests, left } = *unserved;
                slot = same;
                let Some(left) = left else {
                    fail(requests, &failure);
                    continue;
                };
                (left, requests)
            }
        };
        match run(&pool, connection, requests, slot).await {
            TransactionEnd::OnTime(same) => slot = same,
            TransactionEnd::Stale(same, requests) => {
                slot = same;
                slot.put_back(requests);
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

#[cfg(test)]
mod tests {
    use tollgate_core::{Adjustment, Bucket, Rate, Rule};

    use super::*;

    fn change() -> Work {
        let rule = Rule::new("a", Bucket::new(Rate::per_day(1)).unwrap());
        Work::Change(Box::new(OwnedChange {
            rule,
            key: b"key"[..].into(),
            adjustment: Adjustment::Reset,
            id: None,
        }))
    }

    #[tokio::test]
    async fn a_bounded_number_of_requests_waits_and_those_without_a_caller_are_dropped() {
        let settings = PostgresSettings::parse("postgres://ann@127.0.0.1:1/shop").unwrap();
        let pool = Pool::new(settings, DecisionClock::Server);
        // No worker runs in between, because nothing is awaited.
        let mut waiters: Vec<_> = (0..MAX_QUEUED_REQUESTS).map(|_| pool.submit(change())).collect();
        let refused = pool.submit(change()).wait_patiently().await;
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        waiters.drain(..MAX_QUEUED_REQUESTS - 1);
        let (slot, requests) = pool.slot(SlotKind::Background).next_batch().unwrap();
        assert_eq!((requests.len(), waiters.len()), (1, 1));
        drop((slot, requests));
    }
}
