//! What came of it: rows, bars, and where all of it was measured.

mod bars;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::report::{Bar, Machine};
use crate::sample::{Row, Rows};

/// Under what conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Where.
    pub machine: Machine,
    /// Of the contestants and of the load generators, as they say themselves.
    pub versions: BTreeMap<&'static str, String>,
    /// Seconds of load in each round.
    pub seconds: u64,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceReport {
    /// Under what conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// For each case: Tollgate's requests in a second over a subject's.
    pub ratios: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// What was promised, and what came of it.
    pub bars: Vec<Bar>,
    /// What a reader should know of this run.
    pub remarks: Vec<String>,
}

impl ServiceReport {
    /// A run, from what was measured.
    pub fn new(setting: Setting, rows: Vec<Row>, mut remarks: Vec<String>) -> Self {
        remarks.extend(rows.iter().filter_map(Row::remark));
        let mut ratios: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for row in &rows {
            let ours = rows.iter().find(|it| it.case == row.case && it.subject == "tollgate");
            if let Some(ours) = ours {
                let ratio = ours.median.per_second / row.median.per_second;
                ratios.entry(row.case).or_default().insert(row.subject, ratio);
            }
        }
        let bars = bars::all(&rows);
        Self { setting, rows, ratios, bars, remarks }
    }
}

impl fmt::Display for ServiceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { machine, versions, seconds } = &self.setting;
        let Machine { processor, cores, rustc, commit } = machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        versions.iter().try_for_each(|(name, version)| writeln!(f, "{name}: {version}"))?;
        writeln!(f, "about {seconds} s in each round\n\n{}", Rows(&self.rows))?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}
