//! The controller of a shedder, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use proptest::prelude::*;
use tollgate_overload::shedder::{AT_TARGET, Level, Shedder, ShedderRates, Smoothed};

/// The time between two updates.
const TICK: Duration = Duration::from_millis(100);

/// A controller: utilization in thousandths to a level, once per tick.
trait Controller {
    fn update(&mut self, now: Duration, utilization: u32) -> Level;
}

/// The controller under test with three classes.
struct WithHysteresis(Shedder, ShedderRates);

impl WithHysteresis {
    fn new() -> Self {
        Self(Shedder::default(), ShedderRates::default())
    }
}

impl Controller for WithHysteresis {
    fn update(&mut self, now: Duration, utilization: u32) -> Level {
        self.0.update(now, utilization, 3, &self.1)
    }
}

/// A controller with the same speeds, without a gap between rising and falling and without holds.
struct WithoutHysteresis(i64);

impl Controller for WithoutHysteresis {
    fn update(&mut self, _: Duration, utilization: u32) -> Level {
        let step = if utilization > AT_TARGET { 50 } else { -20 };
        self.0 = (self.0 + step).clamp(0, 3_000);
        Level::from_thousandths(u32::try_from(self.0).unwrap())
    }
}

/// Counts how often a level changes its direction.
#[derive(Default)]
struct Turns {
    last: Option<Level>,
    rises: Option<bool>,
    count: u32,
}

impl Turns {
    fn see(&mut self, level: Level) {
        let last = self.last.replace(level).unwrap_or(level);
        if level == last {
            return;
        }
        let rises = level > last;
        self.count += u32::from(self.rises.replace(rises).is_some_and(|before| before != rises));
    }
}

/// A seeded generator: the same sequence in every run.
struct Noise(u64);

impl Noise {
    /// Returns a factor of 1000 plus or minus `percent`.
    fn around_1000(&mut self, percent: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1_000 - percent * 10 + (self.0 >> 33) % (percent * 20 + 1)
    }
}

fn ticks(seconds: u64) -> impl Iterator<Item = Duration> {
    (0..seconds * 10).map(|tick| TICK * u32::try_from(tick).unwrap())
}

/// Returns the turns under a square wave with noise, whose signal does not react.
fn turns_under_a_wave(controller: &mut dyn Controller, period_ms: u128, seed: u64) -> u32 {
    let (mut turns, mut noise) = (Turns::default(), Noise(seed));
    for now in ticks(120) {
        let base = if now.as_millis() % period_ms < period_ms / 2 { 1_400 } else { 600 };
        let utilization = u32::try_from(base * noise.around_1000(20) / 1_000).unwrap();
        turns.see(controller.update(now, utilization));
    }
    turns.count
}

#[test]
fn a_square_wave_faster_than_the_hold_turns_the_level_never() {
    for seed in 1..=20 {
        assert_eq!(turns_under_a_wave(&mut WithHysteresis::new(), 1_000, seed), 0, "seed {seed}");
        // 120 waves in 120 seconds: the controller without hysteresis follows each of them.
        let without = turns_under_a_wave(&mut WithoutHysteresis(0), 1_000, seed);
        assert!(without >= 200, "seed {seed}: {without}");
    }
}

#[test]
fn a_slow_square_wave_turns_the_level_twice_per_period() {
    for seed in 1..=20 {
        let turns = turns_under_a_wave(&mut WithHysteresis::new(), 20_000, seed);
        assert!((1..=12).contains(&turns), "seed {seed}: {turns} turns in 6 periods");
    }
}

/// A service that is loaded by three classes of equal size, with as many workers as its capacity.
/// Its requests wait for a worker; requests in flight are the signal, so shedding lowers the signal.
struct Service {
    /// Requests that wait or run, in thousandths.
    in_flight: u64,
    smoothed: Smoothed,
    level: Level,
    noise: Noise,
}

/// The number of requests that the service ends per tick, in thousandths, and the target in flight.
const CAPACITY: u64 = 20_000;
const TARGET: u64 = 40_000;

