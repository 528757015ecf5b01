//! Refusals that need no second question (the deny cache).
//!
//! A key that has been refused is refused until time has given something back, and
//! nobody but time gives back by itself. So how the keys of a refused request stood
//! is remembered, and the same arithmetic decides the next request by it, at a time
//! that is never before Redis' own: what is refused here, Redis would refuse too.
//!
//! What this process charges to such a key is seen here as well, so that the next refusal
//! tells how the key stands since. What other nodes charge is noticed when it is asked for
//! anew. A key that is not remembered costs a look at four numbers, and nothing at all while
//! nobody has been refused.
//!
//! Some things can make that wrong: somebody gives back (a grant, a reset, a refund, a
//! settlement; on a cluster, a request that reserved in one partition and was refused in
//! another), or Redis' clock is set forward. Of a sliding window in parts, what another
//! node charges may merge two parts, of which some units then leave sooner. What this process itself
//! gives back is forgotten here at once; for all else the settings bound for how long
//! anything is remembered (`deny_cache`, a second), and that is how late another
//! node can be.
//!
//! Slots come back at any moment and are not remembered. Memory is fixed: four places
//! for each hash, and who comes later takes the place of somebody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Amount, Quota, RuleId, Span, Timestamp, Verdict};
use tollgate_store::{Check, Outcomes};

use crate::batch::hash;
use crate::key_state::{Availability, KeyState};

/// How many keys are remembered at most.
const CAPACITY: usize = 1 << 14;

/// How many places a key may be in.
const WAYS: usize = 4;

/// What is remembered of refusals.
pub(crate) struct DenyCache {
    /// Whose each place is, so that strangers need not take its lock. Zero: nobody's.
    hashes: Box<[AtomicU64]>,
    places: Box<[Mutex<Option<DenyEntry>>]>,
    /// When somebody last changed a key of each set, by our clock: what was asked before
    /// that may have been answered before that, and is not believed.
    changed: Box<[AtomicU64]>,
    /// For how long.
    keep: Span,
    /// Whether anything was ever remembered: while nobody is refused, nobody looks.
    used: AtomicBool,
}

struct DenyEntry {
    rule: RuleId,
    key: Box<[u8]>,
    key_state: KeyState,
    wait: Option<(u64, i64)>,
    /// The limit that `wait` was told for: rules of one id can have different ones.
    limit: u64,
    /// When, by Redis' clock.
    at: Timestamp,
    /// When it was asked, and when Redis has most likely decided it, both by our clock.
    asked: Timestamp,
    executed: Timestamp,
}

impl DenyEntry {
    fn is(&self, rule: RuleId, key: &[u8]) -> bool {
        self.rule == rule && *self.key == *key
    }

    /// What Redis' clock shows now at most, and most likely. Clocks do not run alike to the
    /// last part in a thousand.
    fn between(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let (longest, shortest) = (now.since(self.asked).as_micros(), now.since(self.executed).as_micros());
        let latest = self.at + Span::from_micros(longest + longest / 1_000 + 1);
        (latest, self.at + Span::from_micros(shortest - shortest / 1_000))
    }
}

impl DenyCache {
    pub(crate) fn new(keep: Duration) -> Self {
        let places = if keep.is_zero() { 0 } else { CAPACITY };
        Self {
            hashes: (0..places).map(|_| AtomicU64::new(0)).collect(),
            places: (0..places).map(|_| Mutex::default()).collect(),
            changed: (0..places / WAYS).map(|_| AtomicU64::new(0)).collect(),
            keep: Span::from(keep),
            used: AtomicBool::new(false),
        }
    }

    /// Where a key may be.
    fn ways(&self, hash: u64) -> std::ops::Range<usize> {
        let set = usize::try_from(hash % (CAPACITY / WAYS) as u64).unwrap_or(0);
        if self.places.is_empty() { 0..0 } else { WAYS * set..WAYS * (set + 1) }
    }

