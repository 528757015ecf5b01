//! Adaptive limits against a model of a service: cold start, overload, changes of capacity, noise,
//! failures, an hour of permanent overload, and priority classes.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a model are small"
)]

mod support;

use std::time::Duration;

use support::{Noise, Phase, Report, run, run_seeded};
use tollgate_overload::adaptive::{
    AdaptiveLimit, AdaptiveSettings, Admissions, Algorithm, Outcome, Sample, Slots, class_limit,
};

const ALL: [Algorithm; 3] = [Algorithm::Gradient, Algorithm::Vegas, Algorithm::Aimd];

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// A phase with a single class, whose arrivals are a multiple of the capacity of 32 workers and 25 ms.
fn phase(until: u64, workers: u32, millis: u64, load: f64) -> Phase {
    let arrivals = [load * 32.0 / 0.025, 0.0, 0.0];
    Phase {
        until: seconds(until),
        workers,
        service: Duration::from_millis(millis),
        arrivals,
        failures: 0.0,
        enforced: true,
    }
}

fn run_alone(algorithm: Algorithm, noise: Noise, phases: &[Phase]) -> Vec<Report> {
    let settings = AdaptiveSettings { algorithm, ..AdaptiveSettings::default() };
    run(settings, noise, (1, seconds(5)), phases)
}

#[test]
fn at_four_times_capacity_nearly_all_capacity_is_used_and_latency_stays_low() {
    for algorithm in ALL {
        let overload = phase(20, 32, 25, 4.0);
        let report = &run_alone(algorithm, Noise::None, &[overload])[0];
        assert!(report.goodput(&overload) >= 0.95, "{algorithm:?}: {}", report.goodput(&overload));
        assert!(report.p99() <= 3.0 * 0.025, "{algorithm:?}: {}", report.p99());
    }
}

#[test]
fn the_limit_follows_a_capacity_that_halves_and_doubles() {
    let phases = [
        phase(15, 32, 25, 4.0),
        phase(30, 16, 25, 4.0),
        phase(45, 32, 25, 4.0),
        // The same workers, each twice as slow: Little's law gives the same limit.
        phase(60, 32, 50, 4.0),
        phase(75, 32, 25, 4.0),
    ];
    let reports = run_alone(Algorithm::Gradient, Noise::None, &phases);
    for (at, (report, phase)) in reports.iter().zip(&phases).enumerate() {
        assert!(report.settled_after(phase.workers) <= 10.0, "phase {at}: {:?}", report.limits);
        assert!(report.goodput(phase) >= 0.95, "phase {at}: {}", report.goodput(phase));
        assert!(report.p99() <= 3.0 * phase.service.as_secs_f64(), "phase {at}: {}", report.p99());
    }
}

#[test]
fn an_hour_of_permanent_overload_moves_neither_baseline_nor_limit() {
    for algorithm in ALL {
        let hour = Phase { arrivals: [640.0, 0.0, 0.0], ..phase(3_600, 16, 100, 0.0) };
        let report = &run_alone(algorithm, Noise::None, &[hour])[0];
        assert!((report.baseline / 0.1 - 1.0).abs() < 0.05, "{algorithm:?}: {}", report.baseline);
        let last = &report.limits[report.limits.len() - 600..];
        let mean = last.iter().map(|it| f64::from(it.1)).sum::<f64>() / 600.0;
        assert!((mean / 16.0 - 1.0).abs() < 0.45, "{algorithm:?}: {mean}");
        assert!(report.goodput(&hour) >= 0.95, "{algorithm:?}: {}", report.goodput(&hour));
    }
}

