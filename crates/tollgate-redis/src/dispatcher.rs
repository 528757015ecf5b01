//! Sends calls to Redis and queues requests for the next call.
//!
//! There are no timers and no batch size. A request that arrives while no call is in flight is sent
//! immediately. A request that arrives while [`MAX_CALLS_IN_FLIGHT`] calls are in flight joins the
//! next batch. An idle store therefore adds nothing to a round trip, and a busy store makes fewer
//! and larger calls. Waiting requests are distributed over the calls. Replies of the calls are
//! delivered one after the other, and the next batch of the first call is sent before the reply of
//! the second is delivered. Otherwise all replies would be delivered while Redis is idle, and all
//! requests sent while it is busy.
//!
//! A queue holds requests that can share a call: one queue for a server, one for each partition of
//! a cluster, because a script may touch only one slot.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tollgate_core::{Adjustment, Outcome, Rule, Timestamp};
use tollgate_store::{AdjustmentId, Check, Clock as _};

use crate::batch::{BatchBuilder, DecisionReply};
use crate::encoding::{encode, quota_of};
use crate::failure::Failure;
use crate::key_state::KeyState;
use crate::replay::{KeyObserver, ScriptReply, replay, take_back};
use crate::router::{Router, SentRequest, ServerReply};
use crate::shared::{Counts, Shared};

/// The maximum number of concurrent calls of a queue: while Redis executes one, the next is on its
/// way.
const MAX_CALLS_IN_FLIGHT: usize = 2;

/// The maximum number of attempts to undo a late call, and the delay between them.
const MAX_RELEASE_ATTEMPTS: usize = 20;
const RELEASE_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The queues of one thread, and its connections to Redis.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    router: Router,
    queues: Box<[Mutex<RequestQueue>]>,
}

#[derive(Default)]
struct RequestQueue {
    /// Batches, each with the time of its first request.
    waiting: VecDeque<(BatchBuilder, Timestamp)>,
    /// The number of sender tasks.
    calls: usize,
    /// The number of calls in flight, and the number of requests in them.
    sent: usize,
    under_way: usize,
    /// The recent number of concurrent requests.
    waiters: usize,
    /// Whether the replies of a call are being delivered; their receivers may send new requests.
    replying: bool,
}

/// The minimum number of requests for which a second call is worthwhile.
const MIN_REQUESTS_PER_CALL: usize = 32;

impl RequestQueue {
    /// Whether the last batch has its share of the waiting requests and another call can be made.
    fn wants_another(&self) -> bool {
        let Some((batch, _)) = self.waiting.back() else { return true };
        let has_its_part =
            batch.asked >= self.waiters.div_ceil(MAX_CALLS_IN_FLIGHT).max(MIN_REQUESTS_PER_CALL);
        batch.is_full() || (has_its_part && self.sent + self.waiting.len() < MAX_CALLS_IN_FLIGHT)
    }

    /// Records the end of a call with this number of requests; zero if there was no call.
    fn ended(&mut self, requests: usize) {
        self.sent -= usize::from(requests > 0);
        self.under_way -= requests;
    }

    fn take(&mut self) -> Option<(BatchBuilder, Timestamp)> {
        let waiting: usize = self.waiting.iter().map(|(batch, _)| batch.asked).sum();
        // Rises immediately and decays slowly.
        self.waiters = (self.under_way + waiting).max(self.waiters - self.waiters.div_ceil(8));
        let taken = self.waiting.pop_front()?;
        self.sent += 1;
        self.under_way += taken.0.asked;
        Some(taken)
    }
}

