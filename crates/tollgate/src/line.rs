//! The lines of requests that wait for a slot on this node: one for each key of a limit whose `slots`
//! have a `queue`.
//!
//! Nothing is charged and no slot is held while a request waits. The first request of a line asks the
//! store, and no other request of the line does: on a store that nodes share, a node makes one attempt
//! at a time for each key, regardless of the number of requests that wait. An attempt is due when a
//! slot is released on this node, when an attempt was successful (there may be more slots), when the
//! first request leaves, and from time to time (`limiter::pending::in_line`).
//!
//! The order is in `order`. Deciding and timers are in `limiter::pending::in_line`. Holding requests in a server, with a
//! bound on their number over all keys, is in `tollgate_http`.
//!
//! Invariant: while a line has requests and a slot may be free, either an attempt is under way or the
//! first request of the line has been woken. Tested by `line::model`, with random arrivals, releases,
//! departures and timeouts.

#[cfg(test)]
mod model;
mod order;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tollgate_core::{RuleId, Timestamp};
use tollgate_policy::{Key, Policy};

use self::order::Line;
pub(crate) use self::order::{LineFull, Ticket};

/// The slots that the requests of a line wait for: the rule of the limit, and the key.
pub(crate) type LineKey = (RuleId, Key);

/// All lines of a limiter, also of its later policies.
#[derive(Default)]
pub(crate) struct Lines {
    state: Mutex<LineMap>,
    /// The number of requests that wait, so that a request of a key without a line takes no lock.
    count: AtomicUsize,
    next_number: AtomicU64,
}

#[derive(Default)]
struct LineMap {
    by_key: HashMap<LineKey, Line>,
    /// The numbers of requests whose limit was removed, until they notice it.
    freed: HashSet<u64>,
    /// The policy that was put in force last, and its version. `None`: the first one.
    in_force: Option<(u64, Arc<Policy>)>,
}

/// The state of a request in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The request asks the store now, and then reports the result.
    Attempt,
    /// The request is the first of its line, and waits for a slot.
    First,
    /// Other requests are before it, or one of them asks the store.
    Behind,
    /// A more important request has taken its place.
    Displaced,
    /// The limit does not exist any more.
    Freed,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, LineMap> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns the number of requests that wait for the slots of each rule, over all keys.
    pub(crate) fn by_rule(&self) -> HashMap<RuleId, usize> {
        let mut waiting = HashMap::new();
        for ((rule, _), line) in &self.lock().by_key {
            *waiting.entry(*rule).or_default() += line.len();
        }
        waiting
    }

    /// Returns a number for a request, larger than those before.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether a newcomer of this rank has to wait behind others.
    #[inline]
    pub(crate) fn is_behind(&self, key: impl FnOnce() -> LineKey, rank: u8) -> bool {
        self.len() > 0 && self.lock().by_key.get(&key()).is_some_and(|line| line.is_behind(rank))
    }

    /// Takes a place in a line of at most `length` requests.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: LineKey,
        ticket: Ticket,
        length: usize,
    ) -> Result<LinePlace, LineFull> {
        let mut map = self.lock();
        let line = map.by_key.entry(key.clone()).or_default();
        let displaced = line.join(ticket, length)?;
        if displaced.is_none() {
            // Before the request tries to acquire: a slot that is released later finds the request.
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        drop(map);
        displaced.and_then(|it| it.waker).into_iter().for_each(Waker::wake);
        Ok(LinePlace { lines: Arc::clone(self), key, ticket, served: None })
    }

    /// Makes an attempt due, after a slot was released.
    #[inline]
    pub(crate) fn released(&self, rule: RuleId, key: &Key) {
        if self.len() > 0 {
            self.change(&(rule, key.clone()), Line::signal);
        }
    }

    /// Returns the number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Returns the policy in force, if it has replaced the policy of this version.
    pub(crate) fn newer_policy(&self, version: u64) -> Option<Arc<Policy>> {
        let map = self.lock();
        let newer = map.in_force.as_ref().filter(|(in_force, _)| *in_force > version);
        newer.map(|(_, policy)| Arc::clone(policy))
    }

    /// Puts a policy in force: frees the requests that wait for slots of limits that it does not keep,
    /// and makes an attempt of each other line due, because there may be more slots.
    pub(crate) fn follow(&self, version: u64, policy: &Arc<Policy>, is_kept: impl Fn(RuleId) -> bool) {
        let mut wakers = Vec::new();
        let mut map = self.lock();
        if map.in_force.as_ref().is_some_and(|(in_force, _)| *in_force > version) {
            return;
        }
        let _before = map.in_force.replace((version, Arc::clone(policy)));
        let gone: Vec<LineKey> = map.by_key.keys().filter(|(rule, _)| !is_kept(*rule)).cloned().collect();
        for line in gone {
            let Some(line) = map.by_key.remove(&line) else { continue };
            for (number, waker) in line.into_waiters() {
                map.freed.insert(number);
                wakers.extend(waker);
            }
        }
        wakers.extend(map.by_key.values_mut().filter_map(Line::signal));
        drop(map);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the time after which a newcomer may find a place or a slot, from the pace of the line.
    pub(crate) fn expected_wait(&self, key: &LineKey) -> Option<Duration> {
        self.lock().by_key.get(key)?.expected_wait()
    }

    /// Changes a line and wakes the request that the change concerns.
    fn change(&self, key: &LineKey, change: impl FnOnce(&mut Line) -> Option<Waker>) {
        let mut map = self.lock();
        let waker = map.by_key.get_mut(key).and_then(change);
        drop(map);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// The place of a request in a line. Dropping it leaves the line, and passes its turn on.
#[derive(Debug)]
pub(crate) struct LinePlace {
    lines: Arc<Lines>,
    key: LineKey,
    ticket: Ticket,
    /// The time at which the request was admitted.
    served: Option<Timestamp>,
}

impl LinePlace {
    /// Returns the state of the request, and registers its waker.
    pub(crate) fn poll(&self, waker: &Waker) -> Turn {
        let mut map = self.lines.lock();
        match map.by_key.get_mut(&self.key).and_then(|line| line.poll(&self.ticket, waker)) {
            Some(turn) => turn,
            None if map.freed.contains(&self.ticket.number) => Turn::Freed,
            None => Turn::Displaced,
        }
    }

    /// Returns whether the request waits in this line.
    pub(crate) fn is_for(&self, key: &LineKey) -> bool {
        self.key == *key
    }

    /// Ends an attempt that found no slot. The request keeps its place.
    pub(crate) fn refused(&self) {
        self.lines.change(&self.key, |line| line.refused(&self.ticket));
    }

    /// Makes the next attempt due.
    pub(crate) fn signal(&self) {
        self.lines.change(&self.key, Line::signal);
    }

    /// Leaves the line with a slot.
    pub(crate) fn served(mut self, at: Timestamp) {
        self.served = Some(at);
    }
}

impl Drop for LinePlace {
    fn drop(&mut self) {
        let mut map = self.lines.lock();
        let mut waker = None;
        let mut is_known = map.freed.remove(&self.ticket.number);
        if let Some(line) = map.by_key.get_mut(&self.key) {
            let left = line.leave(&self.ticket, self.served);
            is_known |= left.is_some();
            waker = left.and_then(|it| it.next);
            if line.is_empty() {
                map.by_key.remove(&self.key);
            }
        }
        // A request that was displaced has passed its place in the count on.
        if is_known {
            self.lines.count.fetch_sub(1, Ordering::SeqCst);
        }
        drop(map);
        waker.into_iter().for_each(Waker::wake);
    }
}
