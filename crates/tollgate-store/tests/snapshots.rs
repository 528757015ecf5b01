//! A store that continues from a snapshot answers as the first one would have.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate_core::{
    Amount, Bucket, Concurrency, FixedWindow, Outcome, Owner, Quota, QuotaError, Rate, Rule, SlidingLog,
    SlidingParts, SlidingWindow, Span, Timestamp,
};
use tollgate_store::memory::SnapshotError;
use tollgate_store::{Check, Clock as _, ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_secs(1_900_000_000);

type Kind = fn(u64) -> Result<Quota, QuotaError>;

const KINDS: [(&str, Kind); 8] = [
    ("bucket", |units| Bucket::new(Rate::per_minute(units)).map(Quota::from)),
    ("fine bucket", |units| {
        Bucket::new(Rate::new(1_000_003, Span::from_secs(61)))?.with_burst(units).map(Quota::from)
    }),
    ("shared bucket", |units| Ok(Bucket::new(Rate::per_minute(units))?.shared().into())),
    ("epoch window", |units| FixedWindow::epoch(Rate::per_minute(units)).map(Quota::from)),
    ("anchored window", |units| FixedWindow::anchored(Rate::per_minute(units)).map(Quota::from)),
    ("sliding window", |units| SlidingWindow::new(Rate::per_minute(units)).map(Quota::from)),
    ("parts", |units| SlidingParts::new(Rate::per_minute(units), 8).map(Quota::from)),
    ("log", |units| SlidingLog::new(Rate::per_minute(units)).map(Quota::from)),
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn snapshot(store: &MemoryStore<ManualClock>) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.write_snapshot(store.now(), &mut bytes).unwrap();
    bytes
}

fn restored(keys: usize, bytes: &[u8], elapsed: Span) -> Result<MemoryStore<ManualClock>, SnapshotError> {
    MemoryStore::from_snapshot(keys, &mut &*bytes, |at| ManualClock::at(at + elapsed))
}

fn take(store: &MemoryStore<ManualClock>, rule: &Rule, key: u64, units: u64) -> Outcome {
    store.decide_now(&[Check::new(rule, &key.to_le_bytes(), units)]).outcomes[0]
}

#[test]
fn a_restored_store_answers_as_the_first_one_would_have() {
    for (name, kind) in KINDS {
        for seed in 0..20 {
            let mut random = Random(seed);
            // A small store evicts keys, so the floors have to be restored too.
            let keys = if seed % 2 == 0 { 1_000 } else { 16 };
            let before = Rule::new(name, kind(6).unwrap());
            let rule = Rule::new(name, kind(9).unwrap()).replacing(&before);
            let clock = ManualClock::at(START);
            let store = MemoryStore::with_seed(keys, clock.clone(), seed);
            for _ in 0..300 {
                let of = if random.below(3) == 0 { &before } else { &rule };
                take(&store, of, random.below(60), 1 + random.below(3));
                clock.advance(Span::from_micros(random.below(200_000)));
            }
            let bytes = snapshot(&store);
            let elapsed = Span::from_micros(random.below(40_000_000));
            clock.advance(elapsed);
            let other = restored(keys, &bytes, elapsed).unwrap();
            for key in 0..60 {
                for units in [0, 1, 2] {
                    let expected = take(&store, &rule, key, units);
                    assert_eq!(take(&other, &rule, key, units), expected, "{name}, seed {seed}, key {key}");
                }
            }
            assert_eq!(other.evictions(), store.evictions(), "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_wall_clock_that_stepped_back_meanwhile_grants_nothing() {
    let rule = Rule::new("window", FixedWindow::epoch(Rate::per_hour(3)).unwrap());
    let clock = ManualClock::at(START);
    let store = MemoryStore::with_clock(100, clock.clone());
    assert_eq!(take(&store, &rule, 1, 3).remaining, 0);
    // The window has closed, and is open again for a wall clock that was set back.
    clock.advance(Span::from_hours(1));
    let other = restored(100, &snapshot(&store), Span::ZERO).unwrap();
    let later = other.clock().now();
    other.clock().set_wall(later.before(Span::from_hours(1)));
    assert!(!take(&other, &rule, 1, 1).is_admitted());
    other.clock().set_wall(later);
    assert!(take(&other, &rule, 1, 1).is_admitted());
}

#[test]
fn slots_end_with_the_process() {
    let rule = Rule::new("slots", Concurrency::new(1, Span::from_hours(1)).unwrap());
    let store = MemoryStore::with_clock(100, ManualClock::at(START));
    let hold = |store: &MemoryStore<ManualClock>, owner| {
        let amount = Amount::Slot(Owner(owner));
        store.decide_now(&[Check { amount, ..Check::new(&rule, b"key", 0) }]).admitted
    };
    assert!(hold(&store, 1) && !hold(&store, 2));
    assert!(hold(&restored(100, &snapshot(&store), Span::ZERO).unwrap(), 2));
}

#[test]
fn a_snapshot_of_another_size_or_version_is_refused() {
    let store = MemoryStore::with_clock(100, ManualClock::at(START));
    let mut bytes = snapshot(&store);
    assert!(matches!(restored(200, &bytes, Span::ZERO), Err(SnapshotError::OtherSize)));
    bytes[7] += 1;
    assert!(matches!(restored(100, &bytes, Span::ZERO), Err(SnapshotError::Unknown)));
    assert!(matches!(restored(100, b"", Span::ZERO), Err(SnapshotError::Damaged)));
}

#[test]
fn damaged_bytes_never_panic() {
    let clock = ManualClock::at(START);
    let store = MemoryStore::with_seed(16, clock, 7);
    let rules: Vec<_> = KINDS.iter().map(|(name, kind)| Rule::new(name, kind(9).unwrap())).collect();
    for key in 0..40 {
        for rule in &rules {
            take(&store, rule, key, 2);
        }
    }
    let bytes = snapshot(&store);
    for length in 0..bytes.len() {
        assert!(restored(16, &bytes[..length], Span::ZERO).is_err(), "cut to {length}");
    }
    let mut random = Random(1);
    for _ in 0..20_000 {
        let mut damaged = bytes.clone();
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        damaged[at] = u8::try_from(random.below(256)).unwrap();
        let Ok(store) = restored(16, &damaged, Span::from_secs(1)) else { continue };
        for rule in &rules {
            take(&store, rule, random.below(60), 1);
        }
    }
}
