//! Recall, memory and the bound over several panes.
#![allow(clippy::cast_precision_loss, reason = "a skewed stream is drawn with floats")]

use std::sync::Arc;

use tollgate_testkit::retained_bytes;

use super::*;

/// The same number as in `top`.
const KEYS: usize = 512;
const SEED: u64 = 0x5eed_0005;
const MINUTE: u64 = 60;

/// `SplitMix64`.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the hash of a key.
fn key_hash(key: usize) -> u64 {
    random(&mut (key as u64))
}

/// Draws from a million keys, key `k` with a weight of `1/(k+1)`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=keys)
                .map(|rank| {
                    sum += 1.0 / rank as f64;
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, state: &mut u64) -> usize {
        let all = self.0.last().copied().unwrap_or(1.0);
        let point = (random(state) >> 11) as f64 / (1_u64 << 53) as f64 * all;
        self.0.partition_point(|&sum| sum <= point)
    }
}

#[test]
fn the_top_ten_of_a_million_keys_are_found_within_four_mebibytes() {
    let (zipf, mut state) = (Zipf::new(1_000_000), SEED);
    let mut exact = vec![0_u64; 1_000_000];
    // Names of the maximum length.
    let limit: Arc<str> = "a-limit".into();
    let name = |key: usize| Arc::new((Arc::clone(&limit), format!("{key:0163}").into_boxed_str()));
    let draws = 1_000_000;
    let (windows, bytes) = retained_bytes(|| {
        let windows = WindowedTopK::new(KEYS);
        for draw in 0..draws {
            let key = zipf.draw(&mut state);
            exact[key] += 1;
            let at = Timestamp::from_secs(MINUTE * 1_000 + draw * 299 / draws);
            windows.add(key_hash(key), 1, true, at, || name(key));
        }
        windows
    });
    assert!(bytes <= 4 << 20, "{bytes} bytes");

    let sum = windows.heaviest(Timestamp::from_secs(MINUTE * 1_000 + 299), 10, By::Most);
    assert_eq!(sum.total, draws);
    assert!(sum.error <= draws / KEYS as u64, "{} of {draws}", sum.error);
    let mut truth: Vec<_> = (0..exact.len()).collect();
    truth.sort_by_key(|&key| std::cmp::Reverse(exact[key]));
    let found = truth[..10].iter().filter(|&&key| sum.entries.iter().any(|it| it.key_hash == key_hash(key)));
    let recall = found.count();
    assert!(recall >= 9, "{recall} of ten; seed {SEED:#x}");
    for entry in &sum.entries {
        let truth = exact[entry.payload.1.trim_start_matches('0').parse().unwrap_or(0_usize)];
        assert!(entry.count - entry.error <= truth && truth <= entry.count, "{entry:?} is {truth}");
    }
    println!("recall {recall}/10, {bytes} bytes, error at most {} of {draws}", sum.error);
}

#[test]
fn the_bounds_hold_for_each_key_over_several_panes() {
    let (windows, mut state) = (WindowedTopK::new(16), SEED);
    let mut exact = [0_u64; 200];
    for draw in 0..20_000_u64 {
        // Active in different minutes, so that a key has an entry in only some panes.
        let minute = draw / 4_000;
        let random = usize::try_from(random(&mut state) >> 33).unwrap();
        let key =
            if random % 2 == 0 { random % 200 } else { random % 7 + 10 * usize::try_from(minute).unwrap() };
        exact[key] += 1;
        windows.add(key_hash(key), 1, false, Timestamp::from_secs(MINUTE * (1_000 + minute)), || key);
    }
    let sum = windows.heaviest(Timestamp::from_secs(MINUTE * 1_004), 200, By::Most);
    assert_eq!(sum.total, 20_000);
    assert!(sum.error <= 20_000 / 16);
    for entry in &sum.entries {
        let truth = exact[entry.payload];
        assert!(entry.count - entry.error <= truth && truth <= entry.count, "{entry:?} is {truth}");
        assert!(entry.error <= sum.error);
    }
    for (key, &truth) in exact.iter().enumerate() {
        let is_listed = sum.entries.iter().any(|it| it.payload == key);
        assert!(is_listed || truth <= sum.error, "{key} came {truth} times");
    }
}

#[test]
fn counts_older_than_the_window_are_dropped() {
    let windows = WindowedTopK::new(16);
    let at = |minute: u64| Timestamp::from_secs(MINUTE * minute);
    let heaviest = |minute| {
        let sum = windows.heaviest(at(minute), 10, By::Most);
        (sum.total, sum.entries.into_iter().map(|it| it.payload).collect::<Vec<_>>())
    };
    windows.add(1, 5, false, at(100), || "early");
    windows.add(2, 3, false, at(102), || "late");
    assert_eq!(heaviest(104), (8, vec!["early", "late"]));
    assert_eq!(heaviest(105), (3, vec!["late"]));
    assert_eq!(heaviest(107), (0, vec![]));
    windows.add(3, 1, false, at(110), || "new");
    assert_eq!(heaviest(110), (1, vec!["new"]));
    windows.add(1, 9, false, at(105), || "from a slow clock");
    assert_eq!(heaviest(110), (1, vec!["new"]));
}
