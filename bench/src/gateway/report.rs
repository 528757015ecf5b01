//! The report: rows, memory, bars, and the conditions of the measurement.

mod bars;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use super::idle::Weight;
use crate::report::{Bar, Machine};
use crate::sample::Row;

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// Versions of the contestants and of wrk, as they print them.
    pub versions: BTreeMap<&'static str, String>,
    /// Connections of wrk.
    pub connections: usize,
    /// Seconds of load per round.
    pub seconds: u64,
    /// The milliseconds for which each connection pauses before its next request.
    pub pause_ms: u64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayReport {
    /// The conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// Memory with ten thousand connections.
    pub idle: Vec<Weight>,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Remarks on this run.
    pub remarks: Vec<String>,
}

impl GatewayReport {
    /// Creates the report from measurements.
    pub fn new(setting: Setting, rows: Vec<Row>, idle: Vec<Weight>, mut remarks: Vec<String>) -> Self {
        remarks.extend(rows.iter().filter_map(Row::remark));
        let bars = bars::all(&rows, &idle);
        Self { setting, rows, idle, bars, remarks }
    }
}
