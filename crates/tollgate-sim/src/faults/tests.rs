//! The invariants hold under faults, and detect deliberate defects.

use super::*;

/// The seeds of one test. `make simulate-faults` runs more.
const SEEDS: u64 = 200;

fn check(seeds: std::ops::Range<u64>) {
    let (mut degraded, mut refused, mut borrowed) = (0, 0, 0);
    for seed in seeds {
        match simulate_faults(seed, None) {
            Ok(run) => {
                degraded += run.degraded;
                refused += run.refused;
                borrowed += run.borrowed;
            }
            Err(report) => panic!("{report}"),
        }
    }
    assert!(degraded > 0 && refused > 0, "the faults and the limits had no effect");
    assert!(borrowed > 1_000, "regions borrowed only {borrowed} units");
}

#[test]
fn the_invariants_hold_for_the_first_half_of_the_seeds() {
    check(0..SEEDS / 2);
}

#[test]
fn the_invariants_hold_for_the_second_half_of_the_seeds() {
    check(SEEDS / 2..SEEDS);
}

/// Seeds beyond the first ones for which an invariant did not hold.
///
/// - 2264: a region asks for units of a full window whose store has stepped back, and gets none. That moves the window.
/// - 3500: a shard refuses a request, the undo call to another shard is late, and leases admit the request meanwhile.
/// - 9005: a request of an outage is settled after a reload raised the share, when its state under the earlier share has expired.
const PINNED_SEEDS: [u64; 3] = [2264, 3500, 9005];

#[test]
fn the_invariants_hold_for_the_pinned_seeds() {
    for seed in PINNED_SEEDS {
        if let Err(report) = simulate_faults(seed, None) {
            panic!("{report}");
        }
    }
}

#[test]
fn a_seed_has_one_trace() {
    for seed in 0..8 {
        let [one, other] = [(), ()].map(|()| World::run(&Plan::draw(seed), None).map_err(|it| it.violation));
        assert_eq!(one, other, "seed {seed}");
    }
    let traces = (0..8).map(|seed| World::run(&Plan::draw(seed), None).map_or(0, |it| it.trace_hash));
    assert_eq!(traces.collect::<std::collections::HashSet<_>>().len(), 8, "seeds differ");
}

#[test]
fn every_defect_is_detected_within_the_seeds() {
    for defect in Defect::ALL {
        let detected = (0..SEEDS).find(|&seed| simulate_faults_once(seed, Some(defect)).is_err());
        assert!(detected.is_some(), "{defect:?} was not detected");
    }
}

#[test]
fn a_report_has_the_seed_the_faults_that_are_needed_and_the_last_events() {
    let report = (0..SEEDS).find_map(|seed| simulate_faults(seed, Some(Defect::LateChargeKept)).err());
    let report = report.expect("the defect is detected");
    let text = report.to_string();
    assert!(
        text.starts_with(&format!("seed {}: invariant \"{}\"", report.seed(), report.invariant())),
        "{text}"
    );
    assert!(text.contains("faults are needed:") && text.contains("last events:"), "{text}");
    assert!(text.lines().count() < 100, "{text}");
}