impl Service {
    fn new(seed: u64) -> Self {
        Self { in_flight: 0, smoothed: Smoothed::default(), level: Level::ZERO, noise: Noise(seed) }
    }

    /// Runs one tick at `load` times the capacity, in percent, and returns the level.
    fn tick(&mut self, now: Duration, load: u64, controller: &mut dyn Controller) -> Level {
        let offered = CAPACITY * load / 100 * self.noise.around_1000(20) / 1_000;
        let shed: u64 = (0..3).map(|rank| u64::from(self.level.share(rank, 3))).sum();
        let admitted = offered * (3_000 - shed) / 3_000;
        // Half of the running requests end in a tick, up to the capacity.
        let before = self.in_flight + admitted;
        self.in_flight = before - (before / 2).min(CAPACITY);
        let measured = self.smoothed.update(now, self.in_flight);
        let utilization = u32::try_from(measured * 1_000 / TARGET).unwrap_or(u32::MAX);
        self.level = controller.update(now, utilization);
        self.level
    }
}

fn turns_of_a_service(controller: &mut dyn Controller, seed: u64, load: impl Fn(Duration) -> u64) -> u32 {
    let (mut service, mut turns) = (Service::new(seed), Turns::default());
    for now in ticks(120) {
        turns.see(service.tick(now, load(now), controller));
    }
    turns.count
}

#[test]
fn a_constant_overload_that_reacts_to_shedding_settles() {
    for seed in 1..=20 {
        for load in [130, 200, 400] {
            let turns = turns_of_a_service(&mut WithHysteresis::new(), seed, |_| load);
            assert!(turns <= 30, "seed {seed}, load {load} %: {turns} turns in two minutes");
            let without = turns_of_a_service(&mut WithoutHysteresis(0), seed, |_| load);
            assert!(without > turns, "seed {seed}, load {load} %: {without} against {turns}");
        }
    }
}

#[test]
fn a_square_wave_of_load_that_reacts_to_shedding_turns_the_level_a_few_times_per_period() {
    let load = |now: Duration| if now.as_secs() % 20 < 10 { 400 } else { 30 };
    for seed in 1..=20 {
        let turns = turns_of_a_service(&mut WithHysteresis::new(), seed, load);
        assert!(turns <= 24, "seed {seed}: {turns} turns in 6 periods");
    }
}

#[test]
fn an_overload_sheds_within_seconds_and_its_end_admits_all_classes_within_seconds() {
    let (mut service, mut controller) = (Service::new(1), WithHysteresis::new());
    for now in ticks(60) {
        let level = service.tick(now, if now.as_secs() < 30 { 400 } else { 30 }, &mut controller);
        let elapsed = now.as_secs_f32();
        if (10.0..30.0).contains(&elapsed) {
            // A quarter of the load fits: two classes and a part of the third are shed.
            assert!(level.share(2, 3) == 1_000 && level.share(1, 3) == 1_000, "{elapsed} s: {level:?}");
            assert!(level.share(0, 3) < 700, "{elapsed} s: {level:?}");
        }
        if elapsed > 55.0 {
            assert_eq!(level, Level::ZERO, "{elapsed} s");
        }
    }
}

#[test]
fn classes_are_shed_one_after_the_other_with_a_hold_in_between() {
    let mut controller = WithHysteresis::new();
    let levels: Vec<_> = ticks(11).map(|now| controller.update(now, 1_250).thousandths()).collect();
    let at = |millis: usize| levels[millis / 100];
    assert_eq!([at(0), at(100), at(1_000), at(2_000)], [0, 50, 500, 1_000]);
    assert_eq!([at(3_000), at(3_900), at(4_000)], [1_000, 1_000, 1_050]);
    assert_eq!([at(5_900), at(7_800), at(7_900), at(9_800)], [2_000, 2_000, 2_050, 3_000]);
}

