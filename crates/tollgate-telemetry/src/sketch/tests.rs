//! Compares the sketch with exact counts.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Feeds weighted keys to a sketch with `most` entries, and checks its invariants.
#[track_caller]
fn check(most: usize, stream: impl IntoIterator<Item = (u64, u64)>) {
    let mut sketch = Sketch::new(most);
    let mut exact: HashMap<u64, u64> = HashMap::new();
    let mut total = 0;
    for (key_hash, weight) in stream {
        sketch.add(key_hash, weight, weight % 2 == 1, || key_hash.to_string());
        *exact.entry(key_hash).or_default() += weight;
        total += weight;
    }
    assert_eq!(sketch.total(), total);
    assert_eq!(
        sketch.entries().iter().map(|entry| entry.count).sum::<u64>(),
        total,
        "the counts add up to the weight of the stream"
    );
    let bound = total / most as u64;
    assert!(sketch.smallest() <= bound);
    for entry in sketch.entries() {
        let truth = exact.remove(&entry.key_hash).unwrap();
        assert!(entry.count - entry.error <= truth && truth <= entry.count, "{entry:?} is {truth}");
        assert!(entry.error <= bound && entry.marked <= truth, "{entry:?} of {total}");
        assert_eq!(entry.payload, entry.key_hash.to_string(), "each entry has its own name");
    }
    for (key_hash, truth) in exact {
        assert!(truth <= sketch.smallest(), "{key_hash} weighs {truth} and has no entry");
    }
    for (at, entry) in sketch.entries().iter().enumerate() {
        assert_eq!(sketch.places.get(&entry.key_hash), u32::try_from(at).ok().as_ref());
        assert!(at == 0 || sketch.entries()[(at - 1) / 2].count <= entry.count, "the heap is broken at {at}");
    }
    assert_eq!(sketch.places.len(), sketch.entries().len());
}

#[test]
fn adversarial_streams_keep_the_bound() {
    for most in [1, 2, 7, 64] {
        let m = most as u64;
        check(most, (0..5_000).map(|key| (key, 1)));
        check(most, (0..5_000).map(|turn| (turn % (m + 1), 1)));
        check(most, (0..5_000).map(|turn| (turn % m, 1)));
        // One heavy key among ever new ones; then the heavy keys first or last.
        check(most, (0..5_000).map(|turn| (if turn % 3 == 0 { 1_000_000 } else { turn }, 1)));
        check(most, (0..2_000).map(|_| (9, 1)).chain((0..3_000).map(|key| (100 + key, 1))));
        check(most, (0..3_000).map(|key| (100 + key, 1)).chain((0..2_000).map(|_| (9, 1))));
        check(most, (0..2_000).map(|key| (key % 97, key * key % 1_009)));
    }
    check(3, []);
}

#[test]
fn a_cleared_sketch_behaves_like_a_new_one() {
    let mut sketch = Sketch::new(4);
    (0..100).for_each(|key| sketch.add(key, 1, false, || ()));
    sketch.clear();
    assert_eq!((sketch.total(), sketch.smallest(), sketch.entries().len()), (0, 0, 0));
    sketch.add(7, 3, false, || ());
    assert_eq!(sketch.entries()[0].count, 3);
}

#[test]
fn names_are_computed_only_when_an_entry_is_taken() {
    let (mut sketch, mut calls) = (Sketch::new(2), 0);
    for key_hash in [1, 1, 1, 2, 2, 2, 3, 1, 1, 1] {
        sketch.add(key_hash, 1, false, || calls += 1);
    }
    // 1, 2, then 3 in place of one of them, and possibly that one again.
    assert!((3..=4).contains(&calls), "{calls}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_stream_keeps_the_bound(
        most in 1_usize..40,
        stream in prop::collection::vec((0_u64..120, 0_u64..50), 0..800),
    ) {
        check(most, stream);
    }
}
