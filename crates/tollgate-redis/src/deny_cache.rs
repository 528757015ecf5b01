//! Answers repeated refusals without a call to Redis (the deny cache).
//!
//! A refused key stays refused until time restores units. The cache stores the states of the keys
//! of a refused request and decides the next request by the same arithmetic, at a time that is
//! never earlier than the clock of Redis: Redis would refuse the same requests.
//!
//! Charges of this process to a cached key update the entry, so that the next refusal reports the
//! current state. Charges of other nodes are noticed at the next call to Redis. The lookup of an
//! uncached key reads four numbers, and nothing while the cache is empty.
//!
//! A cached refusal can be wrong if units are restored in another way (a grant, a reset, a refund,
//! a settlement; on a cluster, a request that reserved in one partition and was refused in
//! another), or if the clock of Redis is set forward. In a sliding window in parts, a charge of
//! another node may merge two parts, after which some units expire sooner. Changes by this process
//! invalidate the entry immediately. For all other cases the setting `deny_cache` (one second)
//! bounds the lifetime of entries, which is the maximum delay after which a change on another node
//! is noticed.
//!
//! Slots can be released at any moment and are not cached. Memory is fixed: the cache is four-way
//! set-associative, and new entries evict old ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Amount, Quota, RuleId, Span, Timestamp, Verdict};
use tollgate_store::{Check, Outcomes};

use crate::batch::hash;
use crate::key_state::{Availability, KeyState};
use crate::redis_clock::CallTimes;
use crate::reply::UnitsWait;

/// The maximum number of cached keys.
const MAX_ENTRIES: usize = 1 << 14;

/// The number of slots of the table that a key may occupy.
const WAYS: usize = 4;

/// A cache of refusals.
pub(crate) struct DenyCache {
    /// The key hash of each slot, so that other keys do not take its lock. Zero: empty.
    hashes: Box<[AtomicU64]>,
    places: Box<[Mutex<Option<DenyEntry>>]>,
    /// When a key of each set was last changed, by the local clock. A reply to a call that was sent
    /// before may be outdated and is not cached.
    changed: Box<[AtomicU64]>,
    /// The lifetime of an entry.
    keep: Span,
    /// Whether the cache ever had an entry: without refusals there are no lookups.
    used: AtomicBool,
}

struct DenyEntry {
    rule: RuleId,
    key: Box<[u8]>,
    key_state: KeyState,
    wait: Option<UnitsWait>,
    /// The limit that `wait` refers to: rules with the same ID can have different limits.
    limit: u64,
    /// The times of the call that returned the state.
    times: CallTimes,
}

impl DenyEntry {
    fn is(&self, rule: RuleId, key: &[u8]) -> bool {
        self.rule == rule && *self.key == *key
    }

    /// The latest and the most likely time that the clock of Redis shows now. The latest time
    /// allows for a drift of one in a thousand.
    fn between(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let (longest, shortest) =
            (now.since(self.times.sent).as_micros(), now.since(self.times.executed).as_micros());
        let latest = self.times.redis + Span::from_micros(longest + longest / 1_000 + 1);
        (latest, self.times.redis + Span::from_micros(shortest - shortest / 1_000))
    }
}

impl DenyCache {
    pub(crate) fn new(keep: Duration) -> Self {
        let places = if keep.is_zero() { 0 } else { MAX_ENTRIES };
        Self {
            hashes: (0..places).map(|_| AtomicU64::new(0)).collect(),
            places: (0..places).map(|_| Mutex::default()).collect(),
            changed: (0..places / WAYS).map(|_| AtomicU64::new(0)).collect(),
            keep: Span::from(keep),
            used: AtomicBool::new(false),
        }
    }

    /// The slots that a key may occupy.
    fn ways(&self, hash: u64) -> std::ops::Range<usize> {
        let set = usize::try_from(hash % (MAX_ENTRIES / WAYS) as u64).unwrap_or(0);
        if self.places.is_empty() { 0..0 } else { WAYS * set..WAYS * (set + 1) }
    }