#[test]
fn latencies_that_vary_cost_little_throughput() {
    for noise in [Noise::Exponential, Noise::Bimodal] {
        let overload = Phase { arrivals: [20_480.0, 0.0, 0.0], ..phase(60, 128, 25, 0.0) };
        let report = &run_alone(Algorithm::Gradient, noise, &[overload])[0];
        assert!(report.goodput(&overload) >= 0.95, "{noise:?}: {}", report.goodput(&overload));
        let mean = report.limits.iter().map(|it| f64::from(it.1)).sum::<f64>() / report.limits.len() as f64;
        assert!((0.8..1.6).contains(&(mean / 128.0)), "{noise:?}: {mean}");
    }
}

#[test]
fn an_idle_service_keeps_its_limit() {
    let phases = [phase(15, 32, 25, 4.0), phase(600, 32, 25, 0.05), phase(606, 32, 25, 4.0)];
    let reports = run_alone(Algorithm::Gradient, Noise::None, &phases);
    let (busy, idle) = (reports[0].limits.last().unwrap().1, reports[1].limits.last().unwrap().1);
    assert!(idle.abs_diff(busy) <= 2, "{busy} {idle}");
    let first_second = &reports[2].limits[..10];
    assert!(first_second.iter().all(|it| it.1.abs_diff(idle) < 8), "{first_second:?}");
}

#[test]
fn a_cold_start_reaches_a_large_capacity_within_seconds() {
    let overload = Phase { arrivals: [32_000.0, 0.0, 0.0], ..phase(5, 400, 50, 0.0) };
    let report = &run_alone(Algorithm::Gradient, Noise::None, &[overload])[0];
    assert!(report.limits[30].1 >= 300, "{:?}", report.limits);
}

#[test]
fn failures_lower_the_limit_in_proportion_and_recovery_restores_it() {
    let phases = [
        phase(10, 32, 25, 4.0),
        Phase { failures: 0.1, ..phase(20, 32, 25, 4.0) },
        Phase { failures: 0.9, ..phase(30, 32, 25, 4.0) },
        Phase { failures: 1.0, ..phase(40, 32, 25, 4.0) },
        phase(50, 32, 25, 4.0),
    ];
    let reports = run_alone(Algorithm::Gradient, Noise::None, &phases);
    let last: Vec<_> = reports.iter().map(|it| it.limits.last().unwrap().1).collect();
    assert!(last[0] >= 32 && last[1] >= 30, "a tenth of failures is no overload: {last:?}");
    assert!(last[2] <= 8 && last[3] <= 4, "{last:?}");
    assert!(last[4].abs_diff(last[0]) <= 4, "{last:?}");
}

#[test]
fn the_critical_class_passes_at_four_times_capacity_and_idle_capacity_is_for_all() {
    let settings = AdaptiveSettings::default();
    let capacity = 32.0 / 0.025;
    let mixed = |critical, normal, bulk, until| Phase {
        arrivals: [critical, normal, bulk].map(|it: f64| it * capacity),
        ..phase(until, 32, 25, 0.0)
    };
    for critical in [0.2, 0.5, 0.7] {
        let overload = mixed(critical, 1.5, 2.5 - critical, 30);
        let report = &run(settings, Noise::None, (3, seconds(5)), &[overload])[0];
        assert!(report.success(0) >= 0.999, "{critical}: {}", report.success(0));
        assert!(report.goodput(&overload) >= 0.95, "{critical}: {}", report.goodput(&overload));
        assert!(report.p99() <= 3.0 * 0.025, "{critical}: {}", report.p99());
        assert!(report.success(1) > report.success(2), "{:?}", report.refused);
    }
    // Only bulk requests: they use everything.
    let bulk = mixed(0.0, 0.0, 4.0, 30);
    let report = &run(settings, Noise::None, (3, seconds(5)), &[bulk])[0];
    assert!(report.goodput(&bulk) >= 0.95, "{}", report.goodput(&bulk));
}

