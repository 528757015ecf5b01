//! Calls under way, and those who wait for the next one.
//!
//! No timers and no batch size: whoever comes while no call is under way is sent at
//! once, and whoever comes while [`CALLS`] are travels with all others who do. So
//! an idle store adds nothing to a round trip, and a busy one makes fewer and larger
//! calls the busier it gets. A crowd is shared out among the calls, and the calls are
//! answered one after the other, the next of the first being sent before the second is
//! told: or else all would be told while Redis rests, and ask while it works.
//!
//! A lane is what can travel together: one for a server, one for each partition of a
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

use crate::draft::{Decided, Draft};
use crate::encoding::{encode, quota_of};
use crate::failure::Failure;
use crate::replay::{Told, Witness, replay, take_back};
use crate::shared::{Counts, Shared};
use crate::standing::Standing;
use crate::way::{Answered, Sent, Way};

/// How many calls of one lane are under way at once: while Redis works on one, the next
/// is on its way.
const CALLS: usize = 2;

/// How often what landed too late is tried to be given back, and how far apart.
const TRIES: usize = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// The lanes of one thread, and its way to Redis.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    way: Way,
    lanes: Box<[Mutex<Lane>]>,
}

#[derive(Default)]
struct Lane {
    /// Drafts and when the first of each was asked.
    waiting: VecDeque<(Draft, Timestamp)>,
    /// Tasks that send.
    calls: usize,
    /// How many calls are under way, and how many requests in them.
    sent: usize,
    under_way: usize,
    /// How many there are at the same time, lately.
    crowd: usize,
    /// Whether those of a call are being told, and may ask again.
    telling: bool,
}

/// Fewer than these are not worth two calls.
const FEW: usize = 32;

impl Lane {
    /// Whether the last draft has its part of the crowd, and another call can be made.
    fn wants_another(&self) -> bool {
        let Some((draft, _)) = self.waiting.back() else { return true };
        let has_its_part = draft.asked >= self.crowd.div_ceil(CALLS).max(FEW);
        draft.is_full() || (has_its_part && self.sent + self.waiting.len() < CALLS)
    }

    /// A call with so many requests has ended; none: there was no call.
    fn ended(&mut self, requests: usize) {
        self.sent -= usize::from(requests > 0);
        self.under_way -= requests;
    }

    fn take(&mut self) -> Option<(Draft, Timestamp)> {
        let waiting: usize = self.waiting.iter().map(|(draft, _)| draft.asked).sum();
        // Slowly forgotten, at once believed.
        self.crowd = (self.under_way + waiting).max(self.crowd - self.crowd.div_ceil(8));
        let taken = self.waiting.pop_front()?;
        self.sent += 1;
        self.under_way += taken.0.asked;
        Some(taken)
    }
}