    /// Where a key is.
    fn find(&self, hash: u64) -> Option<usize> {
        self.ways(hash).find(|&at| self.hashes[at].load(Ordering::Acquire) == hash)
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Option<DenyEntry>> {
        self.places[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers how a key of a refused request stood.
    pub(crate) fn remember(
        &self,
        rule: (RuleId, &Quota),
        key: &[u8],
        key_state: &KeyState,
        wait: Option<(u64, i64)>,
        (reply, asked, executed): (Timestamp, Timestamp, Timestamp),
    ) {
        if matches!(rule.1, Quota::Concurrency(_)) {
            return;
        }
        let hash = hash(rule.0, key).max(1);
        let mut ways = self.ways(hash);
        // Its own place, a free one, or somebody's.
        let free = || ways.clone().find(|&at| self.hashes[at].load(Ordering::Relaxed) == 0);
        let chance = usize::try_from(asked.as_micros() % WAYS as u64).unwrap_or(0);
        let Some(at) = self.find(hash).or_else(free).or_else(|| ways.nth(chance)) else { return };
        let seen = DenyEntry {
            rule: rule.0,
            key: key.into(),
            key_state: key_state.clone(),
            wait,
            limit: rule.1.capacity(),
            at: reply,
            asked,
            executed,
        };
        let mut place = self.lock(at);
        // Under the lock: whoever changes the key now takes it after us.
        if asked.as_micros() <= self.changed[at / WAYS].load(Ordering::Acquire) {
            return;
        }
        let newer =
            |it: &DenyEntry| it.is(rule.0, key) && it.at > reply && executed.since(it.asked) <= self.keep;
        if place.as_ref().is_some_and(newer) {
            return;
        }
        *place = Some(seen);
        self.hashes[at].store(hash, Ordering::Release);
        self.used.store(true, Ordering::Relaxed);
    }

    /// A request was admitted, and this is how one of its keys stands since. `hash`: the key's.
    pub(crate) fn renew(
        &self,
        hash: u64,
        (rule, key): (RuleId, &[u8]),
        key_state: &KeyState,
        (reply, asked, executed): (Timestamp, Timestamp, Timestamp),
    ) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let Some(at) = self.find(hash.max(1)) else { return };
        let mut place = self.lock(at);
        // Calls may be told in another order than Redis has made them.
        if let Some(seen) = place.as_mut().filter(|it| it.is(rule, key) && it.at <= reply) {
            let key_state = key_state.clone();
            *seen = DenyEntry {
                rule,
                key: std::mem::take(&mut seen.key),
                key_state,
                wait: None,
                limit: 0,
                at: reply,
                asked,
                executed,
            };
        }
    }

    /// Somebody has changed this key, or is about to.
    pub(crate) fn forget(&self, rule: RuleId, key: &[u8], now: Timestamp) {
        let hash = hash(rule, key).max(1);
        let ways = self.ways(hash);
        let Some(changed) = self.changed.get(ways.start / WAYS) else { return };
        changed.fetch_max(now.as_micros(), Ordering::AcqRel);
        for at in ways {
            let mut place = self.lock(at);
            if self.hashes[at].load(Ordering::Acquire) == hash {
                *place = None;
                self.hashes[at].store(0, Ordering::Release);
            }
        }
    }

    /// Refuses a request by what is remembered: all of its keys must be known, and one
    /// that binds must have no room. Else says nothing.
    pub(crate) fn recall(
        &self,
        checks: &[Check<'_>],
        now: Timestamp,
        outcomes: &mut Outcomes,
    ) -> Option<Timestamp> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        let mut reply: SmallVec<[_; 4]> = SmallVec::new();
        let mut refuses = false;
        // The time of the answer. All outcomes are worded for it, so that adding a wait to it
        // gives the same date as Redis would.
        let mut at_least = None;
        for (at, check) in checks.iter().enumerate() {
            let same = |other: &Check<'_>| other.rule.id == check.rule.id && other.key == check.key;
            let units = match check.amount {
                Amount::Exactly(units) if !check.count_denied && !checks[..at].iter().any(same) => units,
                _ => return None,
            };
            let guard = self.lock(self.find(hash(check.rule.id, check.key).max(1))?);
            let seen = guard.as_ref().filter(|it| it.is(check.rule.id, check.key))?;
            if now.since(seen.asked) > self.keep {
                return None;
            }
            // Whether it is refused is for the latest time to say, so that nobody is refused
            // too long; how long to wait for the likely one, so that the delay of the link
            // is no part of it.
            let (late, early) = seen.between(now);
            let limit = check.rule.quota.capacity();
            let free = match seen.wait {
                Some((asked, free)) if units == asked && seen.limit == limit && is_before(late, free) => free,
                _ if matches!(seen.key_state, KeyState::Summed(_)) && units > 0 => return None,
                _ => 0,
            };
            let free = Availability { at: free, ..Availability::default() };
            let acquire = |at| seen.key_state.clone().acquire(&check.rule.quota, check.amount, free, at);
            let is_admitted = acquire(late).is_admitted();
            refuses |= check.binding && !is_admitted;
            at_least = Some(at_least.map_or(early, |so_far: Timestamp| so_far.min(early)));
            reply.push((check, seen.key_state.clone(), free, is_admitted));
        }
        let at = at_least.filter(|_| refuses)?;
        outcomes.extend(reply.into_iter().map(|(check, key_state, free, is_admitted)| {
            let quota = &check.rule.quota;
            let verdict = if is_admitted {
                Verdict::admitted(0)
            } else {
                key_state.clone().acquire(quota, check.amount, free, at)
            };
            key_state.describe(quota, verdict, at)
        }));
        Some(at)
    }
}

fn is_before(at: Timestamp, free: i64) -> bool {
    i64::try_from(at.as_micros()).is_ok_and(|at| at < free)
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Bucket, FixedWindow, Rate, Rule};

    use super::*;

    const ASKED: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn a_remembered_refusal_tells_the_date_that_redis_would() {
        let rate = Rate::new(5, Span::from_secs(40));
        let quotas: [(&str, Quota); 2] = [
            ("bucket", Bucket::new(rate).unwrap().into()),
            ("window", FixedWindow::anchored(rate).unwrap().into()),
        ];
        for (name, quota) in quotas {
            // By Redis' clock, which is an hour ahead; the answer took 900 ms to come back.
            let reply = ASKED + Span::from_hours(1);
            let (executed, answered) = (ASKED + Span::from_millis(1), ASKED + Span::from_millis(901));
            let mut state = quota.fresh();
            quota.step(&mut state, Amount::Exactly(5), reply);
            let free = reply + quota.step(&mut state, Amount::Exactly(1), reply).retry_after().unwrap();
            let rule = Rule::new(name, quota);
            let deny_cache = DenyCache::new(Duration::from_secs(2));
            let key_state = KeyState::Whole(state);
            let when = (reply, ASKED, executed);
            deny_cache.remember((rule.id, &rule.quota), b"key", &key_state, None, when);
            let mut outcomes = Outcomes::new();
            let at = deny_cache.recall(&[Check::new(&rule, b"key", 1)], answered, &mut outcomes).unwrap();
            let wait = outcomes[0].retry_after().unwrap();
            assert_eq!(at + wait, free, "{name}: the date");
            // An hour and 900 ms after it was executed, by our clock.
            let truth = free.since(reply + Span::from_millis(900));
            assert!(wait >= truth && wait <= truth + Span::from_millis(1), "{name}: {wait}, not {truth}");
        }
    }
}
