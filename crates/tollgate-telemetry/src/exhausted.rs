//! Keys that have nothing left for minutes.
//!
//! A key sits at zero since T if every decision since T left it nothing (nothing remained,
//! or it was refused) and between two of them passed no more than a minute, or what the
//! first was told to wait for: a key that was refused until tomorrow has nothing left until
//! then, whether it asks again or not. That is an alert once it has lasted as long as the
//! settings say, and somebody was refused. It ends when something is left, when nobody has
//! asked for a minute and the wait is over, when the key is given something back, and when
//! its rule is gone or refuses nobody any more.
//!
//! What an operator does not want to be woken for is not an alert:
//! - limits in shadow mode and candidates: they refuse nobody;
//! - a caller that spends all it gets as it gets it, and is never refused;
//! - a limit of one, such as a bucket of one: it is at zero after every request, also of a
//!   caller that behaves. Only its refusals are looked at: what passes says nothing;
//! - a request that costs more than the limit ever holds: the key may be full all the same.
//!
//! The table is fixed. Where it is full, a key that nobody asks about any more gives way,
//! or else the one that has been at zero for the shortest time: a flood of new keys does
//! not push out those that have been there for long. What it is told of nearly every key,
//! that something is left, costs one line of the cache.
//!
//! Invariant: memory is fixed. Held by `tests/bounded.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{RuleId, Span, Timestamp};

/// The longest between two decisions about a key at zero.
const MAX_GAP: Span = Span::from_secs(60);
/// 512 sets of eight keys.
const SETS: usize = 512;
const WAYS: usize = 8;

/// A key that has had nothing left for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExhaustedKey {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Stands for what is not shown of the key: the same under every limit.
    pub tag: u64,
    /// Tells the allowance from all others, in this process.
    pub key_hash: u64,
    /// The rule by which it has nothing left.
    pub rule: RuleId,
    /// Since when.
    pub since: Timestamp,
    /// When it was last seen so.
    pub last: Timestamp,
    /// Until when it has nothing left if nobody helps it out: what its last refusal told it
    /// to wait for.
    pub until: Timestamp,
    /// How many requests were refused since.
    pub refused: u64,
}

impl ExhaustedKey {
    /// Whether nothing is known of it any more: nobody has asked for a while, and what it was
    /// told to wait for has come.
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last) > MAX_GAP && now > self.until
    }
}

/// Keys that have nothing left.
pub(crate) struct ExhaustedKeys {
    after: Span,
    sets: Box<[Set]>,
}

/// The keys of one set. The line that is looked at for every request stands by itself.
#[repr(align(64))]
struct Set {
    /// Zero: free. Told without the lock, changed under it.
    key_hashes: [AtomicU64; WAYS],
    keys: Mutex<[Option<ExhaustedKey>; WAYS]>,
}

impl Set {
    fn holds(&self, key_hash: u64) -> bool {
        // Whoever reads an old word misses one decision, and is told of the next.
        self.key_hashes.iter().any(|it| it.load(Ordering::Relaxed) == key_hash)
    }

    fn is_empty(&self) -> bool {
        self.key_hashes.iter().all(|it| it.load(Ordering::Relaxed) == 0)
    }

    fn lock(&self) -> MutexGuard<'_, [Option<ExhaustedKey>; WAYS]> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(
        &self,
        keys: &mut [Option<ExhaustedKey>; WAYS],
        way: usize,
        key: Option<ExhaustedKey>,
    ) -> Option<ExhaustedKey> {
        let (Some(slot), Some(key_hash)) = (keys.get_mut(way), self.key_hashes.get(way)) else { return key };
        key_hash.store(key.as_ref().map_or(0, |key| key.key_hash), Ordering::Relaxed);
        std::mem::replace(slot, key)
    }
}

impl ExhaustedKeys {
    /// After so long a key is an alert.
    pub(crate) fn new(after: Span) -> Self {
        let set = |_| Set { key_hashes: Default::default(), keys: Mutex::default() };
        Self { after, sets: (0..SETS).map(set).collect() }
    }

    /// Zero stands for nobody.
    fn set(&self, key_hash: u64) -> (u64, Option<&Set>) {
        // The upper bits: the lower ones are used elsewhere. Nine bits fit.
        let place = usize::try_from(key_hash >> 55).unwrap_or(0);
        (key_hash.max(1), self.sets.get(place))
    }

    /// A key has nothing left, and was refused for so long or not at all. `name` is asked only
    /// for keys that are new here.
    pub(crate) fn empty(
        &self,
        key_hash: u64,
        rule: RuleId,
        refused: Option<Span>,
        at: Timestamp,
        name: impl FnOnce() -> (Arc<str>, Box<str>, u64),
    ) {
        let (key_hash, Some(set)) = self.set(key_hash) else { return };
        let until = at + refused.unwrap_or(Span::ZERO);
        // Before the lock: naming a key takes longer than all the rest.
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
        // It was known a moment ago: the next decision will tell.
        let Some((limit, key, tag)) = new else { return };
        let way = keys.iter().enumerate().max_by_key(|(_, it)| match it {
            None => (2, at),
            Some(it) if it.is_over(at) => (1, it.since),
            Some(it) => (0, it.since),
        });
        let way = way.map_or(0, |(way, _)| way);
        let key = ExhaustedKey {
            limit,
            key,
            tag,
            key_hash,
            rule,
            since: at,
            last: at,
            until,
            refused: refused.is_some().into(),
        };
        let gone = set.put(&mut keys, way, Some(key));
        drop(keys);
        drop(gone);
    }