impl Hub {
    pub(crate) fn new(shared: &Arc<Shared>, lanes: usize) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            way: Way::new(shared),
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
        })
    }

    pub(crate) const fn way(&self) -> &Way {
        &self.way
    }

    /// The lane of a partition: where there is no cluster, all share one.
    pub(crate) fn lane_of(&self, partition: usize) -> usize {
        partition.min(self.lanes.len() - 1)
    }

    /// Asks for a decision.
    pub(crate) fn ask(
        self: &Arc<Self>,
        lane: usize,
        checks: &[Check<'_>],
    ) -> oneshot::Receiver<Result<Decided, Failure>> {
        let (waiting, answer) = oneshot::channel();
        let keys = || checks.iter().map(|check| (check.rule, check.key));
        self.add(lane, |draft| draft.clashes(keys()), |draft, prefix| draft.ask(prefix, checks, waiting));
        answer
    }

    /// Asks for a change.
    pub(crate) fn change(
        self: &Arc<Self>,
        lane: usize,
        key: (&Rule, &[u8]),
        adjustment: Adjustment,
    ) -> oneshot::Receiver<Result<Outcome, Failure>> {
        let (waiting, answer) = oneshot::channel();
        let add = |draft: &mut Draft, prefix: &str| draft.change(prefix, key, adjustment, waiting);
        self.add(lane, |draft| draft.clashes([key]), add);
        answer
    }

    fn add(
        self: &Arc<Self>,
        at: usize,
        clashes: impl FnOnce(&Draft) -> bool,
        add: impl FnOnce(&mut Draft, &str),
    ) {
        let mut lane = self.lane(at);
        if lane.wants_another() || lane.waiting.back().is_some_and(|(draft, _)| clashes(draft)) {
            lane.waiting.push_back((Draft::default(), self.shared.clock.now()));
        }
        if let Some((draft, _)) = lane.waiting.back_mut() {
            add(draft, &self.shared.settings.prefix);
        }
        if lane.calls < CALLS {
            lane.calls += 1;
            drop(lane);
            tokio::spawn(Arc::clone(self).pump(at));
        }
    }

    fn lane(&self, at: usize) -> MutexGuard<'_, Lane> {
        // What a thread that panicked left behind is asked or fails like any other.
        self.lanes[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits, until nothing does.
    async fn pump(self: Arc<Self>, at: usize) {
        let mut turn = OneOf { hub: &self, lane: at, under_way: 0, telling: false, ended: false };
        while let Some((draft, since)) = turn.next() {
            self.send(&mut turn, draft, since).await;
            // Whoever has been told may ask again, and travel at once.
            yield_now().await;
        }
    }

    async fn send(self: &Arc<Self>, turn: &mut OneOf<'_>, mut draft: Draft, since: Timestamp) {
        let lane = turn.lane;
        let counters = &self.shared.counters;
        let crowd = std::mem::take(&mut draft.crowd);
        Counts::add(&counters.calls, 1);
        let deadline = self.shared.settings.deadline;
        let left = deadline.saturating_sub(self.shared.clock.now().since(since).into());
        if left.is_zero() {
            Counts::add(&counters.failures, 1);
            return crowd.fail(&Failure::refused(format!("Redis was busy for {deadline:?}")));
        }
        let sent = Arc::default();
        let mut call = Box::pin(Arc::clone(self).call(lane, draft, Arc::clone(&sent)));
        match timeout(left, &mut call).await {
            Ok((draft, Ok((told, asked)))) => {
                Counts::add(&counters.decisions, draft.asked);
                turn.begin_telling().await;
                let memory = Memory { shared: &self.shared, asked, answered: self.shared.clock.now() };
                replay(&draft, crowd, told, &memory);
            }
            Ok((_, Err(failure))) => {
                Counts::add(&counters.failures, 1);
                crowd.fail(&failure);
            }
            Err(_late) => {
                Counts::add(&counters.failures, 1);
                let sent = sent.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(sent) = sent else {
                    // What was not sent has not been charged.
                    return crowd
                        .fail(&Failure::refused(format!("no connection to Redis within {deadline:?}")));
                };
                self.way.silent(&sent);
                crowd.fail_late(deadline);
                tokio::spawn(Arc::clone(self).take_back(lane, call));
            }
        }
    }

    /// Nobody waits for this call any more, and everybody has been told so. If it has
    /// landed after all, what it took is given back.
    async fn take_back(self: Arc<Self>, lane: usize, call: impl Future<Output = (Draft, Called)> + Send) {
        let (draft, Ok((told, _))) = call.await else { return };
        for (key, adjustment) in take_back(&draft, told) {
            // The connection was given up meanwhile, perhaps: what was not sent is tried again.
            for _ in 0..TRIES {
                let answer = self.change(lane, (&draft.rule_of(key), draft.bare(key)), adjustment);
                if !matches!(answer.await, Ok(Err(Failure::Refused(_)))) {
                    break;
                }
                sleep(BETWEEN_TRIES).await;
            }
            // If all that fails, time gives it back.
        }
    }

    /// Sends a draft and reads the answer. `sent` is to whom, once it is.
    async fn call(
        self: Arc<Self>,
        lane: usize,
        draft: Draft,
        sent: Arc<Mutex<Option<Sent>>>,
    ) -> (Draft, Called) {
        let called = self.try_call(lane, &draft, &sent).await;
        (draft, called)
    }

    async fn try_call(&self, lane: usize, draft: &Draft, sent: &Mutex<Option<Sent>>) -> Called {
        let mut believed = self.shared.redis_now();
        // A calendar's page can turn between two attempts; three times it does not.
        for _ in 0..3 {
            let (plain, request) = encode(draft, believed);
            let scripts = self.shared.scripts;
            let quotas = draft.rules.iter().map(|(_, quota)| quota);
            let script = if plain { scripts.plain() } else { scripts.general(quotas) };
            let asked = self.shared.clock.now();
            let by_hash = command("EVALSHA", &script.hash, draft, &request);
            let mut answer = self.way.query(lane, &by_hash, sent).await?;
            if matches!(answer, Answered::NoScript) {
                let by_text = command("EVAL", &script.text, draft, &request);
                answer = self.way.query(lane, &by_text, sent).await?;
            }
            let Answered::With(value) = answer else {
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
                return Ok((Told { numbers: rest, now }, asked));
            }
            believed = now;
        }
        Err(Failure::refused("Redis' clock turns faster than a calendar's pages"))
    }
}

/// What came of a call: what was told, and when it was asked by our clock.
type Called = Result<(Told, Timestamp), Failure>;

/// One of the calls that a lane may have under way.
struct OneOf<'h> {
    hub: &'h Hub,
    lane: usize,
    /// How many are in the call.
    under_way: usize,
    telling: bool,
    ended: bool,
}

