//! Compares the ways in which a fleet of nodes can share one limit, in virtual time.
//!
//! | mode | counts | calls to the store |
//! |---|---|---|
//! | exact | the shared store | one for each request, which waits for it |
//! | leased | units that nodes lease from the shared store (`tollgate_lease`) | a few for each lease |
//! | split | each node its own part of the limit | none |
//! | sync | each node a copy of the limit, which it reconciles with the store at intervals | one for each interval |
//!
//! Leases are the real ones, around a store that answers after a round trip. `sync` is a model of what many rate
//! limiters do; Tollgate has no such mode. All modes see the same requests, and are compared with an ideal bucket that
//! all nodes reach without delay.
//!
//! Not here: faults (`faults`), drawing (`plot`), arguments (`tollgate-cli`).

mod leased;
mod local;
mod mode;
mod picture;
mod report;
mod scenario;
mod tally;
#[cfg(test)]
mod tests;
mod words;

pub use mode::FleetMode;
pub use picture::{fleet_admitted, fleet_calls};
pub use report::{FleetModeReport, FleetReport, FleetSeries};
pub use scenario::{FleetError, FleetScenario};

use self::tally::Tally;

/// Runs the requests of a scenario in each mode.
///
/// ```
/// use tollgate_sim::fleet::{FleetScenario, compare_fleet};
///
/// let scenario = FleetScenario { duration: tollgate::Span::from_secs(5), ..FleetScenario::default() };
/// let report = compare_fleet(&scenario)?;
/// let [exact, leased, _, sync] = report.modes.as_slice() else { panic!("four modes") };
/// assert!(leased.calls * 2 < exact.calls);
/// assert!(leased.overshoot == 0 && sync.overshoot > 0);
/// # Ok::<(), tollgate_sim::fleet::FleetError>(())
/// ```
pub fn compare_fleet(scenario: &FleetScenario) -> Result<FleetReport, FleetError> {
    scenario.check()?;
    let arrivals = scenario.arrivals();
    let ideal = local::ideal(scenario, &arrivals);
    let run = |mode: FleetMode| -> Tally {
        match mode {
            FleetMode::Exact => local::exact(scenario, &arrivals),
            FleetMode::Leased => leased::run(scenario, &arrivals),
            FleetMode::Split => local::split(scenario, &arrivals),
            FleetMode::Sync => local::sync(scenario, &arrivals),
        }
    };
    let modes = scenario.modes.iter().map(|&mode| (mode, run(mode))).collect();
    Ok(FleetReport::new(scenario, &ideal, modes))
}
