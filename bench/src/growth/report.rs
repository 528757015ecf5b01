//! The report: rows, the conditions of the measurement, and a chart.

mod chart;
mod table;

use serde::Serialize;

use super::{ALL, Case};
use crate::report::{Bar, Machine};

pub use self::chart::chart;

/// One size of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: &'static str,
    /// Name of the subject.
    pub subject: &'static str,
    /// The size.
    pub size: usize,
    /// Nanoseconds of a decision, or of CPU time for a request of a server.
    pub ns: f64,
    /// `ns` relative to the smallest size.
    pub ratio: f64,
    /// Instructions of a decision.
    pub instructions: Option<f64>,
    /// `instructions` relative to the smallest size.
    pub instructions_ratio: Option<f64>,
    /// Bytes per key of the store, or resident bytes per idle connection.
    pub bytes: Option<f64>,
}

/// A measured size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// As in [`Row`].
    pub ns: f64,
    /// As in [`Row`].
    pub instructions: Option<f64>,
    /// As in [`Row`].
    pub bytes: Option<f64>,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthReport {
    /// The machine.
    pub machine: Machine,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Sizes that were not measured, and why.
    pub remarks: Vec<String>,
}

/// Returns the rows of a case, each relative to the first.
pub fn rows(case: &Case, measured: &[(usize, Measured)]) -> Vec<Row> {
    let Some((_, first)) = measured.first() else { return Vec::new() };
    let row = |(size, it): &(usize, Measured)| Row {
        case: case.name,
        subject: "tollgate",
        size: *size,
        ns: it.ns,
        ratio: it.ns / first.ns,
        instructions: it.instructions,
        instructions_ratio: it.instructions.zip(first.instructions).map(|(it, first)| it / first),
        bytes: it.bytes,
    };
    measured.iter().map(row).collect()
}

impl GrowthReport {
    /// Creates the report from its rows.
    pub fn new(rows: Vec<Row>, remarks: Vec<String>) -> Self {
        let bars = bars(&rows);
        Self { machine: Machine::here(), rows, bars, remarks }
    }
}

/// Returns the largest ratio of a case.
fn largest(rows: &[Row], case: &str, number: fn(&Row) -> Option<f64>) -> Option<f64> {
    rows.iter().filter(|row| row.case == case).filter_map(number).max_by(f64::total_cmp)
}

fn bars(rows: &[Row]) -> Vec<Bar> {
    let instructions = |case| largest(rows, case, |row| row.instructions_ratio);
    let cost = |case| largest(rows, case, |row| Some(row.ratio));
    vec![
        Bar::at_most(1.05, "keys: instructions, largest / smallest", instructions("keys")),
        Bar::at_most(1.05, "limits: instructions, largest / smallest", instructions("limits")),
        Bar::at_most(1.05, "limits: time, largest / smallest", cost("limits")),
        Bar::at_most(1.05, "limits of a request: time per limit", cost("limits_matching")),
        Bar::at_most(1.05, "RESP connections: CPU, most / one", cost("connections_resp")),
        Bar::at_most(1.05, "gateway connections: CPU, most / one", cost("connections_gateway")),
    ]
}

/// Returns the case of a row.
fn case_of(row: &Row) -> Option<&'static Case> {
    ALL.iter().find(|case| case.name == row.case)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::{KEYS, LIMITS};

    #[test]
    fn rows_are_relative_to_the_smallest_size() {
        let measured = |ns, instructions| Measured { ns, instructions, bytes: None };
        let rows = rows(&KEYS, &[(10, measured(20.0, Some(100.0))), (100, measured(30.0, None))]);
        let ratios: Vec<_> = rows.iter().map(|row| (row.ratio, row.instructions_ratio)).collect();
        assert_eq!(ratios, [(1.0, Some(1.0)), (1.5, None)]);
        assert!(super::rows(&LIMITS, &[]).is_empty());
    }

    #[test]
    fn a_bar_compares_the_largest_ratio() {
        let measured = |ns| Measured { ns, instructions: Some(1.0), bytes: None };
        let rows = rows(&LIMITS, &[(10, measured(1.0)), (100, measured(2.0)), (1_000, measured(1.0))]);
        let report = GrowthReport::new(rows, Vec::new());
        let met: Vec<_> = report.bars.iter().map(|bar| bar.met).collect();
        assert_eq!(met, [None, Some(true), Some(false), None, None, None]);
        let (table, chart) = (report.to_string(), chart(&report.rows));
        assert!(table.contains("1,000") && table.contains("2.00"), "{table}");
        assert!(chart.starts_with("<svg") && chart.contains("limits in the policy"), "{chart}");
    }
}