/// For how long one call waits for another's turn to end, in turns of everybody else.
const POLITE: usize = 16;

impl OneOf<'_> {
    /// Waits until no other call of this lane is being told.
    async fn begin_telling(&mut self) {
        let mut waited = false;
        for _ in 0..POLITE {
            if self.may_tell() {
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

    fn may_tell(&mut self) -> bool {
        let mut lane = self.hub.lane(self.lane);
        self.telling = !lane.telling;
        lane.telling = true;
        self.telling
    }

    fn next(&mut self) -> Option<(Draft, Timestamp)> {
        let mut lane = self.hub.lane(self.lane);
        lane.ended(std::mem::take(&mut self.under_way));
        lane.telling &= !std::mem::take(&mut self.telling);
        let next = lane.take();
        if let Some((draft, _)) = &next {
            self.under_way = draft.asked;
        } else {
            // Under the same lock: whoever comes now must see that nobody sends.
            lane.calls -= 1;
            self.ended = true;
        }
        next
    }
}

/// A runtime that ends drops its tasks where they stand.
impl Drop for OneOf<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut lane = self.hub.lane(self.lane);
            lane.ended(self.under_way);
            lane.telling &= !self.telling;
            lane.calls -= 1;
        }
    }
}

fn command(word: &str, script: &str, draft: &Draft, request: &[u8]) -> Cmd {
    let names = draft.names();
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
struct Memory<'h> {
    shared: &'h Shared,
    asked: Timestamp,
    answered: Timestamp,
}

impl Memory<'_> {
    /// A time of Redis' clock, when it was asked for, and when Redis' clock showed it, by ours.
    fn when(&self, at: Timestamp) -> (Timestamp, Timestamp, Timestamp) {
        (at, self.asked, self.shared.executed_at(at, self.asked, self.answered))
    }
}

impl Witness for Memory<'_> {
    fn refused(
        &self,
        draft: &Draft,
        key: usize,
        standing: &Standing,
        wait: Option<(u64, i64)>,
        at: Timestamp,
    ) {
        let rule = draft.rules[draft.keys[key].rule].0;
        let (quota, when) = (quota_of(draft, key), self.when(at));
        self.shared.refusals.remember((rule, quota), draft.bare(key), standing, wait, when);
    }

    fn admitted(&self, draft: &Draft, key: usize, standing: &Standing, at: Timestamp) {
        let known = &draft.keys[key];
        let (rule, when) = (draft.rules[known.rule].0, self.when(at));
        self.shared.refusals.renew(known.hash, (rule, draft.bare(key)), standing, when);
    }

    fn changed(&self, draft: &Draft, key: usize) {
        let rule = draft.rules[draft.keys[key].rule].0;
        self.shared.refusals.forget(rule, draft.bare(key), self.answered);
    }
}
