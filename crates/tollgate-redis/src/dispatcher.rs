//! Calls under way, and those who wait for the next one.
//!
//! No timers and no batch size: whoever comes while no call is under way is sent at
//! once, and whoever comes while [`MAX_CALLS_IN_FLIGHT`] are travels with all others who do. So
//! an idle store adds nothing to a round trip, and a busy one makes fewer and larger
//! calls the busier it gets. A crowd is shared out among the calls, and the calls are
//! answered one after the other, the next of the first being sent before the second is
//! told: or else all would be told while Redis rests, and ask while it works.
//!
//! A queue is what can travel together: one for a server, one for each partition of a
//! cluster, whose scripts may touch one slot only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tollgate_core::{Adjustment, Outcome, Rule, Timestamp};
use tollgate_store::{Check, Clock as _};

use crate::batch::{BatchBuilder, DecisionReply};
use crate::encoding::{encode, quota_of};
use crate::failure::Failure;
use crate::key_state::KeyState;
use crate::replay::{KeyObserver, ScriptReply, replay, take_back};
use crate::router::{Router, SentRequest, ServerReply};
use crate::shared::{Counts, Shared};

/// How many calls of one queue are under way at once: while Redis works on one, the next
/// is on its way.
const MAX_CALLS_IN_FLIGHT: usize = 2;

/// How often what landed too late is tried to be given back, and how far apart.
const MAX_RELEASE_ATTEMPTS: usize = 20;
const RELEASE_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The queues of one thread, and its way to Redis.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    router: Router,
    queues: Box<[Mutex<RequestQueue>]>,
}

#[derive(Default)]
struct RequestQueue {
    /// Batches and when the first of each was asked.
    waiting: VecDeque<(BatchBuilder, Timestamp)>,
    /// Tasks that send.
    calls: usize,
    /// How many calls are under way, and how many requests in them.
    sent: usize,
    under_way: usize,
    /// How many there are at the same time, lately.
    waiters: usize,
    /// Whether those of a call are being told, and may ask again.
    replying: bool,
}

/// Fewer than these are not worth two calls.
const MIN_REQUESTS_PER_CALL: usize = 32;

impl RequestQueue {
    /// Whether the last batch has its part of the crowd, and another call can be made.
    fn wants_another(&self) -> bool {
        let Some((batch, _)) = self.waiting.back() else { return true };
        let has_its_part =
            batch.asked >= self.waiters.div_ceil(MAX_CALLS_IN_FLIGHT).max(MIN_REQUESTS_PER_CALL);
        batch.is_full() || (has_its_part && self.sent + self.waiting.len() < MAX_CALLS_IN_FLIGHT)
    }

    /// A call with so many requests has ended; none: there was no call.
    fn ended(&mut self, requests: usize) {
        self.sent -= usize::from(requests > 0);
        self.under_way -= requests;
    }