impl Dispatcher {
    pub(crate) fn new(shared: &Arc<Shared>, queues: usize) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            router: Router::new(shared),
            queues: (0..queues).map(|_| Mutex::default()).collect(),
        })
    }

    pub(crate) const fn router(&self) -> &Router {
        &self.router
    }

    /// The queue of a partition; without a cluster all partitions share one queue.
    pub(crate) fn queue_of(&self, partition: usize) -> usize {
        partition.min(self.queues.len() - 1)
    }

    /// Queues a decision.
    pub(crate) fn ask(
        self: &Arc<Self>,
        queue: usize,
        checks: &[Check<'_>],
    ) -> oneshot::Receiver<Result<DecisionReply, Failure>> {
        let (waiting, answer) = oneshot::channel();
        let keys = || checks.iter().map(|check| (check.rule, check.key));
        self.add(queue, |batch| batch.clashes(keys()), |batch, prefix| batch.ask(prefix, checks, waiting));
        answer
    }

    /// Queues a change; with an id, it is applied once.
    pub(crate) fn change(
        self: &Arc<Self>,
        queue: usize,
        key: (&Rule, &[u8]),
        change: (Adjustment, Option<AdjustmentId>),
    ) -> oneshot::Receiver<Result<Outcome, Failure>> {
        let (waiting, answer) = oneshot::channel();
        let add = |batch: &mut BatchBuilder, prefix: &str| batch.change(prefix, key, change, waiting);
        self.add(queue, |batch| batch.clashes([key]), add);
        answer
    }

    fn add(
        self: &Arc<Self>,
        at: usize,
        clashes: impl FnOnce(&BatchBuilder) -> bool,
        add: impl FnOnce(&mut BatchBuilder, &str),
    ) {
        let mut queue = self.queue(at);
        if queue.wants_another() || queue.waiting.back().is_some_and(|(batch, _)| clashes(batch)) {
            queue.waiting.push_back((BatchBuilder::default(), self.shared.clock.now()));
        }
        if let Some((batch, _)) = queue.waiting.back_mut() {
            add(batch, &self.shared.settings.prefix);
        }
        if queue.calls < MAX_CALLS_IN_FLIGHT {
            queue.calls += 1;
            drop(queue);
            tokio::spawn(Arc::clone(self).pump(at));
        }
    }

    fn queue(&self, at: usize) -> MutexGuard<'_, RequestQueue> {
        // Batches that a panicking thread left are sent like any other.
        self.queues[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends batches until the queue is empty.
    async fn pump(self: Arc<Self>, at: usize) {
        let mut turn =
            SenderTask { dispatcher: &self, queue: at, under_way: 0, replying: false, ended: false };
        while let Some((batch, since)) = turn.next() {
            self.send(&mut turn, batch, since).await;
            // Lets the receivers of the replies send new requests for the next batch.
            yield_now().await;
        }
    }

    async fn send(self: &Arc<Self>, turn: &mut SenderTask<'_>, mut batch: BatchBuilder, since: Timestamp) {
        let queue = turn.queue;
        let counters = &self.shared.counters;
        let waiters = std::mem::take(&mut batch.waiters);
        Counts::add(&counters.calls, 1);
        let deadline = self.shared.settings.deadline;
        let left = deadline.saturating_sub(self.shared.clock.now().since(since).into());
        if left.is_zero() {
            Counts::add(&counters.failures, 1);
            return waiters.fail(&Failure::refused(format!("Redis was busy for {deadline:?}")));
        }
        let sent = Arc::default();
        let mut call = Box::pin(Arc::clone(self).call(queue, batch, Arc::clone(&sent)));
        match timeout(left, &mut call).await {
            Ok((batch, Ok((reply, asked)))) => {
                Counts::add(&counters.decisions, batch.asked);
                turn.begin_replies().await;
                let updates =
                    DenyCacheUpdate { shared: &self.shared, asked, answered: self.shared.clock.now() };
                replay(&batch, waiters, reply, &updates);
            }
            Ok((_, Err(failure))) => {
                Counts::add(&counters.failures, 1);
                waiters.fail(&failure);
            }
            Err(_late) => {
                Counts::add(&counters.failures, 1);
                let sent = sent.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(sent) = sent else {
                    // An unsent call was not charged.
                    return waiters
                        .fail(&Failure::refused(format!("no connection to Redis within {deadline:?}")));
                };
                self.router.silent(&sent);
                waiters.fail_late(deadline);
                tokio::spawn(Arc::clone(self).take_back(queue, call));
            }
        }
    }

    /// Undoes a call whose waiters were notified of a timeout, if it executed after all.
    async fn take_back(
        self: Arc<Self>,
        queue: usize,
        call: impl Future<Output = (BatchBuilder, CallResult)> + Send,
    ) {
        let (batch, Ok((reply, _))) = call.await else { return };
        for (key, adjustment) in take_back(&batch, reply) {
            // The connection may have been closed in the meantime; unsent changes are tried again.
            for _ in 0..MAX_RELEASE_ATTEMPTS {
                let answer = self.change(queue, (&batch.rule_of(key), batch.bare(key)), (adjustment, None));
                if !matches!(answer.await, Ok(Err(Failure::Refused(_)))) {
                    break;
                }
                sleep(RELEASE_RETRY_DELAY).await;
            }
            // If every attempt fails, the charge decays with time.
        }
    }

    /// Sends a batch and reads the reply. `sent` is set to the target after sending.
    async fn call(
        self: Arc<Self>,
        queue: usize,
        batch: BatchBuilder,
        sent: Arc<Mutex<Option<SentRequest>>>,
    ) -> (BatchBuilder, CallResult) {
        let called = self.try_call(queue, &batch, &sent).await;
        (batch, called)
    }

    async fn try_call(
        &self,
        queue: usize,
        batch: &BatchBuilder,
        sent: &Mutex<Option<SentRequest>>,
    ) -> CallResult {
        let mut believed = self.shared.redis_now();
        // A calendar page can end between two attempts, but not three times.
        for _ in 0..3 {
            let (plain, request) = encode(batch, believed);
            let scripts = self.shared.scripts;
            let quotas = batch.rules.iter().map(|(_, quota)| quota);
            let script = if plain { scripts.plain() } else { scripts.general(quotas) };
            let asked = self.shared.clock.now();
            let by_hash = command("EVALSHA", &script.hash, batch, &request);
            let mut answer = self.router.query(queue, &by_hash, sent).await?;
            if matches!(answer, ServerReply::NoScript) {
                let by_text = command("EVAL", &script.text, batch, &request);
                answer = self.router.query(queue, &by_text, sent).await?;
            }
            let ServerReply::With(value) = answer else {
                return Err(Failure::refused("Redis does not know a script that it was just sent"));
            };
            let mut numbers = numbers(value)?;
            if numbers.len() < 2 {
                return Err(Failure::failed("the reply of the script is too short"));
            }
            let rest = numbers.split_off(2);
            let now = Timestamp::from_micros(u64::try_from(numbers[1]).unwrap_or_default());
            self.shared.redis_showed(now, asked);
            if numbers[0] == 1 {
                return Ok((ScriptReply { numbers: rest, now }, asked));
            }
            believed = now;
        }
        Err(Failure::refused("the clock of Redis left the calendar window in every attempt"))
    }
}

/// The result of a call: the reply, and when the call was sent by the local clock.
type CallResult = Result<(ScriptReply, Timestamp), Failure>;

/// A sender of a queue, with at most one call in flight.
struct SenderTask<'h> {
    dispatcher: &'h Dispatcher,
    queue: usize,
    /// The number of requests in the call.
    under_way: usize,
    replying: bool,
    ended: bool,
}

