//! The last five minutes of all decisions by second, and of each limit by step.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use proptest::prelude::*;
use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_telemetry::{WatchSettings, Watcher};

const START: u64 = 1_700_000_000;

/// A limiter with a manual clock and its watcher.
struct Scene {
    clock: ManualClock,
    limiter: Limiter<MemoryStore<ManualClock>>,
    watcher: Watcher,
    /// The time of the timer.
    second: u64,
}

impl Scene {
    fn new(policy: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(START));
        let watcher = Watcher::new(&WatchSettings::default());
        let store = MemoryStore::with_clock(10_000, clock.clone());
        let limiter = Limiter::with_store(Policy::parse(policy).unwrap(), store)
            .with_observer_on(Arc::new(watcher.clone()), clock.clone());
        watcher.tick(Timestamp::from_secs(START));
        Self { clock, limiter, watcher, second: START }
    }

    fn ask(&self, times: usize) {
        for _ in 0..times {
            drop(self.limiter.check(&Call::new("GET", "/").user("ann")));
        }
    }

    /// Advances the time by `seconds`, then ticks once.
    fn tick_after(&mut self, seconds: u64) {
        self.second += seconds;
        self.clock.advance(Span::from_secs(seconds));
        self.watcher.tick(Timestamp::from_secs(self.second));
    }
}

#[test]
fn each_second_has_its_own_decisions() {
    let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 5/hour}]");
    scene.ask(3);
    scene.tick_after(1);
    scene.ask(4);
    scene.tick_after(1);
    scene.tick_after(1);
    let series = scene.watcher.series();
    assert_eq!(series.until, START + 3);
    assert_eq!(series.allowed[296..], [3, 2, 0, 0]);
    assert_eq!(series.refused[296..], [0, 2, 0, 0]);
    for all in [&series.allowed, &series.refused, &series.shadow_limited, &series.degraded] {
        assert_eq!(all.len(), 300);
    }
    assert_eq!(series.allowed[..296].iter().sum::<u32>(), 0);
}

#[test]
fn missed_ticks_are_zeros_and_old_seconds_are_dropped() {
    let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 5/hour}]");
    scene.ask(1);
    scene.tick_after(1);
    scene.ask(2);
    scene.tick_after(4);
    assert_eq!(scene.watcher.series().allowed[294..], [1, 2, 0, 0, 0, 0]);
    scene.tick_after(294);
    assert_eq!(scene.watcher.series().allowed[..3], [1, 2, 0], "the oldest second that is kept");
    scene.tick_after(1);
    assert_eq!(scene.watcher.series().allowed.iter().sum::<u32>(), 2);
    scene.tick_after(1_000_000_000);
    assert_eq!(scene.watcher.series().allowed.iter().sum::<u32>(), 0);
}

#[test]
fn a_clock_that_steps_back_loses_no_counts() {
    let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 50/hour}]");
    scene.ask(1);
    scene.tick_after(1);
    scene.ask(2);
    scene.second -= 5000;
    scene.tick_after(0);
    scene.ask(3);
    scene.tick_after(1);
    let series = scene.watcher.series();
    assert_eq!((series.until, &series.allowed[296..]), (START + 1 - 5000 + 1, &[1, 2, 3, 0][..]));
    scene.ask(4);
    scene.tick_after(0);
    scene.ask(5);
    scene.tick_after(1);
    assert_eq!(scene.watcher.series().allowed[296..], [2, 3, 9, 0], "two ticks in one second count as one");
    assert_eq!(scene.watcher.limit_window("api").unwrap().counts.allowed, 15);
}

#[test]
fn the_series_of_a_limit_has_steps_of_five_seconds() {
    let mut scene = Scene::new(
        "limits: [{name: api, by: user, bucket: 4/hour}, {name: trial, by: user, bucket: 1/hour, mode: shadow}]",
    );
    scene.ask(3);
    for _ in 0..5 {
        scene.tick_after(1);
    }
    scene.ask(2);
    scene.tick_after(10);
    scene.ask(1);
    let series = scene.watcher.limit_series("api").unwrap();
    assert_eq!(series.until, START + 15);
    assert_eq!((&series.allowed[56..], &series.limited[56..]), (&[3, 1, 0, 0][..], &[0, 1, 0, 1][..]));
    assert_eq!(
        series.remaining[55..],
        [None, Some(250), Some(0), None, Some(0)],
        "the current step is the last"
    );
    assert_eq!([series.allowed.len(), series.limited.len(), series.remaining.len()], [60; 3]);
    let trial = scene.watcher.limit_series("trial").unwrap();
    assert_eq!((&trial.allowed[56..], &trial.limited[56..]), (&[1, 0, 0, 0][..], &[2, 2, 0, 1][..]));
    assert_eq!(scene.watcher.limit_series("nobody"), None);
}