    fn take(&mut self) -> Option<(BatchBuilder, Timestamp)> {
        let waiting: usize = self.waiting.iter().map(|(batch, _)| batch.asked).sum();
        // Slowly forgotten, at once believed.
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

    /// The queue of a partition: where there is no cluster, all share one.
    pub(crate) fn queue_of(&self, partition: usize) -> usize {
        partition.min(self.queues.len() - 1)
    }

    /// Asks for a decision.
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

    /// Asks for a change.
    pub(crate) fn change(
        self: &Arc<Self>,
        queue: usize,
        key: (&Rule, &[u8]),
        adjustment: Adjustment,
    ) -> oneshot::Receiver<Result<Outcome, Failure>> {
        let (waiting, answer) = oneshot::channel();
        let add = |batch: &mut BatchBuilder, prefix: &str| batch.change(prefix, key, adjustment, waiting);
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
        // What a thread that panicked left behind is asked or fails like any other.
        self.queues[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits, until nothing does.
    async fn pump(self: Arc<Self>, at: usize) {
        let mut turn =
            SenderTask { dispatcher: &self, queue: at, under_way: 0, replying: false, ended: false };
        while let Some((batch, since)) = turn.next() {
            self.send(&mut turn, batch, since).await;
            // Whoever has been told may ask again, and travel at once.
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
                    // What was not sent has not been charged.
                    return waiters
                        .fail(&Failure::refused(format!("no connection to Redis within {deadline:?}")));
                };
                self.router.silent(&sent);
                waiters.fail_late(deadline);
                tokio::spawn(Arc::clone(self).take_back(queue, call));
            }
        }
    }

    /// Nobody waits for this call any more, and everybody has been told so. If it has
    /// landed after all, what it took is given back.
    async fn take_back(
        self: Arc<Self>,
        queue: usize,
        call: impl Future<Output = (BatchBuilder, CallResult)> + Send,
    ) {
        let (batch, Ok((reply, _))) = call.await else { return };
        for (key, adjustment) in take_back(&batch, reply) {
            // The connection was given up meanwhile, perhaps: what was not sent is tried again.
            for _ in 0..MAX_RELEASE_ATTEMPTS {
                let answer = self.change(queue, (&batch.rule_of(key), batch.bare(key)), adjustment);
                if !matches!(answer.await, Ok(Err(Failure::Refused(_)))) {
                    break;
                }
                sleep(RELEASE_RETRY_DELAY).await;
            }
            // If all that fails, time gives it back.
        }
    }

    /// Sends a batch and reads the answer. `sent` is to whom, once it is.
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
        // A calendar's page can turn between two attempts; three times it does not.
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
                return Err(Failure::failed("the script's answer is too short"));
            }
            let rest = numbers.split_off(2);
            let now = Timestamp::from_micros(u64::try_from(numbers[1]).unwrap_or_default());
            self.shared.redis_showed(now, asked);
            if numbers[0] == 1 {
                return Ok((ScriptReply { numbers: rest, now }, asked));
            }
            believed = now;
        }
        Err(Failure::refused("Redis' clock turns faster than a calendar's pages"))
    }
}

/// What came of a call: what was told, and when it was asked by our clock.
type CallResult = Result<(ScriptReply, Timestamp), Failure>;

/// One of the calls that a queue may have under way.
struct SenderTask<'h> {
    dispatcher: &'h Dispatcher,
    queue: usize,
    /// How many are in the call.
    under_way: usize,
    replying: bool,
    ended: bool,
}

/// For how long one call waits for another's turn to end, in turns of everybody else.
const MAX_YIELDS: usize = 16;

impl SenderTask<'_> {
    /// Waits until no other call of this queue is being told.
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
            // What the other has sent since leaves first.
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
            // Under the same lock: whoever comes now must see that nobody sends.
            queue.calls -= 1;
            self.ended = true;
        }
        next
    }
}

/// A runtime that ends drops its tasks where they stand.
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
    let names = batch.names();
    let mut command = Cmd::new();
    command.arg(word).arg(script).arg(names.len());
    for name in names {
        command.arg(name);
    }
    command.arg(request);
    command
}

fn numbers(answer: Value) -> Result<Vec<i64>, Failure> {
    let Value::Array(values) = answer else {
        return Err(Failure::failed("the script did not answer with numbers"));
    };
    let number = |value| if let Value::Int(number) = value { Some(number) } else { None };
    let numbers: Option<Vec<_>> = values.into_iter().map(number).collect();
    numbers.ok_or_else(|| Failure::failed("the script did not answer with numbers"))
}

/// Remembers refusals, and what became of their keys.
struct DenyCacheUpdate<'h> {
    shared: &'h Shared,
    asked: Timestamp,
    answered: Timestamp,
}

impl DenyCacheUpdate<'_> {
    /// A time of Redis' clock, when it was asked for, and when Redis' clock showed it, by ours.
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
