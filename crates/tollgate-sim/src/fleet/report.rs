//! The results of a comparison.
//!
//! `tollgate simulate --fleet --json` returns this as JSON.

use serde::Serialize;
use tollgate::Algorithm as _;

use super::mode::FleetMode;
use super::scenario::FleetScenario;
use super::tally::{Tally, by_cell};
use super::words::describe;

/// The number of cells of the series.
const CELLS: usize = 120;

/// The results of all modes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetReport {
    /// The limit: `1000/second, burst 2000`.
    pub limit: String,
    /// Number of nodes.
    pub nodes: u32,
    /// Shape of the traffic.
    pub shape: &'static str,
    /// Requests as a multiple of the rate.
    pub load: f64,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// How long leased units may be held, in milliseconds.
    pub lease_ms: f64,
    /// The time from a call to its reply, in milliseconds.
    pub round_trip_ms: f64,
    /// The interval of `sync`, in milliseconds.
    pub sync_ms: f64,
    /// Requests.
    pub offered: u64,
    /// Requests that an ideal bucket, which all nodes reach without delay, would have admitted.
    pub ideal: u64,
    /// Length of a cell of the series, in seconds.
    pub step_s: f64,
    /// Requests that the ideal bucket admitted, one value per cell.
    pub ideal_series: Vec<u64>,
    /// Modes in the order of the arguments.
    pub modes: Vec<FleetModeReport>,
}

/// The results of one mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetModeReport {
    /// The mode.
    pub mode: FleetMode,
    /// Admitted requests.
    pub admitted: u64,
    /// Calls to the store.
    pub calls: u64,
    /// Calls per decision.
    pub calls_per_decision: f64,
    /// The share of requests that waited for a call.
    pub waited: f64,
    /// Units above the burst and the refill, in the worst stretch of time.
    pub overshoot: u64,
    /// The share of the admissions of the ideal bucket that this mode refused.
    pub underuse: f64,
    /// Summary in words.
    pub words: String,
    /// Series over time.
    pub series: FleetSeries,
}

/// Series of one mode, one value per cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetSeries {
    /// Admitted requests.
    pub admitted: Vec<u64>,
    /// Calls to the store.
    pub calls: Vec<u64>,
}

#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
impl FleetReport {
    pub(super) fn new(scenario: &FleetScenario, ideal: &Tally, modes: Vec<(FleetMode, Tally)>) -> Self {
        let step = (scenario.duration.as_micros() / CELLS as u64).max(1);
        let ms = |span: tollgate::Span| span.as_micros() as f64 / 1e3;
        let ideal_units = ideal.admitted.len() as u64;
        let summarize = |(mode, mut tally): (FleetMode, Tally)| {
            let overshoot = tally.overshoot(&scenario.bucket);
            let (admitted, calls) = (tally.admitted.len() as u64, tally.calls.len() as u64);
            let mut report = FleetModeReport {
                mode,
                admitted,
                calls,
                calls_per_decision: ratio(calls, tally.offered),
                waited: ratio(tally.waited, tally.offered),
                overshoot,
                underuse: ratio(ideal_units.saturating_sub(admitted), ideal_units),
                words: String::new(),
                series: FleetSeries {
                    admitted: by_cell(&tally.admitted, step, CELLS),
                    calls: by_cell(&tally.calls, step, CELLS),
                },
            };
            report.words = describe(&report);
            report
        };
        Self {
            limit: format!("{}, burst {}", scenario.bucket.rate(), scenario.bucket.capacity()),
            nodes: scenario.nodes,
            shape: scenario.shape.word(),
            load: scenario.load,
            duration_s: scenario.duration.as_micros() as f64 / 1e6,
            seed: scenario.seed,
            lease_ms: ms(scenario.lease_ttl()),
            round_trip_ms: ms(scenario.round_trip),
            sync_ms: ms(scenario.sync_interval),
            offered: ideal.offered,
            ideal: ideal_units,
            step_s: step as f64 / 1e6,
            ideal_series: by_cell(&ideal.admitted, step, CELLS),
            modes: modes.into_iter().map(summarize).collect(),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a part of one")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