    /// The slot that a key occupies.
    fn find(&self, hash: u64) -> Option<usize> {
        self.ways(hash).find(|&at| self.hashes[at].load(Ordering::Acquire) == hash)
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Option<DenyEntry>> {
        self.places[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches the state of a key of a refused request.
    pub(crate) fn remember(
        &self,
        rule: (RuleId, &Quota),
        key: &[u8],
        key_state: &KeyState,
        wait: Option<UnitsWait>,
        times: CallTimes,
    ) {
        if matches!(rule.1, Quota::Concurrency(_)) {
            return;
        }
        let hash = hash(rule.0, key).max(1);
        let mut ways = self.ways(hash);
        // The slot of the key, an empty slot, or the slot of another key.
        let free = || ways.clone().find(|&at| self.hashes[at].load(Ordering::Relaxed) == 0);
        let chance = usize::try_from(times.sent.as_micros() % WAYS as u64).unwrap_or(0);
        let Some(at) = self.find(hash).or_else(free).or_else(|| ways.nth(chance)) else { return };
        let seen = DenyEntry {
            rule: rule.0,
            key: key.into(),
            key_state: key_state.clone(),
            wait,
            limit: rule.1.capacity(),
            times,
        };
        let mut place = self.lock(at);
        // Checked under the lock: a concurrent change takes the lock afterward.
        if times.sent.as_micros() <= self.changed[at / WAYS].load(Ordering::Acquire) {
            return;
        }
        let is_newer = |known: &DenyEntry| {
            known.is(rule.0, key)
                && known.times.redis > times.redis
                && times.executed.since(known.times.sent) <= self.keep
        };
        if place.as_ref().is_some_and(is_newer) {
            return;
        }
        *place = Some(seen);
        self.hashes[at].store(hash, Ordering::Release);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Updates the cached state of a key after an admitted request. `hash` is the hash of the key.
    pub(crate) fn renew(&self, hash: u64, rule: RuleId, key: &[u8], key_state: &KeyState, times: CallTimes) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let Some(at) = self.find(hash.max(1)) else { return };
        let mut place = self.lock(at);
        // Replies may arrive in a different order than Redis executed the calls.
        let is_older = |known: &&mut DenyEntry| known.is(rule, key) && known.times.redis <= times.redis;
        if let Some(known) = place.as_mut().filter(is_older) {
            (known.key_state, known.wait, known.limit, known.times) = (key_state.clone(), None, 0, times);
        }
    }

    /// Invalidates a key that was changed or is about to be changed.
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

    /// Refuses a request by cached states: all of its keys must be cached, and a binding check must
    /// have no room. Returns `None` otherwise.
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
        // The time of the answer. All outcomes refer to it, so that adding a wait to it yields the
        // same date as from Redis.
        let mut at_least = None;
        for (at, check) in checks.iter().enumerate() {
            let same = |other: &Check<'_>| other.rule.id == check.rule.id && other.key == check.key;
            let units = match check.amount {
                Amount::Exactly(units) if !check.count_denied && !checks[..at].iter().any(same) => units,
                _ => return None,
            };
            let guard = self.lock(self.find(hash(check.rule.id, check.key).max(1))?);
            let seen = guard.as_ref().filter(|it| it.is(check.rule.id, check.key))?;
            if now.since(seen.times.sent) > self.keep {
                return None;
            }
            // The latest time decides whether the request is refused, so that it is not refused too
            // long. The likely time determines the wait, so that the delay of the network is not
            // part of it.
            let (late, early) = seen.between(now);
            let limit = check.rule.quota.capacity();
            let free = match seen.wait {
                Some(wait) if units == wait.units && seen.limit == limit && is_before(late, wait.until) => {
                    wait.until
                }
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

    const SENT: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn a_cached_refusal_has_the_same_date_as_redis() {
        let rate = Rate::new(5, Span::from_secs(40));
        let quotas: [(&str, Quota); 2] = [
            ("bucket", Bucket::new(rate).unwrap().into()),
            ("window", FixedWindow::anchored(rate).unwrap().into()),
        ];
        for (name, quota) in quotas {
            // By the clock of Redis, which is an hour ahead; the reply took 900 ms.
            let redis = SENT + Span::from_hours(1);
            let (executed, received) = (SENT + Span::from_millis(1), SENT + Span::from_millis(901));
            let mut state = quota.fresh();
            quota.step(&mut state, Amount::Exactly(5), redis);
            let free = redis + quota.step(&mut state, Amount::Exactly(1), redis).retry_after().unwrap();
            let rule = Rule::new(name, quota);
            let deny_cache = DenyCache::new(Duration::from_secs(2));
            let key_state = KeyState::Whole(state);
            let times = CallTimes { redis, sent: SENT, executed, received };
            deny_cache.remember((rule.id, &rule.quota), b"key", &key_state, None, times);
            let mut outcomes = Outcomes::new();
            let at = deny_cache.recall(&[Check::new(&rule, b"key", 1)], received, &mut outcomes).unwrap();
            let wait = outcomes[0].retry_after().unwrap();
            assert_eq!(at + wait, free, "{name}: the date");
            // An hour and 900 ms after the execution, by the local clock.
            let truth = free.since(redis + Span::from_millis(900));
            assert!(wait >= truth && wait <= truth + Span::from_millis(1), "{name}: {wait}, not {truth}");
        }
    }
}
