//! The report of a run in which an invariant did not hold.

use std::fmt;

use super::defect::Defect;
use super::oracle::Violation;
use super::plan::Plan;
use super::world::{Broken, World};

/// The most runs that a failure is shrunk by.
const MAX_RUNS: usize = 200;

/// The report of a run in which an invariant did not hold. Its text has the seed, the faults that are needed for the
/// failure, and the last events.
#[derive(Debug)]
pub struct FaultReport {
    seed: u64,
    violation: Violation,
    plan: Plan,
    all_faults: usize,
    events: Vec<String>,
}

impl FaultReport {
    /// Returns the seed of the run.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the name of the invariant.
    pub const fn invariant(&self) -> &'static str {
        self.violation.invariant
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violation, plan, all_faults, events } = self;
        writeln!(f, "seed {seed}: invariant \"{}\" does not hold: {}", violation.invariant, violation.text)?;
        writeln!(f, "{} nodes, {} shards, {} users, {:?}", plan.nodes, plan.shards, plan.users, plan.outage)?;
        writeln!(f, "{:?}", plan.regions)?;
        writeln!(f, "deny cache {} µs, {:?}", plan.deny_cache, plan.traffic)?;
        for number in 0..plan.policies.len() {
            write!(f, "{}", plan.policy_text(number, 0))?;
        }
        writeln!(f, "{} of {all_faults} faults are needed:", plan.faults.len())?;
        for fault in &plan.faults {
            writeln!(f, "  {fault}")?;
        }
        writeln!(f, "last events:")?;
        for event in events {
            writeln!(f, "  {event}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FaultReport {}

/// Leaves out one fault after the other, as long as the same invariant does not hold.
pub(super) fn shrink(plan: &Plan, defect: Option<Defect>, broken: Broken) -> FaultReport {
    let (mut plan, mut broken, all_faults) = (plan.clone(), broken, plan.faults.len());
    let (mut at, mut runs) = (0, 0);
    while at < plan.faults.len() && runs < MAX_RUNS {
        let mut smaller = plan.clone();
        smaller.faults.remove(at);
        runs += 1;
        match World::run(&smaller, defect) {
            Err(still) if still.violation.invariant == broken.violation.invariant => {
                // A fault that was needed only together with this one may now be left out too.
                (plan, broken, at) = (smaller, still, 0);
            }
            _ => at += 1,
        }
    }
    FaultReport { seed: plan.seed, violation: broken.violation, plan, all_faults, events: broken.events }
}
