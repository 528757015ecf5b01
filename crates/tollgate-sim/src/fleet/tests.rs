//! The calls and the admissions of each mode.

use tollgate::{Bucket, Rate, Span};

use super::*;
use crate::traffic::Shape;

fn of(report: &FleetReport, mode: FleetMode) -> &FleetModeReport {
    report.modes.iter().find(|it| it.mode == mode).expect("the mode was compared")
}

#[test]
fn leases_admit_nearly_everything_with_few_calls_and_never_too_much() {
    for (shape, load) in
        [(Shape::Poisson, 2.0), (Shape::Steady, 0.9), (Shape::OnOff, 1.5), (Shape::Ramp, 1.0)]
    {
        let scenario =
            FleetScenario { shape, load, duration: Span::from_secs(10), ..FleetScenario::default() };
        let report = compare_fleet(&scenario).expect("the scenario is valid");
        let leased = of(&report, FleetMode::Leased);
        assert_eq!(leased.overshoot, 0, "{shape:?}");
        // The pad of leases is a twentieth of the burst, and some units are not spent in time.
        assert!(leased.underuse < 0.05, "{shape:?}: {}", leased.underuse);
        assert!(leased.calls_per_decision < 0.3, "{shape:?}: {}", leased.calls_per_decision);
        assert_eq!(of(&report, FleetMode::Exact).overshoot, 0);
    }
}

#[test]
fn leases_refuse_no_request_below_the_rate() {
    // Small leases: a node asks for eleven units in each.
    let scenario = FleetScenario {
        shape: Shape::Steady,
        load: 0.9,
        modes: vec![FleetMode::Leased],
        ..FleetScenario::default()
    };
    let scenario = FleetScenario { duration: Span::from_secs(60), ..scenario };
    let report = compare_fleet(&scenario).expect("the scenario is valid");
    assert_eq!(of(&report, FleetMode::Leased).admitted, report.offered);
}

#[test]
fn copies_admit_too_much_and_parts_too_little() {
    let scenario = FleetScenario { duration: Span::from_secs(10), ..FleetScenario::default() };
    let report = compare_fleet(&scenario).expect("the scenario is valid");
    assert!(of(&report, FleetMode::Sync).overshoot > 10, "{:?}", of(&report, FleetMode::Sync).words);
    let split = of(&report, FleetMode::Split);
    assert_eq!((split.calls, split.overshoot), (0, 0));
    // One node of four gets all requests: the others' parts are of no use.
    let exact = of(&report, FleetMode::Exact);
    assert_eq!(exact.calls, report.offered);
    assert!((exact.waited - 1.0).abs() < 1e-9);
}

#[test]
fn a_comparison_is_the_same_for_the_same_seed() {
    let scenario = FleetScenario { duration: Span::from_secs(2), ..FleetScenario::default() };
    assert_eq!(compare_fleet(&scenario), compare_fleet(&scenario));
    let other = FleetScenario { seed: 2, ..scenario.clone() };
    assert_ne!(compare_fleet(&scenario), compare_fleet(&other));
}

#[test]
fn a_scenario_that_cannot_run_is_refused() {
    let usual = FleetScenario { duration: Span::from_secs(2), ..FleetScenario::default() };
    let fast = Bucket::new(Rate::per_second(1_000)).and_then(|it| it.with_burst(50)).expect("a bucket");
    let cases = [
        (FleetScenario { nodes: 0, ..usual.clone() }, "1 to 64 nodes"),
        (FleetScenario { bucket: fast, ..usual.clone() }, "too fast"),
        (FleetScenario { lease: Some(Span::from_secs(1)), ..usual.clone() }, "a tenth of the time to fill"),
        (FleetScenario { round_trip: Span::ZERO, ..usual.clone() }, "a round trip"),
        (FleetScenario { sync_interval: Span::from_secs(60), ..usual.clone() }, "nodes synchronize"),
        (FleetScenario { shape: Shape::RetryStorm, ..usual.clone() }, "do not retry"),
        (FleetScenario { modes: Vec::new(), ..usual.clone() }, "no mode"),
        (FleetScenario { load: 0.0, ..usual.clone() }, "a load is a multiple"),
        (FleetScenario { max_requests: 10, ..usual }, "take a lower rate"),
    ];
    for (scenario, expected) in cases {
        let error = compare_fleet(&scenario).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn a_key_that_is_short_costs_at_most_eight_calls_per_lease_and_node() {
    for (rate, shape, load) in [
        (1_000, Shape::Poisson, 1.5),
        (1_000, Shape::Steady, 4.0),
        (5_000, Shape::Poisson, 1.1),
        (5_000, Shape::Steady, 2.0),
        (5_000, Shape::Poisson, 8.0),
    ] {
        let bucket = Bucket::new(Rate::per_second(rate)).and_then(|it| it.with_burst(2 * rate));
        let scenario = FleetScenario {
            bucket: bucket.expect("a bucket"),
            shape,
            load,
            modes: vec![FleetMode::Leased],
            duration: Span::from_secs(20),
            ..FleetScenario::default()
        };
        let report = compare_fleet(&scenario).expect("the scenario is valid");
        let leased = of(&report, FleetMode::Leased);
        let leases = scenario.duration.as_micros() / scenario.lease_ttl().as_micros();
        let per_lease = leased.calls as f64 / (leases * u64::from(scenario.nodes)) as f64;
        assert!(per_lease <= 8.0, "{rate} {shape:?} {load}: {per_lease} calls");
        assert!(leased.underuse <= 0.025, "{rate} {shape:?} {load}: {}", leased.underuse);
        assert_eq!(leased.overshoot, 0);
    }
}
