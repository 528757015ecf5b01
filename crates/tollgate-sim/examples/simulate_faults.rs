//! Runs fleets with faults: `cargo run --release -p tollgate-sim --example simulate_faults -- [SEEDS [FIRST]]`.
//!
//! Prints the report of every seed for which an invariant does not hold, and fails then. One seed: `-- 1 SEED`.

use std::process::ExitCode;

use tollgate_sim::faults::{Defect, simulate_faults, simulate_faults_once};

/// The most reports that are printed.
const MAX_REPORTS: u64 = 5;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    let (seeds, first) = (numbers.first().copied().unwrap_or(1_000), numbers.get(1).copied().unwrap_or(0));
    // The name of a defect shows the report that it causes.
    let defect =
        std::env::args().find_map(|name| Defect::ALL.into_iter().find(|it| format!("{it:?}") == name));
    let (mut failed, mut decisions, mut degraded, mut leased, mut borrowed, mut faults) = (0, 0, 0, 0, 0, 0);
    for seed in first..first + seeds {
        match simulate_faults_once(seed, defect) {
            Ok(run) => {
                decisions += run.decisions;
                degraded += run.degraded;
                leased += run.spent_from_leases;
                borrowed += run.borrowed;
                faults += run.faults;
            }
            Err(broken) => {
                failed += 1;
                // Shrinking a report takes many runs.
                match (failed <= MAX_REPORTS).then(|| simulate_faults(seed, defect)) {
                    Some(Err(report)) => println!("{report}"),
                    _ => println!("seed {seed}: {broken}"),
                }
            }
        }
    }
    println!(
        "{seeds} seeds, {failed} failed; {decisions} decisions, {degraded} without the store, \
         {leased} units from leases, {borrowed} borrowed, {faults} faults"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
