//! The report: rows, bars, and the conditions of the measurement.

mod bars;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::Figures;
use crate::report::{Bar, Machine};

/// The time in milliseconds by which the load generator may be late.
const MAX_LATE_MS: f64 = 5.0;

/// One contestant in one phase.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the phase.
    pub case: &'static str,
    /// Name of the contestant.
    pub subject: &'static str,
    /// Medians of the rounds.
    pub median: Figures,
    /// Each round.
    pub rounds: Vec<Figures>,
}

impl Row {
    /// Creates a row from its rounds.
    pub fn new(case: &'static str, subject: &'static str, rounds: Vec<Figures>) -> Self {
        Self { case, subject, median: Figures::median(&rounds), rounds }
    }

    fn remark(&self) -> Option<String> {
        let Self { case, subject, median, .. } = self;
        let late = median.late_p99_ms;
        (late > MAX_LATE_MS).then(|| {
            format!("{case}, {subject}: the load generator fell behind: one request in a hundred was {late:.1} ms late or more")
        })
    }
}

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// Versions of the proxies, as they print them.
    pub versions: BTreeMap<&'static str, String>,
    /// The workers of the upstream.
    pub workers: usize,
    /// The mean service time, in milliseconds.
    pub service_ms: f64,
    /// The distribution of the service time.
    pub service_time: &'static str,
    /// Requests per second that the upstream can serve.
    pub capacity: f64,
    /// Seconds of overload.
    pub seconds: u64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadReport {
    /// The conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Remarks on this run.
    pub remarks: Vec<String>,
}

impl OverloadReport {
    /// Creates the report from its rows.
    pub fn new(setting: Setting, rows: Vec<Row>, mut remarks: Vec<String>) -> Self {
        remarks.extend(rows.iter().filter_map(Row::remark));
        let bars = bars::all(&rows);
        Self { setting, rows, bars, remarks }
    }
}