#[test]
fn the_window_of_a_limit_is_the_last_five_minutes() {
    let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 4/hour, soft: 50%}]");
    scene.ask(5);
    let now = scene.watcher.limit_window("api").unwrap();
    assert_eq!((now.counts.allowed, now.counts.limited, now.remaining_min), (4, 1, Some(0)), "at once");
    scene.tick_after(5);
    scene.ask(1);
    let window = scene.watcher.limit_window("api").unwrap();
    assert_eq!(window.counts, scene.watcher.limit_totals("api").unwrap());
    assert_eq!((window.counts.soft, window.counts.exhausted, window.counts.limited), (3, 1, 2));
    // The window begins at a multiple of 15 seconds, and the test began 5 seconds after one.
    scene.tick_after(5);
    scene.tick_after(284);
    assert_eq!(scene.watcher.limit_window("api").unwrap().counts.limited, 2);
    scene.tick_after(1);
    let window = scene.watcher.limit_window("api").unwrap();
    assert_eq!((window.counts.allowed, window.counts.limited), (0, 0), "older counts are dropped");
    assert_eq!(scene.watcher.limit_window("api"), Some(tollgate_telemetry::LimitWindow::default()));
    assert_eq!(scene.watcher.limit_totals("api").unwrap().limited, 2);
}

/// Returns the refusals in the last five minutes: in total, by limit, by key and by route.
fn refused_by_each(scene: &Scene) -> [u64; 4] {
    let now = Timestamp::from_secs(scene.second);
    scene.watcher.tick(now);
    let (window, top) = (scene.watcher.series().window, scene.watcher.top(now, 10));
    let limit = scene.watcher.limit_window("api").unwrap().counts.limited;
    let of_keys = top.keys.iter().map(|key| key.refused).sum();
    assert_eq!(window.from, top.from);
    let routes: u64 = top.routes.iter().map(|route| route.refused).sum();
    assert_eq!(top.refused, of_keys);
    [window.refused, limit, of_keys, routes]
}

#[test]
fn all_counts_use_the_same_five_minutes() {
    let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 1/day}]");
    scene.ask(1);
    let mut refused: Vec<u64> = vec![0];
    for turn in 0..900_usize {
        scene.ask(turn % 3);
        refused[turn] += turn as u64 % 3;
        let counts = refused_by_each(&scene);
        let start = scene.second + 1 - 300;
        let start = START.max(start.next_multiple_of(15));
        let expected: u64 = refused[usize::try_from(start - START).unwrap()..].iter().sum();
        assert_eq!(counts, [expected; 4], "second {turn}, including the current one");
        scene.tick_after(1);
        refused.push(0);
    }
}

#[test]
fn latency_is_of_the_last_minute() {
    let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 4/hour}]");
    assert_eq!(scene.watcher.latency(), None);
    // With a clock that stands still, decisions take no time and fall into the first bucket.
    scene.ask(1);
    assert_eq!(scene.watcher.latency(), Some([Span::from_micros(1); 3]));
    scene.tick_after(60);
    assert_eq!(scene.watcher.latency(), Some([Span::from_micros(1); 3]));
    scene.tick_after(55);
    assert!(scene.watcher.latency().is_some());
    scene.tick_after(5);
    assert_eq!(scene.watcher.latency(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any timing of ticks, counts in the window were counted, and no more than once.
    #[test]
    fn no_timing_of_ticks_counts_a_decision_twice(ticks in prop::collection::vec((0..3usize, any::<i16>()), 1..80)) {
        let mut scene = Scene::new("limits: [{name: api, by: user, bucket: 20/hour}]");
        let mut requests = 0;
        for (times, step) in ticks {
            scene.ask(times);
            requests += times as u64;
            scene.second = scene.second.saturating_add_signed(step.into());
            scene.watcher.tick(Timestamp::from_secs(scene.second));
            let series = scene.watcher.series();
            let sum: u64 = series.allowed.iter().chain(&series.refused).map(|&it| u64::from(it)).sum();
            prop_assert!(sum <= requests);
            let window = scene.watcher.limit_window("api").unwrap().counts;
            let total = scene.watcher.limit_totals("api").unwrap();
            prop_assert!(window.allowed <= total.allowed && window.limited <= total.limited);
            prop_assert_eq!(total.allowed + total.limited, requests);
        }
    }
}
