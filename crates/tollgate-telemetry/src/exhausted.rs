//! Tracks keys that have had nothing left for minutes.
//!
//! A key is exhausted since T if every decision since T left it nothing (nothing remained, or it was
//! refused) and the gap between two decisions was at most a minute or the wait that the first of them
//! returned. A key that was refused until tomorrow is exhausted until then, whether or not it sends
//! requests. An exhausted key becomes an alert when this has lasted as long as the settings say and at
//! least one request was refused. The alert ends when a decision leaves something, when a minute and
//! the wait have passed without a request, when an operator refunds or resets the key, and when its
//! rule is removed or no longer refuses.
//!
//! These cases raise no alert:
//! - limits in shadow mode and candidates, because they do not refuse;
//! - a caller that spends its allowance as it arrives and is never refused;
//! - admitted requests under a limit of one, which is at zero after every request. Only its refusals
//!   count;
//! - a request that costs more than the capacity of the limit, because the key may be full.
//!
//! The table has a fixed size. A full set evicts a key whose episode is over, or else the key with the
//! shortest episode, so that a flood of new keys does not evict old ones. The common case, a key with
//! something left, reads one cache line.
//!
//! Invariant: memory is fixed. `tests/bounded.rs` checks this.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate::{RuleId, Span, Timestamp};

use crate::top::KeyName;

/// The longest gap between two decisions about an exhausted key.
const MAX_GAP: Span = Span::from_secs(60);
/// The number of sets and the keys in each set.
const SETS: usize = 512;
const WAYS: usize = 8;

/// A key that has had nothing left for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExhaustedKey {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Identifies the hidden part of the key. It is the same under every limit.
    pub tag: u64,
    /// Identifies the allowance within this process.
    pub key_hash: u64,
    /// The rule that has nothing left for the key.
    pub rule: RuleId,
    /// The start of the episode.
    pub since: Timestamp,
    /// The last decision that left the key nothing.
    pub last: Timestamp,
    /// The end of the wait that the last refusal returned.
    pub until: Timestamp,
    /// The number of requests that were refused since the start of the episode.
    pub refused: u64,
}

/// A key that has nothing left, as the table stores it: without memory on the heap.
struct Episode {
    name: KeyName,
    key_hash: u64,
    rule: RuleId,
    since: Timestamp,
    last: Timestamp,
    until: Timestamp,
    refused: u64,
}

impl Episode {
    fn to_exhausted_key(&self) -> ExhaustedKey {
        let Self { name, key_hash, rule, since, last, until, refused } = self;
        ExhaustedKey {
            limit: Arc::clone(&name.limit),
            key: (&name.key.text).into(),
            tag: name.key.tag,
            key_hash: *key_hash,
            rule: *rule,
            since: *since,
            last: *last,
            until: *until,
            refused: *refused,
        }
    }

    /// Whether the episode is over: the gap since the last decision is too long, and the wait has
    /// passed.
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last) > MAX_GAP && now > self.until
    }
}

/// The table of exhausted keys.
pub(crate) struct ExhaustedKeys {
    after: Span,
    /// Allocated for the first exhausted key, because a service without one does not need the megabyte.
    sets: OnceLock<Box<[Set]>>,
}

/// The keys of one set. The cache line that every request reads is separate from the others.
#[repr(align(64))]
struct Set {
    /// Zero marks a free way. Read without the lock, written under it.
    key_hashes: [AtomicU64; WAYS],
    keys: Mutex<[Option<Episode>; WAYS]>,
}

impl Set {
    fn holds(&self, key_hash: u64) -> bool {
        // A stale read misses one decision; the next decision corrects it.
        self.key_hashes.iter().any(|it| it.load(Ordering::Relaxed) == key_hash)
    }

    fn is_empty(&self) -> bool {
        self.key_hashes.iter().all(|it| it.load(Ordering::Relaxed) == 0)
    }

    fn lock(&self) -> MutexGuard<'_, [Option<Episode>; WAYS]> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, keys: &mut [Option<Episode>; WAYS], way: usize, key: Option<Episode>) -> Option<Episode> {
        let (Some(slot), Some(key_hash)) = (keys.get_mut(way), self.key_hashes.get(way)) else { return key };
        key_hash.store(key.as_ref().map_or(0, |key| key.key_hash), Ordering::Relaxed);
        std::mem::replace(slot, key)
    }
}

impl ExhaustedKeys {
    /// Creates a table in which a key becomes an alert after `after`.
    pub(crate) fn new(after: Span) -> Self {
        Self { after, sets: OnceLock::new() }
    }

    /// Returns the sets, none before the first exhausted key.
    #[inline]
    fn sets(&self) -> &[Set] {
        self.sets.get().map_or(&[], |sets| sets)
    }

