//! The story of overload: the effect of each protection. The seeds are fixed.

use tollgate::Span;

use super::*;

/// Runs a service of 32 workers and 25 ms at four times its capacity, against one protection.
fn run(shape: Shape, protection: Protection) -> ProtectionReport {
    run_scenario(protection, Scenario { duration: Span::from_secs(48), seed: 1, ..Scenario::new(shape) })
}

fn run_scenario(protection: Protection, mut scenario: Scenario) -> ProtectionReport {
    scenario.protections = vec![protection];
    OverloadRun::new(scenario).unwrap().run().protections.remove(0)
}

fn success(report: &ProtectionReport, class: usize) -> f64 {
    report.classes[class].success
}

#[test]
fn without_protection_goodput_collapses_at_four_times_the_capacity() {
    let none = run(Shape::Step, Protection::None);
    assert!(none.goodput < 0.1, "{}", none.goodput);
    assert!(none.p50_ms > 1_000, "callers have left before they are answered: {}", none.p50_ms);
    assert_eq!(none.refused, 0);
}

#[test]
fn a_learned_limit_keeps_the_capacity_and_a_low_latency() {
    for shape in [Shape::Step, Shape::Square] {
        let adaptive = run(shape, Protection::Adaptive);
        assert!(adaptive.goodput >= 0.95, "{shape:?}: {}", adaptive.goodput);
        assert!(adaptive.p99_ms <= 150, "{shape:?}: {}", adaptive.p99_ms);
        assert!(adaptive.recovered_after_s.is_some_and(|it| it <= 2.0), "{:?}", adaptive.recovered_after_s);
    }
}

#[test]
fn with_classes_critical_calls_succeed_while_the_others_share_the_rest() {
    for shape in [Shape::Step, Shape::Square, Shape::RetryStorm] {
        let classes = run(shape, Protection::AdaptiveClasses);
        assert!(success(&classes, 0) >= 0.999, "{shape:?}: {}", success(&classes, 0));
        assert!(success(&classes, 1) > success(&classes, 2), "{shape:?}: {:?}", classes.classes);
    }
    let without = run(Shape::Step, Protection::Adaptive);
    assert!((success(&without, 0) - success(&without, 2)).abs() < 0.05, "{:?}", without.classes);
}

#[test]
fn a_retry_storm_outlives_its_cause_without_protection_and_ends_with_a_learned_limit() {
    let none = run(Shape::RetryStorm, Protection::None);
    assert_eq!(none.recovered_after_s, None);
    assert!(none.success_after < 0.01, "{}", none.success_after);
    let adaptive = run(Shape::RetryStorm, Protection::Adaptive);
    assert!(adaptive.recovered_after_s.is_some_and(|it| it <= 2.0), "{:?}", adaptive.recovered_after_s);
    assert!(adaptive.success_after > 0.98, "{}", adaptive.success_after);
}

#[test]
fn a_retry_budget_lets_even_an_unprotected_service_recover() {
    let none = run(Shape::RetryStormBudget, Protection::None);
    assert!(none.recovered_after_s.is_some(), "{}", none.success_after);
    let unbounded = run(Shape::RetryStorm, Protection::None);
    assert!(none.attempts * 2 < unbounded.attempts, "{} {}", none.attempts, unbounded.attempts);
}

#[test]
fn a_rate_limit_does_not_help_a_service_that_becomes_slow_and_slots_do() {
    let rate = run(Shape::SlowUpstream, Protection::Rate);
    assert!(rate.goodput < 0.2, "{}", rate.goodput);
    let slots = run(Shape::SlowUpstream, Protection::Slots);
    assert!(slots.goodput >= 0.9, "{}", slots.goodput);
    // The wait in line is part of the latency.
    assert!(slots.p50_ms > run(Shape::SlowUpstream, Protection::Adaptive).p50_ms, "{}", slots.p50_ms);
}

