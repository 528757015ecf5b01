//! Tries to break a fleet: real limiters on simulated links, stores and clocks, with faults, in virtual time.
//!
//! A seed determines everything: the fleet, its limits, its traffic, its faults and their times ([`simulate_faults`]).
//! The run is checked against an oracle at every event:
//!
//! 1. **bound**: in any stretch of time, a key is admitted at most the units of its limit, plus the units that the faults allow by
//!    formula: the shares of the nodes, the calls that a store forgot, the steps of its clock.
//! 2. **conservation**: each charge in the store belongs to a request that was admitted, or is returned, or was lost to
//!    a fault that loses it. Usage of an outage is charged once, settlements are applied once.
//! 3. **all or nothing**: an admitted request has all of its charges, another one has none.
//! 4. **no refusal with room**: neither the store nor the deny cache refuses a request that fits.
//! 5. **degraded and in time**: a decision without the store is marked, and none waits longer than the deadline.
//! 6. **recovery**: two seconds after the last fault, no decision is made without the store, and no node owes it usage.
//! 7. **tables never grow**, and a seed has one trace.
//!
//! A quarter of the seeds has regions, with shards of their own: the bound is that of all regions together, each share is
//! counted by the store of its region, and a region that is cut off from the others is served by its own store.
//!
//! A failure is reported with its seed, the smallest set of its faults that still fails, and the last events
//! ([`FaultReport`]). [`Defect`]s are deliberate: they show that the invariants detect something.
//!
//! Not here: real Redis and real processes (`tollgate-cli/tests/faults`, `docs/faults.md`).

mod clock;
mod defect;
mod deny_cache;
mod fault;
mod leasing;
mod link;
mod node;
mod oracle;
mod plan;
mod regions;
mod report;
mod shard;
mod store;
#[cfg(test)]
mod tests;
mod trace;
mod wire;
mod world;

pub use self::defect::Defect;
pub use self::report::FaultReport;
pub use self::world::RunSummary;

use self::plan::Plan;
use self::report::shrink;
use self::world::World;

/// Runs a fleet with the faults of a seed, and with a deliberate defect if one is given.
///
/// ```
/// use tollgate_sim::faults::simulate_faults;
///
/// let run = simulate_faults(1, None).expect("the invariants hold");
/// assert_eq!(simulate_faults(1, None).expect("they hold again").trace_hash, run.trace_hash);
/// ```
pub fn simulate_faults(seed: u64, defect: Option<Defect>) -> Result<RunSummary, Box<FaultReport>> {
    let plan = Plan::draw(seed);
    World::run(&plan, defect).map_err(|broken| Box::new(shrink(&plan, defect, broken)))
}

/// Runs as [`simulate_faults`] does, and returns only the invariant that does not hold: the failure is not shrunk.
pub fn simulate_faults_once(seed: u64, defect: Option<Defect>) -> Result<RunSummary, String> {
    World::run(&Plan::draw(seed), defect)
        .map_err(|broken| format!("{}: {}", broken.violation.invariant, broken.violation.text))
}
