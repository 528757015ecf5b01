//! The in-memory store passes the conformance suite.

use std::future::{Future, ready};

use tollgate_core::{Bucket, FixedWindow, Rate, Rule, Span, Timestamp};
use tollgate_store::conformance::{self, Harness};
use tollgate_store::{Check, ManualClock, MemoryStore};

struct Memory(MemoryStore<ManualClock>);

impl Harness for Memory {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> &Self::Store {
        &self.0
    }

    fn pass(&self, span: Span) -> impl Future<Output = ()> {
        self.0.clock().advance(span);
        ready(())
    }

    fn set_clock(&self, now: Timestamp) -> impl Future<Output = bool> {
        self.0.clock().set(now);
        ready(true)
    }

    fn cases(&self) -> u64 {
        200
    }
}

#[test]
fn memory_conforms_at_any_start_time() {
    // On the second, and at an odd microsecond.
    for micros in [1_772_366_400_000_000, 1_772_366_412_345_678] {
        let clock = ManualClock::at(Timestamp::from_micros(micros));
        pollster::block_on(conformance::run(&Memory(MemoryStore::with_seed(100_000, clock, 7))));
    }
}

#[test]
fn a_fixed_window_counts_until_its_last_microsecond() {
    let start = Timestamp::from_micros(1_772_366_400_123_001);
    let store = MemoryStore::with_seed(100, ManualClock::at(start), 7);
    let rule = Rule::new("window", FixedWindow::epoch(Rate::per_second(10)).unwrap());
    for before_end in [999, 500, 1] {
        store.clock().set(Timestamp::from_micros(1_772_366_401_000_000 - before_end));
        let passed = (0..50).filter(|_| store.decide_now(&[Check::new(&rule, b"key", 1)]).admitted).count();
        assert_eq!(passed, if before_end == 999 { 10 } else { 0 }, "{before_end} µs before the end");
    }
}

#[test]
fn times_beyond_the_range_of_a_word_neither_grant_nor_hang() {
    let store = MemoryStore::with_seed(1, ManualClock::at(Timestamp::EPOCH), 7);
    let rule = Rule::new("bucket", Bucket::new(Rate::per_minute(7)).unwrap());
    for now in [0, 1, 1 << 49, (1 << 50) - 1, 1 << 50, u64::MAX / 2, u64::MAX] {
        let now = Timestamp::from_micros(now);
        let passed = (0..9u8)
            .flat_map(|key| [key; 20])
            .filter(|key| store.take(&Check::new(&rule, &[*key], 1), now).is_admitted());
        assert!(passed.count() <= 9 * 7, "at {now:?}");
    }
}

#[test]
fn reads_see_carried_usage_come_back() {
    let store = MemoryStore::with_seed(100, ManualClock::at(Timestamp::from_secs(1_772_366_400)), 7);
    let slow = Rule::new("api", Bucket::new(Rate::per_day(10)).unwrap());
    assert!(store.decide_now(&[Check::new(&slow, b"key", 10)]).admitted);
    let fast = Rule::new("api", Bucket::new(Rate::per_second(10)).unwrap()).replacing(&slow);
    let look = || store.decide_now(&[Check::new(&fast, b"key", 0)]).outcomes[0].remaining;
    for left in 0..=10 {
        assert_eq!((look(), look()), (left, left), "a tenth of a second for each");
        store.clock().advance(Span::from_millis(100));
    }
    assert_eq!(store.usage().keys, 2, "the old rule's state, in case it comes back, and its mark");
    store.clock().advance(Span::from_days(1));
    assert_eq!(store.usage().keys, 0, "under neither rule");
}