/// A load of 4 makes each call 5.7 times slower, a load of 7 ten times slower.
#[test]
fn with_classes_a_service_that_becomes_slow_at_once_answers_what_it_can_and_critical_calls_first() {
    for (load, seed) in [(4.0, 1), (4.0, 2), (4.0, 3), (7.0, 1), (7.0, 2), (7.0, 3)] {
        let scenario = Scenario { load, seed, ..Scenario::new(Shape::SlowUpstream) };
        let classes = run_scenario(Protection::AdaptiveClasses, scenario);
        assert!(classes.goodput >= 0.88, "load {load}, seed {seed}: {}", classes.goodput);
        assert!(success(&classes, 0) >= 0.99, "load {load}, seed {seed}: {}", success(&classes, 0));
        assert!(
            success(&classes, 1) > success(&classes, 2),
            "load {load}, seed {seed}: {:?}",
            classes.classes
        );
        assert!(classes.success_after > 0.98, "load {load}, seed {seed}: {}", classes.success_after);
    }
}

#[test]
fn slots_for_each_route_save_the_other_routes_from_a_slow_one() {
    let others = |protection| run(Shape::SlowDependency, protection).routes.unwrap()[1].success;
    let (none, slots) = (others(Protection::None), others(Protection::Slots));
    assert!(none < 0.2 && slots > 0.95, "{none} {slots}");
    assert!(run(Shape::Step, Protection::None).routes.is_none());
}

#[test]
fn the_same_seed_gives_the_same_report_and_all_protections_meet_the_same_calls() {
    let short = |seed| {
        let duration = Span::from_secs(12);
        let scenario = Scenario { workers: 8, duration, seed, ..Scenario::new(Shape::RetryStormBudget) };
        OverloadRun::new(scenario).unwrap().run()
    };
    assert_eq!(short(7), short(7));
    assert_ne!(short(7).protections, short(8).protections);
    let report = short(7);
    let calls: Vec<_> = report.protections.iter().map(|it| it.calls).collect();
    assert!(calls.windows(2).all(|it| it[0] == it[1]), "{calls:?}");
    assert_eq!(report.overloads, [(2.0, 4.0)]);
    for it in &report.protections {
        assert_eq!(it.series.attempts.iter().sum::<u64>(), it.attempts, "{:?}", it.protection);
        assert_eq!(it.series.good.len(), report.possible.len());
    }
}

#[test]
fn invalid_scenarios_are_rejected_and_too_many_attempts_are_cut_off() {
    let usual = || Scenario { workers: 4, duration: Span::from_secs(10), ..Scenario::new(Shape::RetryStorm) };
    for (scenario, expected) in [
        (Scenario { workers: 0, ..usual() }, "1 to 10000 workers"),
        (Scenario { load: 0.0, ..usual() }, "from 1 to 100"),
        (Scenario { load: f64::NAN, ..usual() }, "from 1 to 100"),
        (Scenario { duration: Span::from_secs(3_601), ..usual() }, "10s to 1h"),
        (Scenario { service_time: Span::ZERO, ..usual() }, "1ms to 500ms"),
        (Scenario { protections: Vec::new(), ..usual() }, "name at least one"),
        (Scenario { max_attempts: 100, ..usual() }, "100 are worked through"),
    ] {
        let error = OverloadRun::new(scenario).err().expect(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let cut = Scenario { protections: vec![Protection::None], max_attempts: 4_000, ..usual() };
    let report = OverloadRun::new(cut).unwrap().run();
    assert_eq!(report.protections[0].attempts, 4_000);
    assert!(report.notes[0].starts_with("none: cut short after 4000 attempts"), "{:?}", report.notes);
}

#[test]
fn charts_have_a_line_for_each_protection() {
    let scenario = Scenario { workers: 4, duration: Span::from_secs(10), ..Scenario::new(Shape::Square) };
    let report = OverloadRun::new(scenario).unwrap().run();
    let names = |chart: crate::plot::Chart| chart.series.into_iter().map(|it| it.name).collect::<Vec<_>>();
    let protections = Protection::ALL.map(Protection::word).to_vec();
    assert_eq!(names(goodput(&report)), [vec!["possible"], protections.clone()].concat());
    assert_eq!(names(latency(&report)), protections);
    assert_eq!(names(critical(&report)), protections);
    assert_eq!(goodput(&report).moments.len(), 6);
}