/// The maximum number of scheduler yields while another call delivers its replies.
const MAX_YIELDS: usize = 16;

impl SenderTask<'_> {
    /// Waits until no other call of this queue is delivering replies.
    async fn begin_replies(&mut self) {
        let mut waited = false;
        for _ in 0..MAX_YIELDS {
            if self.may_reply() {
                break;
            }
            waited = true;
            yield_now().await;
        }
        if waited {
            // The batch that the other call has queued since is sent first.
            yield_now().await;
        }
    }

    fn may_reply(&mut self) -> bool {
        let mut queue = self.dispatcher.queue(self.queue);
        self.replying = !queue.replying;
        queue.replying = true;
        self.replying
    }

    fn next(&mut self) -> Option<(BatchBuilder, Timestamp)> {
        let mut queue = self.dispatcher.queue(self.queue);
        queue.ended(std::mem::take(&mut self.under_way));
        queue.replying &= !std::mem::take(&mut self.replying);
        let next = queue.take();
        if let Some((batch, _)) = &next {
            self.under_way = batch.asked;
        } else {
            // Under the same lock: a request that arrives now must see that no sender is active.
            queue.calls -= 1;
            self.ended = true;
        }
        next
    }
}

/// Restores the counts if the runtime shuts down and drops the task.
impl Drop for SenderTask<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut queue = self.dispatcher.queue(self.queue);
            queue.ended(self.under_way);
            queue.replying &= !self.replying;
            queue.calls -= 1;
        }
    }
}

fn command(word: &str, script: &str, batch: &BatchBuilder, request: &[u8]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(word).arg(script).arg(batch.name_count());
    for name in batch.names() {
        command.arg(name);
    }
    command.arg(request);
    command
}

fn numbers(answer: Value) -> Result<Vec<i64>, Failure> {
    let Value::Array(values) = answer else {
        return Err(Failure::failed("the reply of the script is not an array of numbers"));
    };
    let number = |value| if let Value::Int(number) = value { Some(number) } else { None };
    let numbers: Option<Vec<_>> = values.into_iter().map(number).collect();
    numbers.ok_or_else(|| Failure::failed("the reply of the script is not an array of numbers"))
}

/// Updates the deny cache from the replies of a call.
struct DenyCacheUpdate<'h> {
    shared: &'h Shared,
    asked: Timestamp,
    answered: Timestamp,
}

impl DenyCacheUpdate<'_> {
    /// Returns a time of the clock of Redis, when the call was sent, and when it was executed by
    /// the local clock.
    fn when(&self, at: Timestamp) -> (Timestamp, Timestamp, Timestamp) {
        (at, self.asked, self.shared.executed_at(at, self.asked, self.answered))
    }
}

impl KeyObserver for DenyCacheUpdate<'_> {
    fn refused(
        &self,
        batch: &BatchBuilder,
        key: usize,
        key_state: &KeyState,
        wait: Option<(u64, i64)>,
        at: Timestamp,
    ) {
        let rule = batch.rules[batch.keys[key].rule].0;
        let (quota, when) = (quota_of(batch, key), self.when(at));
        self.shared.deny_cache.remember((rule, quota), batch.bare(key), key_state, wait, when);
    }

    fn admitted(&self, batch: &BatchBuilder, key: usize, key_state: &KeyState, at: Timestamp) {
        let known = &batch.keys[key];
        let (rule, when) = (batch.rules[known.rule].0, self.when(at));
        self.shared.deny_cache.renew(known.hash, (rule, batch.bare(key)), key_state, when);
    }

    fn changed(&self, batch: &BatchBuilder, key: usize) {
        let rule = batch.rules[batch.keys[key].rule].0;
        self.shared.deny_cache.forget(rule, batch.bare(key), self.answered);
    }
}
