//! What came of it: rows, weights, bars, and where all of it was measured.

mod bars;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use super::idle::Weight;
use crate::report::{Bar, Machine};
use crate::sample::Row;

/// Under what conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Where.
    pub machine: Machine,
    /// Of the contestants and of wrk, as they say themselves.
    pub versions: BTreeMap<&'static str, String>,
    /// Connections of wrk.
    pub connections: usize,
    /// Seconds of load in each round.
    pub seconds: u64,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayReport {
    /// Under what conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// With ten thousand connections.
    pub idle: Vec<Weight>,
    /// What was promised, and what came of it.
    pub bars: Vec<Bar>,
    /// What a reader should know of this run.
    pub remarks: Vec<String>,
}

impl GatewayReport {
    /// A run, from what was measured.
    pub fn new(setting: Setting, rows: Vec<Row>, idle: Vec<Weight>, mut remarks: Vec<String>) -> Self {
        remarks.extend(rows.iter().filter_map(Row::remark));
        let bars = bars::all(&rows, &idle);
        Self { setting, rows, idle, bars, remarks }
    }
}
