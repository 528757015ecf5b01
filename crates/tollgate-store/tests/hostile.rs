//! A flood of keys neither grows the store nor exceeds a limit.

use tollgate_core::{Bucket, FixedWindow, Quota, Rate, Rule, SlidingLog, SlidingParts, Span, Timestamp};
use tollgate_store::{Check, ManualClock, MemoryStore};

const NOW: Timestamp = Timestamp::from_secs(1_772_366_400);
const MAX_KEYS: usize = 10_000;

fn store() -> MemoryStore<ManualClock> {
    MemoryStore::with_seed(MAX_KEYS, ManualClock::at(NOW), 7)
}

fn take(store: &MemoryStore<ManualClock>, rule: &Rule, key: u64, cost: u64) -> bool {
    store.take(&Check::new(rule, &key.to_le_bytes(), cost), store.now()).is_admitted()
}

/// Drains some keys, floods the store with others, and checks the result.
fn flood(quota: impl Into<Quota>, keys: u64, cost: u64) {
    let (store, rule) = (store(), Rule::new("flooded", quota));
    let capacity = rule.quota.capacity();
    let drained: Vec<u64> = (0..500).map(|n| u64::MAX - n).collect();
    for &key in &drained {
        assert!(take(&store, &rule, key, capacity));
    }
    let before = store.usage();
    let passed = (0..keys).filter(|&key| take(&store, &rule, key, cost)).count() as u64;
    let after = store.usage();
    assert!(after.keys <= MAX_KEYS * 2, "{} keys are kept", after.keys);
    assert!(after.bytes <= before.bytes.max(MAX_KEYS * 2 * 160), "{} bytes", after.bytes);
    assert!(after.evictions > 0 || passed < keys, "the flood fits into the store");
    // The admitted units are at most those that this many slots can hold.
    assert!(passed * cost <= after.keys as u64 * capacity, "{passed} requests passed");
    for &key in &drained {
        assert!(!take(&store, &rule, key, 1), "a drained key was freed");
    }
}

#[test]
fn ten_million_new_keys_neither_grow_the_store_nor_free_a_drained_key() {
    flood(Bucket::new(Rate::per_hour(10)).unwrap(), 10_000_000, 1);
}

#[test]
fn keys_that_are_all_drained_do_not_free_each_other() {
    flood(Bucket::new(Rate::per_hour(10)).unwrap(), 1_000_000, 10);
}

#[test]
fn windows_withstand_a_flood_like_buckets() {
    flood(FixedWindow::epoch(Rate::per_day(10)).unwrap(), 1_000_000, 1);
}

#[test]
fn wide_states_are_bounded_too() {
    flood(SlidingLog::new(Rate::per_hour(10)).unwrap(), 300_000, 1);
    flood(SlidingParts::new(Rate::per_hour(10), 7).unwrap(), 300_000, 1);
}

#[test]
fn a_slow_limit_used_once_is_evicted_before_a_drained_fast_one() {
    let store = store();
    let fast = Rule::new("fast", Bucket::new(Rate::per_minute(10)).unwrap());
    let slow = Rule::new("slow", Bucket::new(Rate::per_day(1_000)).unwrap());
    for key in 0..500 {
        assert!(take(&store, &fast, key, 10));
    }
    // A daily limit used once counts for 86 seconds, a drained minute for 60.
    for key in 0..200_000 {
        take(&store, &slow, key, 1);
    }
    for key in 0..500 {
        assert!(!take(&store, &fast, key, 1), "the drained key {key} was evicted");
    }
}

#[test]
fn short_lived_keys_do_not_evict_a_half_spent_hourly_key() {
    let store = MemoryStore::with_seed(1_000, ManualClock::at(NOW), 7);
    let hourly = Rule::new("hourly", Bucket::new(Rate::per_hour(100)).unwrap());
    let fleeting = Rule::new("fleeting", Bucket::new(Rate::per_second(10)).unwrap());
    let mut passed = 0;
    for round in 0..20 {
        passed += (0..50).filter(|_| take(&store, &hourly, 1, 1)).count();
        for key in 0..6_000 {
            take(&store, &fleeting, round << 32 | key, 6);
        }
        store.clock().advance(Span::from_secs(2));
    }
    assert!(passed <= 102, "{passed} of a hundred an hour in forty seconds");
}

#[test]
fn expired_keys_make_room_without_a_sweep() {
    let (store, rule) = (store(), Rule::new("short", Bucket::new(Rate::per_second(1)).unwrap()));
    for round in 0..20 {
        let passed = (0..MAX_KEYS as u64).filter(|key| take(&store, &rule, round << 32 | key, 1)).count();
        assert!(passed >= MAX_KEYS - 2, "{} keys found no room in round {round}", MAX_KEYS - passed);
        store.clock().advance(Span::from_secs(2));
    }
    assert_eq!(store.usage().keys, 0);
}

#[test]
fn a_store_for_a_million_keys_takes_at_most_32_bytes_for_each() {
    let store = MemoryStore::with_seed(1_000_000, ManualClock::at(NOW), 7);
    let rule = Rule::new("many", Bucket::new(Rate::per_hour(10)).unwrap());
    for key in 0..1_000_000 {
        assert!(take(&store, &rule, key, 1), "the millionth key finds room as the first does");
    }
    let usage = store.usage();
    assert!(usage.bytes <= 32_000_000, "{} bytes", usage.bytes);
    assert!(usage.keys >= 999_900, "{} keys are kept", usage.keys);
}

#[test]
fn a_flood_with_changing_numbers_frees_no_key_and_erases_no_debt() {
    let store = MemoryStore::with_seed(100, ManualClock::at(NOW), 7);
    let rule =
        |rate, burst| Rule::new("shared", Bucket::new(rate).unwrap().with_burst(burst).unwrap().shared());
    let slow = rule(Rate::per_day(1), 5);
    assert!(take(&store, &slow, u64::MAX, 5));
    for n in 0..100_000_u64 {
        store.clock().advance(Span::from_micros(n % 7));
        let other = rule(Rate::new(1, Span::from_micros(1 + n * n % 5_000_011)), 1 + n % 1_000);
        assert!(!take(&store, &other, u64::MAX, 1) || other.quota.period() > Span::from_days(4));
        take(&store, &other, n % 300, 1 + n % 9);
    }
    assert!(!take(&store, &slow, u64::MAX, 1), "a debt of five days is kept");
    assert!(store.usage().keys <= 200);
}

/// The entry of the table, the parts, and the unused entries of sets.
#[test]
fn a_key_of_seven_parts_takes_two_cache_lines() {
    let (store, rule) = (store(), Rule::new("parts", SlidingParts::new(Rate::per_minute(100), 7).unwrap()));
    let empty = store.usage().bytes;
    for second in 0..10 {
        for key in 0..MAX_KEYS as u64 {
            take(&store, &rule, key, 1);
        }
        store.clock().set(NOW + Span::from_secs(second + 1));
    }
    let usage = store.usage();
    let each = (usage.bytes - empty) / usage.keys;
    assert!(each <= 128, "{each} bytes a key");
}
