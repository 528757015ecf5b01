//! Decides which calls are sent, and which wait for which bucket.
//!
//! A call needs all buckets of its route. If one of them is not ready, the call waits in the queue of the bucket that
//! takes longest. The first waiting call of a queue has its timer (the leader); a response, or the timer, pumps the
//! queue: calls that are ready are granted in order, and calls that need another bucket move there.
//!
//! Nothing here reads a clock or waits: times are arguments, and wakers are collected for the caller.

mod answer;

use std::collections::HashMap;
use std::hash::RandomState;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::{Span, Timestamp};

use crate::bucket::{Bucket, Ready, Ticket};
use crate::call::{CallKey, CallOptions};
use crate::error::{GaveUp, GaveUpCause};
use crate::queue::Place;
use crate::registry::{BucketView, Common, Registry};
use crate::settings::Settings;

pub(crate) use answer::{Attempt, NextStep};

/// The shortest time for which a timer is set.
const MIN_SLEEP: Span = Span::from_micros(200);

/// The state that all calls of a client share.
#[derive(Debug)]
pub(crate) struct Scheduler {
    settings: Settings,
    registry: Registry,
    waiters: HashMap<u64, Waiter>,
    next_waiter: u64,
    /// Wakers of calls whose state has changed, for the caller to wake without the lock.
    pub(crate) wakes: Vec<Waker>,
    pub(crate) counts: Counts,
}

/// The events of a client since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Attempts that were sent.
    pub sent: u64,
    /// Attempts that a limit of the server refused.
    pub refused: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Retries.
    pub retries: u64,
    /// Retries that the retry budget did not permit.
    pub over_budget: u64,
    /// Calls that waited for a bucket.
    pub waited: u64,
    /// Calls that were given up before they were sent.
    pub gave_up: u64,
}

/// A call that may be sent.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) key: CallKey,
    tickets: SmallVec<[(u64, Ticket); 2]>,
    sent_at: Timestamp,
}

/// A call that wants to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRequest {
    pub(crate) key: CallKey,
    pub(crate) options: CallOptions,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) is_retry: bool,
}

#[derive(Debug)]
struct Waiter {
    request: CallRequest,
    /// The bucket whose queue the call is in.
    bucket: u64,
    place: Place,
    waker: Option<Waker>,
    result: Option<Result<Grant, GaveUp>>,
}

/// The answer to a call that wants to be sent.
#[derive(Debug)]
pub(crate) enum Start {
    Granted(Grant),
    /// The call waits under this number.
    Waiting(u64),
}

/// The state of a waiting call.
#[derive(Debug)]
pub(crate) enum WaitState {
    Done(Result<Grant, GaveUp>),
    /// The call is asked again when it is woken, and at this time.
    Pending(Timestamp),
}

impl Scheduler {
    pub(crate) fn new(settings: Settings, hashes: RandomState) -> Self {
        let registry = Registry::new(hashes, settings.max_buckets, settings.retry_budget);
        let (waiters, wakes, counts) = (HashMap::new(), Vec::new(), Counts::default());
        Self { settings, registry, waiters, next_waiter: 0, wakes, counts }
    }

    /// Grants a call, queues it, or gives it up.
    pub(crate) fn start(
        &mut self,
        request: CallRequest,
        host: impl FnOnce() -> String,
        now: Timestamp,
    ) -> Result<Start, GaveUp> {
        let breaker = self.settings.breaker;
        let scope = self.registry.scope(request.key.scope, host);
        if !request.is_retry {
            scope.budget.deposit();
        }
        if let Err(probe) = scope.breaker.permit(&breaker, now) {
            let probe_in = probe.since(now).into();
            return Err(self.give_up(&request, GaveUpCause::BreakerOpen { probe_in }, now));
        }
        let Err((bucket, ready)) = self.check(&request, None, now) else {
            return Ok(Start::Granted(self.grant(&request, now)));
        };
        if self.waiters.len() >= self.settings.max_waiting {
            return Err(self.give_up(&request, GaveUpCause::QueueFull, now));
        }
        let id = self.next_waiter;
        self.next_waiter += 1;
        let place = self.enqueue(id, &request, bucket, now);
        if let Some(cause) = self.too_late(&request, bucket, &place, ready, now) {
            self.registry.bucket(bucket, now).queue.remove(&place);
            return Err(self.give_up(&request, cause, now));
        }
        self.waiters.insert(id, Waiter { request, bucket, place, waker: None, result: None });
        self.counts.waited += 1;
        self.pump(bucket, Some(id), now);
        Ok(Start::Waiting(id))
    }

