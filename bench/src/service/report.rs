//! The report: rows, bars, and the conditions of the measurement.

mod bars;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::idle::Weight;
use crate::report::{Bar, Machine};
use crate::sample::{Row, Rows};

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// Versions of the contestants and of the load generators, as they print them.
    pub versions: BTreeMap<&'static str, String>,
    /// Seconds of load per round.
    pub seconds: u64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceReport {
    /// The conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// For each case: Tollgate's requests per second relative to each subject's.
    pub ratios: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// Memory of connections.
    pub weights: Vec<Weight>,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Remarks on this run.
    pub remarks: Vec<String>,
}

impl ServiceReport {
    /// Creates the report from measurements.
    pub fn new(setting: Setting, rows: Vec<Row>, weights: Vec<Weight>, mut remarks: Vec<String>) -> Self {
        remarks.extend(rows.iter().filter_map(Row::remark));
        let mut ratios: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for row in &rows {
            let ours = rows.iter().find(|it| it.case == row.case && it.subject == "tollgate");
            if let Some(ours) = ours {
                let ratio = ours.median.per_second / row.median.per_second;
                ratios.entry(row.case).or_default().insert(row.subject, ratio);
            }
        }
        let mut bars = bars::all(&rows);
        bars.extend(bars::memory(&weights));
        Self { setting, rows, ratios, weights, bars, remarks }
    }
}

impl fmt::Display for ServiceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { machine, versions, seconds } = &self.setting;
        let Machine { processor, cores, rustc, commit } = machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        versions.iter().try_for_each(|(name, version)| writeln!(f, "{name}: {version}"))?;
        writeln!(f, "about {seconds} s in each round\n\n{}", Rows(&self.rows))?;
        self.weights.iter().try_for_each(|weight| writeln!(f, "{weight}"))?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}
