//! Random sequences of reloads and steps of the wall clock in a flooded store admit no key more than
//! its limit permits. Each case prints its seed.

use std::collections::{BTreeSet, HashMap};

use tollgate_core::{
    Amount, Bucket, FixedWindow, Quota, QuotaError, Rate, Rule, SlidingLog, SlidingParts, SlidingWindow,
    Span, State, Timestamp, Window,
};
use tollgate_store::conformance::admitted::{Admitted, Random};
use tollgate_store::{Check, Clock as _, ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_secs(1_900_000_000);
/// The period of limits whose keys come and go.
const PERIOD: Span = Span::from_secs(12);
/// The keys under test.
const KEYS: u64 = 10;

type TestStore = MemoryStore<ManualClock>;

/// A store so small that floods evict the keys under test.
fn small_store(seed: u64) -> TestStore {
    MemoryStore::with_seed(40, ManualClock::at(START), seed)
}

fn take(store: &TestStore, rule: &Rule, key: u64, cost: u64) -> u64 {
    store.decide_now(&[Check::new(rule, &key.to_le_bytes(), cost)]).outcomes[0].units()
}

/// A constructor of one kind of quota from a rate.
type Kind = fn(Rate) -> Result<Quota, QuotaError>;

const BUCKET: Kind = |rate| Bucket::new(rate).map(Quota::from);
/// Kinds whose maximum is known for every stretch of time.
const KINDS: [Kind; 6] = [
    BUCKET,
    |rate| FixedWindow::epoch(rate).map(Quota::from),
    |rate| FixedWindow::tally(rate.count, Window::Epoch(rate.period)).map(Quota::from),
    |rate| FixedWindow::anchored(rate).map(Quota::from),
    |rate| SlidingParts::new(rate, 64).map(Quota::from),
    |rate| SlidingLog::new(rate).map(Quota::from),
];

/// The limits of a flood, in both tables and on both clocks.
fn flood_rules() -> Vec<Rule> {
    let rates = [Rate::new(3, Span::from_secs(1)), Rate::new(3, PERIOD), Rate::per_day(3)];
    let quotas = rates.iter().flat_map(|&rate| KINDS.map(|kind| kind(rate).expect("a valid quota")));
    quotas.map(|quota| Rule::new(&format!("flood {quota}"), quota)).collect()
}

/// Sends some requests with new keys under one of the rules.
fn flood(store: &TestStore, rules: &[Rule], random: &mut Random) {
    let (rule, keys) = (&rules[random.index(rules.len())], random.below(80));
    for _ in 0..keys {
        take(store, rule, 1_000 + random.below(1 << 40), 1 + random.below(3));
    }
}

/// The totals of a test, which show that its cases occurred.
#[derive(Default)]
struct Totals {
    admitted: u64,
    evictions: u64,
}

/// Reloads a limit of one kind with changing numbers while keys come, go and are evicted.
fn reloads_over_time(kind: Kind, seed: u64, totals: &mut Totals) {
    let (mut random, store, others) = (Random(seed), small_store(seed), flood_rules());
    let quota = |random: &mut Random| match kind(Rate::new(1 + random.below(12), PERIOD)).expect("a quota") {
        Quota::Bucket(it) if random.below(2) == 0 => {
            it.with_burst(1 + random.below(12)).expect("a small burst").into()
        }
        quota => quota,
    };
    let mut rule = Rule::new("reloaded", quota(&mut random));
    let mut admitted: Vec<Admitted> = (0..KEYS).map(|_| Admitted::default()).collect();
    for _ in 0..150 {
        let now = store.now();
        for of_key in &mut admitted {
            of_key.in_force(&rule.quota, now);
        }
        if random.below(5) == 0 {
            rule = Rule::new("reloaded", quota(&mut random)).replacing(&rule);
            for of_key in &mut admitted {
                of_key.in_force(&rule.quota, now);
            }
        }
        if random.below(4) == 0 {
            flood(&store, &others, &mut random);
        }
        for _ in 0..random.below(12) {
            let key = random.below(KEYS);
            let units = take(&store, &rule, key, 1 + random.below(3));
            let of_key = &mut admitted[usize::try_from(key).expect("a small number")];
            of_key.add(units, now);
            of_key.check(&format!("{}, seed {seed}, key {key}", rule.quota));
            totals.admitted += units;
        }
        store.clock().advance(Span::from_micros(random.below(PERIOD.as_micros() / 5)));
    }
    totals.evictions += store.evictions();
}

#[test]
fn reloads_during_floods_admit_no_more_than_the_largest_limit_in_any_window() {
    let mut totals = Totals::default();
    for seed in (0..60).chain([1_804]) {
        reloads_over_time(BUCKET, seed, &mut totals);
    }
    for (seed, kind) in (0..60).zip(KINDS.into_iter().cycle()) {
        reloads_over_time(kind, seed, &mut totals);
    }
    assert!(
        totals.admitted > 2_000 && totals.evictions > 2_000,
        "{} and {}",
        totals.admitted,
        totals.evictions
    );
}

#[test]
fn changes_of_the_algorithm_during_floods_admit_no_more_than_the_largest_limit() {
    let (mut totals, others) = (Totals::default(), flood_rules());
    let kinds = || KINDS.into_iter().chain([(|rate| SlidingWindow::new(rate).map(Quota::from)) as Kind]);
    for seed in 0..100 {
        let (mut random, store) = (Random(seed), small_store(seed));
        let mut rule: Option<Rule> = None;
        let (mut admitted, mut largest) = ([0; 10], 0);
        for _ in 0..2 + random.below(10) {
            let kind = kinds().nth(random.index(7)).expect("seven kinds");
            let period = [Span::from_hours(20), Span::from_days(1), Span::from_days(30)][random.index(3)];
            let next = Rule::new("reloaded", kind(Rate::new(1 + random.below(30), period)).expect("a quota"));
            let next = rule.as_ref().map_or(next.clone(), |rule| next.replacing(rule));
            largest = largest.max(next.quota.capacity());
            for (key, admitted) in (0..).zip(&mut admitted) {
                for _ in 0..random.below(12) {
                    *admitted += take(&store, &next, key, 1);
                }
                assert!(*admitted <= largest, "seed {seed}: {admitted} of {largest} under {}", next.quota);
            }
            flood(&store, &others, &mut random);
            rule = Some(next);
        }
        totals.admitted += admitted.iter().sum::<u64>();
        totals.evictions += store.evictions();
    }
    assert!(
        totals.admitted > 2_000 && totals.evictions > 2_000,
        "{} and {}",
        totals.admitted,
        totals.evictions
    );
}

/// A key's state that is never evicted, and its admitted units.
#[derive(Default)]
struct Kept {
    state: Option<State>,
    admitted: u64,
}

impl Kept {
    /// Charges an admission of the store. The state must admit it, too.
    fn charge(&mut self, quota: &Quota, cost: u64, units: u64, wall: Timestamp, case: &str) {
        let state = self.state.get_or_insert_with(|| quota.fresh());
        let mut after = state.clone();
        let exact = quota.step(&mut after, Amount::Exactly(cost), wall).is_admitted();
        assert!(exact || units == 0, "{case}: {state:?} refuses {cost} at {wall:?}");
        if units > 0 {
            *state = after;
        }
    }
}

/// Moves the wall clock while keys come, go and are evicted. It is at most `max_back` behind its
/// latest reading.
fn steps_of_the_wall_clock(quota: Quota, seed: u64, max_back: Span, totals: &mut Totals) {
    let (mut random, store, others) = (Random(seed), small_store(seed), flood_rules());
    let rule = Rule::new("aligned", quota);
    let Quota::FixedWindow(window) = &rule.quota else { return };
    let (mut kept, mut windows, mut latest) = (HashMap::<u64, Kept>::new(), BTreeSet::new(), START);
    let (mut entered, mut present) = (0, START);
    for _ in 0..200 {
        let wall = store.clock().wall();
        latest = latest.max(wall);
        let closes = window.window().closes(wall);
        windows.insert(closes);
        entered += u64::from(std::mem::replace(&mut present, closes) != closes);
        if random.below(3) == 0 {
            flood(&store, &others, &mut random);
        }
        for _ in 0..random.below(12) {
            let (key, cost) = (random.below(KEYS), 1 + random.below(3));
            let units = take(&store, &rule, key, cost);
            let case = format!("{}, seed {seed}, key {key}", rule.quota);
            let kept = kept.entry(key).or_default();
            kept.admitted += units;
            totals.admitted += units;
            // A state whose window ends more than two windows ahead is moved back, which begins a
            // new count of the windows in between.
            let most = if max_back <= PERIOD {
                kept.charge(&rule.quota, cost, units, wall, &case);
                windows.len() as u64 * rule.quota.capacity()
            } else {
                entered * rule.quota.capacity()
            };
            assert!(kept.admitted <= most, "{case}: {} of {most}", kept.admitted);
        }
        store.clock().advance(Span::from_micros(random.below(PERIOD.as_micros() / 8)));
        if random.below(4) == 0 {
            let (wall, step) = (store.clock().wall(), Span::from_micros(random.below(max_back.as_micros())));
            let stepped = if random.below(4) == 0 { wall + step } else { wall.before(step) };
            store.clock().set_wall(stepped.max(latest.before(max_back)));
        }
    }
    totals.evictions += store.evictions();
}

#[test]
fn repeated_steps_of_the_wall_clock_during_floods_free_no_window() {
    for max_back in [PERIOD, Span::from_minutes(20)] {
        let mut totals = Totals::default();
        for seed in 0..40 {
            let units = 1 + seed % 15;
            let windows = [
                FixedWindow::epoch(Rate::new(units, PERIOD)),
                FixedWindow::tally(units, Window::Epoch(PERIOD)),
                FixedWindow::epoch(Rate::new(units, PERIOD + Span::from_micros(1))),
            ];
            for window in windows {
                steps_of_the_wall_clock(window.expect("a valid quota").into(), seed, max_back, &mut totals);
            }
        }
        assert!(
            totals.admitted > 2_000 && totals.evictions > 2_000,
            "{} and {}",
            totals.admitted,
            totals.evictions
        );
    }
}