    /// Returns the state of a waiting call, and remembers its waker.
    pub(crate) fn poll(&mut self, id: u64, waker: &Waker, now: Timestamp) -> Option<WaitState> {
        let waiter = self.waiters.get_mut(&id)?;
        if waiter.result.is_none() {
            waiter.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
            let bucket = waiter.bucket;
            if self.registry.known_bucket(bucket).is_none_or(|it| it.leader == Some(id)) {
                self.pump(bucket, Some(id), now);
            }
        }
        let waiter = self.waiters.get_mut(&id)?;
        if let Some(result) = waiter.result.take() {
            self.waiters.remove(&id);
            return Some(WaitState::Done(result));
        }
        let (request, bucket) = (waiter.request, waiter.bucket);
        if now >= request.deadline {
            let cause = self.bucket_cause(&request, bucket, now, now);
            self.leave(id, now);
            return Some(WaitState::Done(Err(self.give_up(&request, cause, now))));
        }
        let entry = self.registry.bucket(bucket, now);
        let wake_at = if entry.leader == Some(id) { entry.wake_at } else { request.deadline };
        Some(WaitState::Pending(wake_at.min(request.deadline).max(now + MIN_SLEEP)))
    }

    /// Removes a call that does not wait any more.
    pub(crate) fn leave(&mut self, id: u64, now: Timestamp) {
        let Some(waiter) = self.waiters.remove(&id) else { return };
        match waiter.result {
            Some(Ok(grant)) => self.cancel(&grant, now),
            Some(Err(_)) => {}
            None => {
                let entry = self.registry.bucket(waiter.bucket, now);
                entry.queue.remove(&waiter.place);
                if entry.leader == Some(id) {
                    entry.leader = None;
                    self.pump(waiter.bucket, None, now);
                }
            }
        }
    }

    /// Ends a call that was granted and got no response.
    pub(crate) fn cancel(&mut self, grant: &Grant, now: Timestamp) {
        self.end(grant, Bucket::finish, now);
    }

    /// Takes back a grant: nothing was sent.
    pub(crate) fn withdraw(&mut self, grant: &Grant, now: Timestamp) {
        self.counts.sent = self.counts.sent.saturating_sub(1);
        self.end(grant, Bucket::withdraw, now);
    }

    fn end(&mut self, grant: &Grant, end: fn(&mut Bucket, &Ticket), now: Timestamp) {
        if let Some(route) = self.registry.known_route(grant.key.route) {
            route.calls = route.calls.saturating_sub(1);
        }
        for (key, ticket) in &grant.tickets {
            if let Some(entry) = self.registry.known_bucket(*key) {
                end(&mut entry.bucket, ticket);
            }
        }
        self.pump_all(grant.tickets.iter().map(|(key, _)| *key), now);
    }

    pub(crate) fn is_new_scope(&mut self, scope: u64) -> bool {
        self.registry.known_scope(scope).is_none()
    }

    pub(crate) fn buckets(&self) -> usize {
        self.registry.len()
    }

