//! No flood, under any limit and with a moving clock, lets a key spend units that a store without
//! evictions would refuse.

use std::collections::HashMap;

use tollgate_core::{
    Amount, Bucket, FixedWindow, Quota, QuotaError, Rate, Rule, SlidingLog, SlidingParts, SlidingWindow,
    Span, State, Timestamp, Window,
};
use tollgate_store::conformance::admitted::Random;
use tollgate_store::{Check, ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_secs(1_772_366_400);
const MAX_KEYS: usize = 2_000;

/// A store that must evict, and for each key a state that is charged with the same requests and
/// never evicted.
struct Pair {
    store: MemoryStore<ManualClock>,
    kept: HashMap<(u64, u64), State>,
    /// Requests that the store refused and the reference state would admit.
    early: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let store = MemoryStore::with_seed(MAX_KEYS, ManualClock::at(START), seed);
        Self { store, kept: HashMap::new(), early: 0 }
    }

    /// Spends in both. The reference state must admit every request that the store admits.
    fn take(&mut self, rule: &Rule, key: u64, cost: u64) -> bool {
        let now = self.store.now();
        let admitted = self.store.take(&Check::new(rule, &key.to_le_bytes(), cost), now).is_admitted();
        let kept = self.kept.entry((rule.id.0, key)).or_insert_with(|| rule.quota.fresh());
        let mut after = kept.clone();
        let exact = rule.quota.step(&mut after, Amount::Exactly(cost), now).is_admitted();
        let since = now.since(START);
        assert!(exact || !admitted, "{} after {since}: {kept:?} refuses {cost}", rule.quota);
        self.early += u64::from(exact && !admitted);
        if admitted {
            *kept = after;
        }
        admitted
    }
}

/// The algorithms whose states do not fit a word, and those whose states do.
fn quotas(rate: Rate) -> Vec<Quota> {
    try_quotas(rate).expect("valid quotas")
}

fn try_quotas(rate: Rate) -> Result<Vec<Quota>, QuotaError> {
    let odd = Rate::new(rate.count, rate.period + Span::from_micros(1));
    Ok(vec![
        SlidingLog::new(rate)?.into(),
        SlidingWindow::new(rate)?.into(),
        SlidingParts::new(rate, 7)?.into(),
        FixedWindow::anchored(rate)?.into(),
        FixedWindow::epoch(odd)?.into(),
        FixedWindow::tally(rate.count, Window::Epoch(rate.period))?.into(),
        Bucket::new(Rate::new(1_000_003, Span::from_secs(100_000)))?.with_burst(10)?.into(),
        Bucket::new(rate)?.into(),
        Bucket::new(rate)?.shared().into(),
        FixedWindow::epoch(rate)?.into(),
    ])
}

fn floods() -> Vec<Quota> {
    let mut floods = quotas(Rate::new(10, Span::from_secs(20)));
    floods.extend(quotas(Rate::per_second(10)));
    floods.extend(quotas(Rate::per_day(5)));
    floods
}

/// Drains 200 keys, and retries them continuously while others flood the store and time passes:
/// only a key that retries continuously would gain from a momentary eviction.
fn attack(drained: &Quota, flood: &Quota, cost: u64, tries: u64) {
    let (victim, other) = (Rule::new("drained", drained.clone()), Rule::new("flood", flood.clone()));
    let mut pair = Pair::new(7);
    let mut random = Random(cost);
    let mut next = 0;
    let period = drained.period().as_micros();
    for round in 0..tries {
        for key in 0..200 {
            while pair.take(&victim, key, 1) && random.below(10) > 0 {}
        }
        for _ in 0..6_000 {
            next += 1;
            pair.take(&other, next % (10_000 * (1 + round % 3)), 1 + random.below(cost));
        }
        pair.store.clock().advance(Span::from_micros(1 + random.below(2 * period / tries)));
    }
    assert!(pair.early + pair.store.evictions() > 0, "{flood} does not flood the store");
}

fn each_against(floods: &[Quota], rate: Rate) {
    for drained in quotas(rate) {
        for flood in floods {
            attack(&drained, flood, 3, 8);
        }
    }
}

#[test]
fn no_flood_frees_a_key_that_is_drained_for_seconds() {
    each_against(&floods(), Rate::new(10, Span::from_secs(20)));
}

#[test]
fn no_flood_frees_a_key_that_is_drained_for_a_day() {
    each_against(&floods(), Rate::per_day(5));
}

#[test]
fn no_mixture_of_floods_frees_a_key() {
    let rules: Vec<Rule> = floods().into_iter().map(|quota| Rule::new(&quota.to_string(), quota)).collect();
    for seed in 0..6 {
        let (mut pair, mut random) = (Pair::new(seed), Random(seed));
        for _ in 0..120_000 {
            let rule = &rules[random.index(rules.len())];
            // A few frequent keys, and many that occur once.
            let key = if random.below(3) == 0 { random.below(20) } else { random.below(1 << 31) };
            pair.take(rule, key, 1 + random.below(3));
            if random.below(500) == 0 {
                pair.store.clock().advance(Span::from_micros(random.below(1 << (10 + seed * 4))));
            }
        }
        assert!(pair.store.evictions() > 0 && pair.early > 0);
    }
}

#[test]
fn a_reload_during_a_flood_frees_no_key() {
    let rate = |count| Rate::new(count, Span::from_secs(20));
    let flood = Rule::new("flood", SlidingLog::new(Rate::per_day(1_000)).unwrap());
    let narrow = Rule::new("narrow flood", Bucket::new(Rate::per_day(1_000)).unwrap());
    for (before, after) in quotas(rate(10)).into_iter().zip(quotas(rate(12))) {
        let store = MemoryStore::with_seed(100, ManualClock::at(START), 7);
        let before = Rule::new("reloaded", before);
        let after = Rule::new("reloaded", after).replacing(&before);
        let take = |rule: &Rule, key: u64| {
            u64::from(store.take(&Check::new(rule, &key.to_le_bytes(), 1), store.now()).is_admitted())
        };
        let spent: u64 = (0..100).map(|n| take(&before, n / 10)).sum();
        assert_eq!(spent, 100, "{}", before.quota);
        for key in 1_000..30_000 {
            for _ in 0..3 {
                take(&flood, key);
                take(&narrow, key);
            }
        }
        for key in 0..10 {
            let more: u64 = (0..12).map(|_| take(&after, key)).sum();
            assert!(more <= after.quota.capacity() - 10, "{}: {more} more", after.quota);
        }
    }
}