#[test]
fn a_critical_class_that_exceeds_the_capacity_by_itself_does_not_move_the_baseline() {
    let phases = [
        phase(10, 32, 25, 0.3),
        Phase { arrivals: [4.0 * 1280.0, 1280.0, 1280.0], ..phase(600, 32, 25, 0.0) },
    ];
    let report = &run(AdaptiveSettings::default(), Noise::None, (3, seconds(5)), &phases)[1];
    assert!((report.baseline / 0.025 - 1.0).abs() < 0.1, "{}", report.baseline);
    assert!(report.goodput(&phases[1]) >= 0.95 && report.p99() <= 3.0 * 0.025, "{}", report.p99());
}

/// Important requests keep the requests in flight above the limit of a dip, so that dips do not measure the baseline.
#[test]
fn with_classes_the_baseline_follows_a_service_that_becomes_slow_at_once() {
    for (slowdown, critical) in [(2.0, 0.3), (4.0, 0.5), (10.0, 0.5)] {
        for seed in 0..4 {
            let arrivals = [critical / slowdown, 0.2, 0.5 - critical / slowdown].map(|it| it * 1280.0);
            let usual = Phase { arrivals, ..phase(15, 32, 25, 0.0) };
            let slow =
                Phase { until: seconds(45), service: Duration::from_millis(25).mul_f64(slowdown), ..usual };
            let settings = AdaptiveSettings::default();
            let reports = run_seeded(seed, settings, Noise::Half, (3, Duration::ZERO), &[usual, slow]);
            let (report, case) = (&reports[1], format!("{slowdown} times slower, seed {seed}"));
            let possible = slow.capacity().min(arrivals.iter().sum());
            let goodput = f64::from(report.answered) / report.seconds / possible;
            assert!(goodput >= 0.9, "{case}: {goodput}");
            assert!(report.success(0) >= 0.99, "{case}: {}", report.success(0));
            let baseline = report.baseline / slow.service.as_secs_f64();
            assert!((baseline - 1.0).abs() < 0.3, "{case}: {baseline}");
        }
    }
}

#[test]
fn with_classes_fewer_workers_do_not_move_the_baseline() {
    for (workers, critical) in [(16, 0.3), (16, 0.6), (16, 0.9), (6, 0.5)] {
        for seed in 0..16 {
            let critical = critical * f64::from(workers) / 32.0;
            let arrivals = [critical, 1.0, 3.0 - critical].map(|it| it * 1280.0);
            let usual = Phase { arrivals, ..phase(15, 32, 25, 0.0) };
            let fewer = Phase { until: seconds(45), workers, ..usual };
            let settings = AdaptiveSettings::default();
            let report = &run_seeded(seed, settings, Noise::Half, (3, Duration::ZERO), &[usual, fewer])[1];
            let case = format!("{workers} workers, critical load {critical}, seed {seed}");
            assert!(report.goodput(&fewer) >= 0.95, "{case}: {}", report.goodput(&fewer));
            assert!(report.success(0) >= 0.99, "{case}: {}", report.success(0));
            // A dip of ten requests measures it, so it varies.
            let last = &report.baselines[report.baselines.len() - 200..];
            let mean = last.iter().sum::<f64>() / last.len() as f64;
            assert!(mean < 1.6 * 0.025, "{case}: {mean}");
        }
    }
}

#[test]
fn a_limit_that_is_only_observed_learns_the_capacity() {
    let quiet = phase(10, 32, 25, 0.8);
    // Slightly more than the service can do, so that requests wait longer and longer.
    let overload = Phase { enforced: false, ..phase(13, 32, 25, 1.1) };
    let settings = AdaptiveSettings::default();
    let report = &run(settings, Noise::None, (1, seconds(1)), &[quiet, overload])[1];
    let last = report.limits.last().unwrap().1;
    assert!((24..=44).contains(&last), "{last}");
}