#[test]
fn a_level_falls_after_the_hold_and_in_the_configured_time() {
    let rates = ShedderRates { rise: TICK, fall: Duration::from_secs(10), hold: Duration::from_secs(3) };
    let mut shedder = Shedder::default();
    shedder.update(Duration::ZERO, 5_000, 1, &rates);
    assert_eq!(shedder.update(TICK, 5_000, 1, &rates).thousandths(), 1_000);
    let after = |tick: u32, shedder: &mut Shedder| shedder.update(TICK * tick, 0, 1, &rates).thousandths();
    let levels: Vec<_> = (2..=140).map(|tick| after(tick, &mut shedder)).collect();
    assert_eq!((levels[27], levels[29], levels[79], levels[129]), (1_000, 990, 490, 0));
}

#[test]
fn a_utilization_within_the_gap_keeps_the_level() {
    let mut controller = WithHysteresis::new();
    let level = ticks(1).map(|now| controller.update(now, 1_500)).last().unwrap();
    for (tick, utilization) in (10..1_000).zip([875, 900, 950, 1_000].into_iter().cycle()) {
        assert_eq!(controller.update(TICK * tick, utilization), level);
    }
}

#[test]
fn a_clock_that_steps_back_neither_moves_the_level_nor_stops_it() {
    let mut controller = WithHysteresis::new();
    let hour = Duration::from_secs(3_600);
    let level = ticks(1).map(|now| controller.update(hour + now, 1_500)).last().unwrap();
    assert_eq!(controller.update(Duration::ZERO, 0), level);
    let later = ticks(20).map(|now| controller.update(now, 0)).last().unwrap();
    assert_eq!(later, Level::ZERO);
    // A controller that was not updated for an hour moves by one second.
    assert_eq!(controller.update(hour * 2, 1_250), Level::from_thousandths(500));
}

#[test]
fn a_shed_share_of_a_class_is_spread_over_its_requests() {
    let level = Level::from_thousandths(300);
    let numbers = (0..10_000u32).map(|it| it.wrapping_mul(0x9e37_79b9));
    let shed: Vec<bool> = numbers.map(|number| level.sheds(2, 3, number)).collect();
    assert_eq!(shed.iter().filter(|it| **it).count(), 3_000);
    // No caller that sends ten requests in a row has all of them shed, or none.
    assert!(shed.windows(10).all(|ten| (2..=4).contains(&ten.iter().filter(|it| **it).count())));
    assert!([0, u32::MAX].iter().all(|number| !Level::ZERO.sheds(2, 3, *number)));
    assert!([0, u32::MAX].iter().all(|number| Level::from_thousandths(1_000).sheds(2, 3, *number)));
}

#[test]
fn an_average_reaches_its_value_from_both_sides_and_survives_large_numbers() {
    for (from, to) in [(0, 7), (7, 0), (u64::MAX, 0), (0, u64::MAX), (1_000, 1_001)] {
        let mut signal = Smoothed::default();
        signal.update(Duration::ZERO, from);
        let reached = ticks(60).map(|now| signal.update(now, to)).last();
        assert_eq!(reached, Some(to), "from {from}");
    }
}

proptest! {
    #[test]
    fn the_level_begins_to_fall_at_most_once_per_hold(
        inputs in proptest::collection::vec((0u32..3_000, 1u64..2_000), 1..500),
        classes in 0u8..5,
    ) {
        let (mut shedder, rates) = (Shedder::default(), ShedderRates::default());
        let (mut now, mut last, mut falls) = (Duration::ZERO, Level::ZERO, false);
        let mut starts = Vec::new();
        for (utilization, millis) in inputs {
            now += Duration::from_millis(millis);
            let level = shedder.update(now, utilization, classes, &rates);
            prop_assert!(level.thousandths() <= u32::from(classes) * 1_000);
            // A step never goes beyond the class that it is in.
            let class = |level: Level| level.thousandths().div_ceil(1_000);
            prop_assert!(class(level) <= class(last) + 1);
            if level < last && !std::mem::replace(&mut falls, true) {
                starts.push(now);
            }
            falls &= level <= last;
            last = level;
        }
        prop_assert!(starts.windows(2).all(|two| two[1] >= two[0] + rates.hold));
    }
}