    /// Returns the sets, and allocates them.
    fn new_sets(&self) -> &[Set] {
        let set = |_| Set { key_hashes: Default::default(), keys: Mutex::default() };
        self.sets.get_or_init(|| (0..SETS).map(set).collect())
    }

    /// Returns the set of a key. Zero marks a free way, so a hash of zero is replaced.
    fn set(sets: &[Set], key_hash: u64) -> (u64, Option<&Set>) {
        // The upper nine bits, because other tables use the lower ones.
        let place = usize::try_from(key_hash >> 55).unwrap_or(0);
        (key_hash.max(1), sets.get(place))
    }

    /// Records that a key has nothing left. `refused` is the wait of a refusal, `None` for an admitted
    /// request. `name` is called only for keys that are new to the table.
    pub(crate) fn empty(
        &self,
        key_hash: u64,
        rule: RuleId,
        refused: Option<Span>,
        at: Timestamp,
        name: impl FnOnce() -> KeyName,
    ) {
        let (key_hash, Some(set)) = Self::set(self.new_sets(), key_hash) else { return };
        let until = at + refused.unwrap_or(Span::ZERO);
        // Before the lock, because rendering a key takes longer than the rest.
        let new = (!set.holds(key_hash)).then(name);
        let mut keys = set.lock();
        if let Some(known) = keys.iter_mut().flatten().find(|known| known.key_hash == key_hash) {
            if known.is_over(at) {
                (known.since, known.refused) = (at, 0);
            }
            known.last = known.last.max(at);
            known.until = known.until.max(until);
            known.refused += u64::from(refused.is_some());
            return;
        }
        // The key was evicted in between; the next decision adds it again.
        let Some(name) = new else { return };
        let way = keys.iter().enumerate().max_by_key(|(_, it)| match it {
            None => (2, at),
            Some(it) if it.is_over(at) => (1, it.since),
            Some(it) => (0, it.since),
        });
        let way = way.map_or(0, |(way, _)| way);
        let refused = refused.is_some().into();
        let key = Episode { name, key_hash, rule, since: at, last: at, until, refused };
        let gone = set.put(&mut keys, way, Some(key));
        drop(keys);
        drop(gone);
    }

    /// Records that a key has something left.
    #[inline]
    pub(crate) fn left(&self, key_hash: u64) {
        if let (key_hash, Some(set)) = Self::set(self.sets(), key_hash)
            && set.holds(key_hash)
        {
            Self::forget(set, key_hash);
        }
    }

    #[cold]
    fn forget(set: &Set, key_hash: u64) {
        let mut keys = set.lock();
        if let Some(way) = keys.iter().position(|it| it.as_ref().is_some_and(|it| it.key_hash == key_hash)) {
            set.put(&mut keys, way, None);
        }
    }

    /// Returns the time after which an exhausted key becomes an alert.
    pub(crate) const fn after(&self) -> Span {
        self.after
    }

    /// Removes all keys.
    pub(crate) fn clear(&self) {
        for set in self.sets() {
            let mut keys = set.lock();
            (0..WAYS).for_each(|way| drop(set.put(&mut keys, way, None)));
        }
    }

