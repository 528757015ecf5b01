//! Strict sliding windows in parts: no schedule gets more than the limit.

use tollgate_core::{Amount, Quota, Rate, SlidingLog, SlidingParts, Span};

use crate::trace::START;

const RATE: Rate = Rate::per_minute(100);

/// Milliseconds after the start, and the largest number of units.
type Schedule = Vec<(u64, u64)>;

/// Returns the largest number of units that a schedule gets in any stretch of the period.
fn most_in_a_window(limit: &Quota, schedule: &Schedule) -> u64 {
    let (mut state, mut admitted) = (limit.fresh(), Vec::new());
    for &(at, units) in schedule {
        let now = START + Span::from_millis(at);
        admitted.push((at, limit.step(&mut state, Amount::UpTo(units), now).units()));
    }
    let period = limit.period().as_micros() / 1_000;
    let within = |end: u64| admitted.iter().filter(move |&&(at, _)| at <= end && end < at + period);
    admitted.iter().map(|&(end, _)| within(end).map(|&(_, units)| units).sum()).max().unwrap_or(0)
}

fn windows(parts: u32) -> [Quota; 2] {
    let even = SlidingParts::new(RATE, parts).expect("a valid rate");
    [even.into(), even.strict().into()]
}

/// A deterministic random number generator.
fn rng(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |sides| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    }
}

/// Few units over a long time, then many at once, then as many as possible: an even spread gives
/// back the latest units too early.
fn adversarial(seed: u64) -> Schedule {
    let mut rng = rng(seed);
    let (mut at, mut schedule) = (0, Schedule::new());
    for _ in 0..3 {
        let (instants, gap) = (4 + rng(20), 1 + rng(6_000));
        for _ in 0..instants {
            schedule.push((at, 1 + rng(2)));
            at += 1 + rng(gap);
        }
        schedule.push((at, 40 + rng(60)));
        for _ in 0..rng(8) {
            at += 1 + rng(100);
            schedule.push((at, 1));
        }
        at += 1 + rng(40_000);
        let gap = 1 + rng(2_000);
        for _ in 0..60 {
            schedule.push((at, if rng(3) == 0 { 100 } else { 1 + rng(9) }));
            at += 1 + rng(gap);
        }
    }
    schedule
}

/// All seven parts are in use, so the two a tenth of a second apart are merged. With an even
/// spread, nearly all of their units have left one window after the first unit, when only that unit
/// should have.
const BURST_BEHIND_ONE: [(u64, u64); 9] = [
    (0, 1),
    (13_000, 1),
    (20_000, 1),
    (26_000, 1),
    (32_000, 1),
    (40_000, 1),
    (56_000, 1),
    (56_100, 94),
    (116_099, 100),
];

#[test]
fn a_burst_behind_a_single_unit_never_exceeds_the_limit() {
    let [even, strict] = windows(7);
    let schedule = BURST_BEHIND_ONE.to_vec();
    assert!(most_in_a_window(&even, &schedule) >= 180, "the estimate admits this");
    assert_eq!(most_in_a_window(&strict, &schedule), 94 + 6);
}

/// Returns the wait of a client before its next request, in milliseconds.
type Client = fn(&mut dyn FnMut(u64) -> u64) -> u64;

/// Clients of a limit of a hundred per minute.
const CLIENTS: [(&str, Client); 5] = [
    ("evenly spaced, at its limit", |_| 600),
    ("evenly spaced, at 1.5 times its limit", |_| 400),
    ("at random, at its limit", |rng| 1 + rng(1_199)),
    ("at random, at three times its limit", |rng| 1 + rng(399)),
    ("bursts of ten, at twice its limit", |rng| if rng(10) == 0 { 2_500 + rng(1_000) } else { 1 }),
];

/// Returns the early refusals, in ten-thousandths of the admissions of a log.
fn refused_early(client: Client, parts: u32) -> u64 {
    let admitted = |limit: Quota| {
        let (mut state, mut rng, mut at, mut units) = (limit.fresh(), rng(2026), 0, 0);
        while at < 4 * 3_600_000 {
            at += client(&mut rng);
            units += limit.step(&mut state, Amount::Exactly(1), START + Span::from_millis(at)).units();
        }
        units
    };
    let [_, strict] = windows(parts);
    let (strict, log) = (admitted(strict), admitted(SlidingLog::new(RATE).expect("a valid rate").into()));
    10_000 * log.saturating_sub(strict) / log
}

/// The numbers of `FORMAT.md`, "A strict sliding window".
#[test]
fn little_is_refused_early_and_less_with_more_parts() {
    for (name, client) in CLIENTS {
        let early = [7, 16, 32, 64].map(|parts| refused_early(client, parts));
        println!("{name}: {early:?} of 10,000 in 7, 16, 32 and 64 parts");
        let most = [1_400, 700, 400, 200];
        assert!(early.iter().zip(most).all(|(&early, most)| early <= most), "{name}: {early:?}");
    }
}

#[test]
fn no_schedule_gets_more_than_the_limit_in_any_window() {
    for parts in [2, 3, 7, 16, 64] {
        let mut most = [0, 0];
        for seed in 0..1_000 {
            let schedule = adversarial(seed);
            for (most, limit) in most.iter_mut().zip(&windows(parts)) {
                *most = most_in_a_window(limit, &schedule).max(*most);
            }
        }
        println!("{parts} parts: {} of 100 estimated, {} of 100 strict", most[0], most[1]);
        assert!(most[1] <= 100, "{parts} parts: {} of 100", most[1]);
        assert!(parts > 7 || most[0] > 120, "schedules that get {} of 100 say little", most[0]);
    }
}