#[test]
fn the_first_requests_to_end_are_no_measurement_whatever_the_clock_shows() {
    let mut limit = AdaptiveLimit::new(AdaptiveSettings::default());
    for number in 0..10 {
        let (latency, outcome) = (Duration::from_millis(1), Outcome::Answered);
        let admissions = Admissions { next: 20, inflight: 20 };
        limit.record(Sample { number, inflight: 20, latency, outcome }, admissions, seconds(1_700_000_000));
    }
    assert_eq!(limit.baseline(), None, "those that end first are the short ones");
}

#[test]
fn the_least_important_class_is_never_admitted_beyond_the_limit() {
    for limit in [1, 3, 20, 1_000, u32::MAX] {
        for classes in [1, 2, 3, 200] {
            let last = u8::try_from(classes - 1).unwrap();
            for in_force in [limit, (limit / 2).max(1)] {
                let slots = Slots { learned: limit, in_force, max: u32::MAX };
                assert_eq!(class_limit(slots, last, classes), in_force);
                let ranks: Vec<_> = (0..=last).map(|rank| class_limit(slots, rank, classes)).collect();
                assert!(ranks.is_sorted_by(|one, other| one >= other), "{ranks:?}");
            }
        }
    }
}

#[test]
fn no_class_is_admitted_beyond_the_maximum() {
    for (learned, max) in [(10, 10), (8, 10), (3, 10), (20, 1_000), (1_000, 1_000)] {
        for in_force in [learned, learned / 2] {
            let slots = Slots { learned, in_force, max };
            for rank in 0..3 {
                assert!(class_limit(slots, rank, 3) <= max, "{slots:?}, rank {rank}");
            }
        }
    }
    assert_eq!(class_limit(Slots { learned: 3, in_force: 3, max: 10 }, 0, 3), 10);
}

/// Of 1000 requests in a row, a few are answered slowly, and all others say nothing: another limit refuses
/// them, or their callers leave at once.
#[test]
fn a_flood_of_requests_that_say_nothing_does_not_keep_the_limit_from_falling() {
    for silent in [Outcome::Ignored, Outcome::Abandoned] {
        let mut limit = AdaptiveLimit::new(AdaptiveSettings::default());
        let mut number = 0;
        let mut record = |limit: &mut AdaptiveLimit, millis, outcome| {
            let (inflight, latency) = (limit.in_force(), Duration::from_millis(millis));
            let admissions = Admissions { next: number + 1, inflight };
            limit.record(Sample { number, inflight, latency, outcome }, admissions, seconds(1));
            number += 1;
        };
        (0..40).for_each(|_| record(&mut limit, 10, Outcome::Answered));
        let before = limit.learned();
        for request in 0..10_000 {
            let (millis, outcome) = if request % 200 == 0 { (80, Outcome::Answered) } else { (0, silent) };
            record(&mut limit, millis, outcome);
        }
        assert!(limit.learned() < before / 2, "{silent:?}: {before}, {}", limit.learned());
    }
}

#[test]
fn samples_in_any_order_and_with_any_numbers_keep_the_limit_within_its_bounds() {
    let mut rng = support::Rng(7);
    let settings = AdaptiveSettings { min: 5, max: 50, ..AdaptiveSettings::default() };
    let mut limit = AdaptiveLimit::new(settings);
    for step in 0..100_000_u64 {
        let any = (rng.next() * 1e9) as u64;
        let sample = Sample {
            number: if any.is_multiple_of(7) { u64::MAX - any } else { step },
            inflight: (any % 60) as u32,
            latency: if any.is_multiple_of(11) { Duration::MAX } else { Duration::from_micros(any % 5_000) },
            outcome: [Outcome::Answered, Outcome::Failed, Outcome::Abandoned, Outcome::Ignored]
                [(any % 4) as usize],
        };
        let admissions = Admissions { next: step + 10, inflight: (any % 70) as u32 };
        limit.record(sample, admissions, Duration::from_micros(step * 97));
        assert!((5..=50).contains(&limit.learned()), "{}", limit.learned());
        assert!((1..=50).contains(&limit.in_force()), "{}", limit.in_force());
    }
}