    /// Whether the table has no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets().iter().all(Set::is_empty)
    }

    /// Removes the keys of rules for which `is_kept` returns false.
    pub(crate) fn keep(&self, is_kept: impl Fn(RuleId) -> bool) {
        for set in self.sets().iter().filter(|set| !set.is_empty()) {
            let mut keys = set.lock();
            for way in 0..WAYS {
                if keys.get(way).is_some_and(|it| it.as_ref().is_some_and(|it| !is_kept(it.rule))) {
                    set.put(&mut keys, way, None);
                }
            }
        }
    }

    /// Returns the keys that have been exhausted for long enough, the longest first.
    pub(crate) fn alerts(&self, now: Timestamp) -> Vec<ExhaustedKey> {
        let mut alerts = Vec::new();
        for set in self.sets() {
            if set.is_empty() {
                continue;
            }
            let keys = set.lock();
            let lasting = keys.iter().flatten();
            let lasting = lasting.filter(|it| {
                let known = it.until.max(it.last).min(now);
                !it.is_over(now) && known.since(it.since) >= self.after && it.refused > 0
            });
            alerts.extend(lasting.map(Episode::to_exhausted_key));
        }
        alerts.sort_by(|a, b| (a.since, &a.limit, &a.key).cmp(&(b.since, &b.limit, &b.key)));
        alerts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_cache::ShownKey;
    use crate::text::Text;

    const START: u64 = 1_000_000;
    const RULE: RuleId = RuleId(1);
    const REFUSED: Option<Span> = Some(Span::ZERO);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(START + second)
    }

    fn five_minutes() -> ExhaustedKeys {
        ExhaustedKeys::new(Span::from_secs(300))
    }

    fn name() -> KeyName {
        KeyName { limit: "api".into(), key: ShownKey { text: Text::new("ann"), tag: 1 } }
    }

    #[test]
    fn a_key_is_an_alert_after_five_minutes_and_not_before() {
        let zero = five_minutes();
        for second in (0..=300).step_by(30) {
            assert_eq!(zero.alerts(at(second.min(299))), [], "after {second} s");
            zero.empty(7, RULE, (second % 60 == 0).then_some(Span::ZERO), at(second), name);
        }
        let alerts = zero.alerts(at(300));
        assert_eq!(alerts.len(), 1);
        assert_eq!((alerts[0].since, alerts[0].last, alerts[0].refused), (at(0), at(300), 6));
        assert_eq!((&*alerts[0].limit, &*alerts[0].key), ("api", "ann"));
    }

    #[test]
    fn a_remaining_unit_ends_the_episode_at_once() {
        let zero = five_minutes();
        (0..400).for_each(|second| zero.empty(7, RULE, REFUSED, at(second), name));
        zero.left(8);
        assert_eq!(zero.alerts(at(400)).len(), 1);
        zero.left(7);
        assert_eq!(zero.alerts(at(400)), []);
        zero.empty(7, RULE, REFUSED, at(401), name);
        assert_eq!(zero.alerts(at(401)), [], "a new episode starts");
    }

    #[test]
    fn an_episode_ends_after_a_minute_without_requests() {
        let zero = five_minutes();
        (0..=400).for_each(|second| zero.empty(7, RULE, REFUSED, at(second), name));
        assert_eq!(zero.alerts(at(460)).len(), 1);
        assert_eq!(zero.alerts(at(461)), []);
        zero.empty(7, RULE, REFUSED, at(461), name);
        assert_eq!(zero.alerts(at(461)), []);
        (462..=761).for_each(|second| zero.empty(7, RULE, REFUSED, at(second), name));
        assert_eq!(zero.alerts(at(761))[0].since, at(461));
    }

    #[test]
    fn a_short_episode_or_one_without_refusals_is_no_alert() {
        let zero = five_minutes();
        zero.empty(7, RULE, REFUSED, at(0), name);
        (0..=260).step_by(20).for_each(|second| zero.empty(7, RULE, REFUSED, at(second), name));
        assert_eq!(zero.alerts(at(310)), [], "exhausted for 260 s");
        (0..=400).for_each(|second| zero.empty(8, RULE, None, at(second), name));
        assert_eq!(zero.alerts(at(400)), [], "no request was refused");
        zero.empty(8, RULE, REFUSED, at(401), name);
        assert_eq!(zero.alerts(at(401)).len(), 1);
    }

    #[test]
    fn a_removed_rule_has_no_keys() {
        let zero = five_minutes();
        assert!(zero.is_empty());
        for second in 0..=300 {
            zero.empty(7, RULE, REFUSED, at(second), name);
            zero.empty(8, RuleId(2), REFUSED, at(second), name);
        }
        zero.keep(|rule| rule == RULE);
        assert_eq!(zero.alerts(at(300)).iter().map(|it| it.key_hash).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_flood_of_new_keys_does_not_evict_old_keys() {
        let zero = five_minutes();
        for second in 0..=300 {
            (0..20).for_each(|key: u64| zero.empty(key_hash(key), RULE, REFUSED, at(second), name));
            for flood in 0..1_000 {
                zero.empty(key_hash(1_000 + second * 1_000 + flood), RULE, REFUSED, at(second), name);
            }
        }
        assert_eq!(zero.alerts(at(300)).len(), 20);
        let held = zero.sets().iter().map(|set| set.lock().iter().flatten().count()).sum::<usize>();
        assert_eq!(held, SETS * WAYS);
    }

    #[test]
    fn a_key_is_exhausted_until_its_wait_has_passed() {
        let zero = five_minutes();
        zero.empty(7, RULE, Some(Span::from_secs(86_400)), at(0), name);
        zero.empty(8, RULE, Some(Span::from_secs(200)), at(0), name);
        assert_eq!(zero.alerts(at(299)), []);
        let key_hashes = |second| zero.alerts(at(second)).iter().map(|it| it.key_hash).collect::<Vec<_>>();
        assert_eq!((key_hashes(300), key_hashes(86_400), key_hashes(86_401)), (vec![7], vec![7], vec![]));
    }

    /// Spreads keys as evenly as real hashes.
    fn key_hash(key: u64) -> u64 {
        (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