    /// Returns the buckets with reported numbers.
    pub(crate) fn views(&mut self, now: Timestamp) -> Vec<BucketView> {
        self.registry.views(now)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the keys of the buckets that a call needs.
    fn keys(&mut self, key: &CallKey) -> SmallVec<[u64; 4]> {
        let refs = self.registry.route(key.route).buckets.clone();
        let (is_global, common) = match self.registry.known_scope(key.scope) {
            Some(scope) => (
                scope.is_global,
                match &scope.common {
                    Common::One(common) if refs.is_empty() => Some(common.clone()),
                    _ => None,
                },
            ),
            None => (false, None),
        };
        let refs = common.unwrap_or(refs);
        let mut keys: SmallVec<[u64; 4]> =
            refs.iter().map(|it| self.registry.resolve(*it, key.resource)).collect();
        if keys.is_empty() {
            keys.push(key.route);
        }
        if is_global {
            keys.push(key.scope);
        }
        keys
    }

    /// Returns whether a call can be sent now, or else the bucket that it has to wait for. A call does not overtake
    /// those that wait, except in the queue `at` whose turn it is.
    fn check(&mut self, request: &CallRequest, at: Option<u64>, now: Timestamp) -> Result<(), (u64, Ready)> {
        let mut latest: Option<(Timestamp, u64, Ready)> = None;
        for key in self.keys(&request.key) {
            let entry = self.registry.bucket(key, now);
            let ready = match entry.bucket.ready(now, request.options.cost) {
                Ready::Now if at.is_none() && !entry.queue.is_empty() => Ready::AfterAnswer(now),
                ready => ready,
            };
            let time = match ready {
                Ready::Now => continue,
                Ready::At(time) | Ready::AfterAnswer(time) => time,
            };
            if latest.is_none_or(|(known, ..)| time > known) {
                latest = Some((time, key, ready));
            }
        }
        latest.map_or(Ok(()), |(_, key, ready)| Err((key, ready)))
    }

    fn grant(&mut self, request: &CallRequest, now: Timestamp) -> Grant {
        let mut tickets = SmallVec::new();
        for key in self.keys(&request.key) {
            tickets.push((key, self.registry.bucket(key, now).bucket.take(now, request.options.cost)));
        }
        self.registry.route(request.key.route).calls += 1;
        self.counts.sent += 1;
        Grant { key: request.key, tickets, sent_at: now }
    }

    fn enqueue(&mut self, id: u64, request: &CallRequest, bucket: u64, now: Timestamp) -> Place {
        let queue = &mut self.registry.bucket(bucket, now).queue;
        let CallOptions { priority, flow, .. } = request.options;
        if request.is_retry { queue.push_again(id, priority, flow) } else { queue.push(id, priority, flow) }
    }

    /// Returns the cause to give up a call that cannot be sent before its deadline.
    fn too_late(
        &mut self,
        request: &CallRequest,
        bucket: u64,
        place: &Place,
        ready: Ready,
        now: Timestamp,
    ) -> Option<GaveUpCause> {
        let Ready::At(time) = ready else { return None };
        let entry = self.registry.bucket(bucket, now);
        let rate = entry.bucket.rate_per_second().filter(|rate| *rate > 0.0);
        #[allow(clippy::cast_precision_loss)] // an estimate
        let ahead = rate.map_or(0.0, |rate| entry.queue.ahead(place) as f64 / rate);
        let limit = entry.bucket.limit().unwrap_or(0.0) / rate.unwrap_or(1.0);
        // A full bucket may be sent at once.
        let queued = Duration::try_from_secs_f64((ahead - limit).max(0.0)).unwrap_or(Duration::MAX);
        let ready_at = time + queued.into();
        (ready_at > request.deadline).then(|| self.bucket_cause(request, bucket, ready_at, now))
    }

    fn bucket_cause(
        &mut self,
        request: &CallRequest,
        bucket: u64,
        ready_at: Timestamp,
        now: Timestamp,
    ) -> GaveUpCause {
        GaveUpCause::Bucket {
            name: self.registry.bucket(bucket, now).name.clone(),
            ready_in: ready_at.since(now).into(),
            time_left: request.deadline.since(now).into(),
        }
    }

    fn give_up(&mut self, request: &CallRequest, cause: GaveUpCause, now: Timestamp) -> GaveUp {
        self.counts.gave_up += 1;
        let host = self.registry.known_scope(request.key.scope).map(|scope| scope.host.clone());
        GaveUp { host: host.unwrap_or_default(), waited: now.since(request.since).into(), cause }
    }

    fn pump_all(&mut self, keys: impl Iterator<Item = u64>, now: Timestamp) {
        for key in keys {
            if self.registry.known_bucket(key).is_some_and(|it| !it.queue.is_empty()) {
                self.pump(key, None, now);
            }
        }
    }

    /// Grants the calls of a queue that are ready, and sets the timer for the others. The call `polling` is not woken.
    fn pump(&mut self, key: u64, polling: Option<u64>, now: Timestamp) {
        let wake_at = loop {
            let Some(id) = self.registry.bucket(key, now).queue.peek() else { break None };
            let Some(request) = self.waiters.get(&id).map(|waiter| waiter.request) else {
                self.registry.bucket(key, now).queue.pop();
                continue;
            };
            let (other, ready) = match self.check(&request, Some(key), now) {
                Ok(()) => {
                    self.registry.bucket(key, now).queue.pop();
                    let grant = self.grant(&request, now);
                    self.settle(id, Ok(grant), polling);
                    continue;
                }
                Err(blocked) => blocked,
            };
            let (Ready::At(time) | Ready::AfterAnswer(time)) = ready else { break None };
            if matches!(ready, Ready::At(time) if time > request.deadline) {
                self.registry.bucket(key, now).queue.pop();
                let cause = self.bucket_cause(&request, other, time, now);
                let gave_up = self.give_up(&request, cause, now);
                self.settle(id, Err(gave_up), polling);
                continue;
            }
            if other == key {
                break Some(time);
            }
            self.registry.bucket(key, now).queue.pop();
            let place = self.enqueue(id, &request, other, now);
            if let Some(waiter) = self.waiters.get_mut(&id) {
                (waiter.bucket, waiter.place) = (other, place);
            }
            self.lead(other, time, polling, now);
        };
        if let Some(time) = wake_at {
            self.lead(key, time, polling, now);
        } else {
            let entry = self.registry.bucket(key, now);
            (entry.leader, entry.wake_at) = (None, Timestamp::from_micros(u64::MAX));
        }
    }

    /// Gives the timer of a queue to a waiting call, and wakes it if its timer has to change.
    fn lead(&mut self, key: u64, time: Timestamp, polling: Option<u64>, now: Timestamp) {
        let waiters = &self.waiters;
        let entry = self.registry.bucket(key, now);
        let is_here = |id: &u64| waiters.get(id).is_some_and(|it| it.bucket == key && it.result.is_none());
        let leader = entry.leader.filter(is_here);
        let is_earlier = time < entry.wake_at;
        entry.wake_at = time;
        if leader.is_some() && !is_earlier {
            return;
        }
        entry.leader = leader.or_else(|| entry.queue.peek());
        let Some(id) = entry.leader.filter(|id| polling != Some(*id)) else { return };
        self.wakes.extend(self.waiters.get_mut(&id).and_then(|waiter| waiter.waker.take()));
    }

    fn settle(&mut self, id: u64, result: Result<Grant, GaveUp>, polling: Option<u64>) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.result = Some(result);
            if polling != Some(id) {
                self.wakes.extend(waiter.waker.take());
            }
        }
    }
}