    /// A key has something left.
    #[inline]
    pub(crate) fn left(&self, key_hash: u64) {
        if let (key_hash, Some(set)) = self.set(key_hash)
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

    /// After how long a key is an alert.
    pub(crate) const fn after(&self) -> Span {
        self.after
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for set in &self.sets {
            let mut keys = set.lock();
            (0..WAYS).for_each(|way| drop(set.put(&mut keys, way, None)));
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.iter().all(Set::is_empty)
    }

    /// Forgets those by other rules.
    pub(crate) fn keep(&self, is_kept: impl Fn(RuleId) -> bool) {
        for set in self.sets.iter().filter(|set| !set.is_empty()) {
            let mut keys = set.lock();
            for way in 0..WAYS {
                if keys.get(way).is_some_and(|it| it.as_ref().is_some_and(|it| !is_kept(it.rule))) {
                    set.put(&mut keys, way, None);
                }
            }
        }
    }

    /// The keys that have had nothing left for long enough, the longest first.
    pub(crate) fn alerts(&self, now: Timestamp) -> Vec<ExhaustedKey> {
        let mut alerts = Vec::new();
        for set in &self.sets {
            if set.is_empty() {
                continue;
            }
            let keys = set.lock();
            let lasting = keys.iter().flatten();
            let lasting = lasting.filter(|it| {
                let known = it.until.max(it.last).min(now);
                !it.is_over(now) && known.since(it.since) >= self.after && it.refused > 0
            });
            alerts.extend(lasting.cloned());
        }
        alerts.sort_by(|a, b| (a.since, &a.limit, &a.key).cmp(&(b.since, &b.limit, &b.key)));
        alerts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000;
    const RULE: RuleId = RuleId(1);
    const REFUSED: Option<Span> = Some(Span::ZERO);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(START + second)
    }

    fn five_minutes() -> ExhaustedKeys {
        ExhaustedKeys::new(Span::from_secs(300))
    }

    fn name() -> (Arc<str>, Box<str>, u64) {
        ("api".into(), "ann".into(), 1)
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
    fn what_is_left_ends_it_at_once() {
        let zero = five_minutes();
        (0..400).for_each(|second| zero.empty(7, RULE, REFUSED, at(second), name));
        zero.left(8);
        assert_eq!(zero.alerts(at(400)).len(), 1);
        zero.left(7);
        assert_eq!(zero.alerts(at(400)), []);
        zero.empty(7, RULE, REFUSED, at(401), name);
        assert_eq!(zero.alerts(at(401)), [], "it begins anew");
    }

    #[test]
    fn it_ends_when_nobody_asks_for_a_minute_and_begins_anew_after_that() {
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
    fn what_was_seen_for_a_moment_or_refused_nobody_is_no_alert() {
        let zero = five_minutes();
        zero.empty(7, RULE, REFUSED, at(0), name);
        (0..=260).step_by(20).for_each(|second| zero.empty(7, RULE, REFUSED, at(second), name));
        assert_eq!(zero.alerts(at(310)), [], "seen so for 260 s");
        (0..=400).for_each(|second| zero.empty(8, RULE, None, at(second), name));
        assert_eq!(zero.alerts(at(400)), [], "nobody was refused");
        zero.empty(8, RULE, REFUSED, at(401), name);
        assert_eq!(zero.alerts(at(401)).len(), 1);
    }

    #[test]
    fn a_rule_that_is_gone_has_no_keys() {
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
    fn a_flood_of_new_keys_does_not_push_out_those_that_have_been_there() {
        let zero = five_minutes();
        for second in 0..=300 {
            (0..20).for_each(|key: u64| zero.empty(key_hash(key), RULE, REFUSED, at(second), name));
            for flood in 0..1_000 {
                zero.empty(key_hash(1_000 + second * 1_000 + flood), RULE, REFUSED, at(second), name);
            }
        }
        assert_eq!(zero.alerts(at(300)).len(), 20);
        let held = zero.sets.iter().map(|set| set.lock().iter().flatten().count()).sum::<usize>();
        assert_eq!(held, SETS * WAYS);
    }

    #[test]
    fn whoever_waits_as_told_is_at_zero_meanwhile_and_no_longer() {
        let zero = five_minutes();
        zero.empty(7, RULE, Some(Span::from_secs(86_400)), at(0), name);
        zero.empty(8, RULE, Some(Span::from_secs(200)), at(0), name);
        assert_eq!(zero.alerts(at(299)), []);
        let key_hashes = |second| zero.alerts(at(second)).iter().map(|it| it.key_hash).collect::<Vec<_>>();
        assert_eq!((key_hashes(300), key_hashes(86_400), key_hashes(86_401)), (vec![7], vec![7], vec![]));
    }

    /// As evenly spread as hashes are.
    fn key_hash(key: u64) -> u64 {
        (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
